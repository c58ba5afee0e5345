"""Where the words of a normalized text begin, found for many words at once and kept for a stretch of the text only."""

from __future__ import annotations

import re
from bisect import bisect_left

import numpy as np

STRETCH_CHARS = 1 << 16
_ASCII_BYTES = bytes(range(0x80))
_OTHER_SPACE = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


class Words:
    """Counts and finds words: what white space separates, as str.split() does.

    Every question is about a span of the text; spans are asked for from left to right, and one that reaches beyond the
    stretch that was read last makes the next stretch begin where it begins. `text` must be normalized: its only control
    characters are tabs and line feeds.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._first = self._last = 0  # the stretch
        self._begun = memoryview(b"")  # for each of its characters: the words that begin up to there

    def count(self, start: int, end: int) -> int:
        """len(text[start:end].split()) of a span that begins with a word's character."""
        if end > self._last or start < self._first:
            self._read(start, end)
        begun, first = self._begun, self._first
        return begun[end - first - 1] - begun[start - first] + 1

    def limit(self, start: int, end: int, most: int) -> tuple[int, int]:
        """(where the word behind the first `most` words of the span begins, most), or (end, the span's words).

        The span begins with a word's character.
        """
        words = self.count(start, end)
        if words <= most:
            return end, words
        begun, first = self._begun, self._first
        return bisect_left(begun, begun[start - first] + most, start - first, end - first) + first, most

    def last(self, start: int, end: int, number: int) -> int | None:
        """Where the last `number` words (at least 1) of the span begin; None when it has no more than those.

        The span begins with a word's character.
        """
        if self.count(start, end) <= number:
            return None
        begun, first = self._begun, self._first
        return bisect_left(begun, begun[end - first - 1] - number + 1, start - first, end - first) + first

    def _read(self, start: int, end: int) -> None:
        """Reads the stretch from start on. Its first character counts as a word's first: part of a word is one."""
        self._first, self._last = start, min(len(self.text), max(end, start + STRETCH_CHARS))
        filled = np.frombuffer(_one_byte_each(self.text[start : self._last]), dtype=np.uint8) > 0x20
        begins = filled.copy()
        np.greater(filled[1:], filled[:-1], out=begins[1:])
        self._begun = begins.cumsum(dtype=np.int32).data


def _one_byte_each(text: str) -> bytes:
    """One byte for each character, not above 0x20 where the character is white space."""
    if text.isascii():
        return text.encode()
    if _OTHER_SPACE.search(text.encode().translate(None, _ASCII_BYTES).decode()):
        text = _OTHER_SPACE.sub(" ", text)
    return text.encode("ascii", "replace")
