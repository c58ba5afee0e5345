"""Where words stand on pages: packed small, and moved along when their text is normalized."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from ragd.normalization import normalize
from ragd.readers.types import PageLayout, Word

SOFT_HYPHEN = "\xad"  # it only says where a word may be broken, and hides the word from a search
# start and length in characters, x0, y0, x1, y1 in 65535ths of the page's width and height, confidence in 254ths
PACKED = struct.Struct("<IH4HB")
FULL = 0xFFFF
SURE, UNSTATED = 254, 255


class PackedWords(Sequence[Word]):
    """The words of a page in 15 bytes each. A box is kept to the 65535th part of the page's side."""

    def __init__(self, data: bytes, width: float, height: float) -> None:
        """data: of `pack_words`, for a page of that size. ValueError for another length than that of whole words."""
        if len(data) % PACKED.size:
            raise ValueError(f"packed words take {PACKED.size} bytes each, and {len(data)} bytes came")
        self.data, self.width, self.height = data, width, height

    def __len__(self) -> int:
        return len(self.data) // PACKED.size

    def __iter__(self) -> Iterator[Word]:
        return map(self._word, PACKED.iter_unpack(self.data))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @overload
    def __getitem__(self, index: int) -> Word: ...
    @overload
    def __getitem__(self, index: slice) -> list[Word]: ...
    def __getitem__(self, index: int | slice) -> Word | list[Word]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        return self._word(PACKED.unpack_from(self.data, position * PACKED.size))

    def _word(self, values: tuple[int, ...]) -> Word:
        start, length, x0, y0, x1, y1, sure = values
        wide, high = self.width / FULL, self.height / FULL
        confidence = None if sure == UNSTATED else sure / SURE
        return Word(start, start + length, x0 * wide, y0 * high, x1 * wide, y1 * high, confidence)


def pack_words(words: Iterable[Word], width: float, height: float) -> PackedWords:
    """Words for keeping and sending. What stands outside of the page is moved to its edge."""
    if isinstance(words, PackedWords) and (words.width, words.height) == (width, height):
        return words
    packed = bytearray()
    for word in words:
        x0, x1 = (_share(value, width) for value in (word.x0, word.x1))
        y0, y1 = (_share(value, height) for value in (word.y0, word.y1))
        sure = UNSTATED if word.confidence is None else round(min(1.0, max(0.0, word.confidence)) * SURE)
        packed += PACKED.pack(word.start, min(word.end - word.start, FULL), x0, y0, x1, y1, sure)
    return PackedWords(bytes(packed), width, height)


def _share(value: float, side: float) -> int:
    return round(min(1.0, max(0.0, value / side)) * FULL) if side > 0 else 0


def clean_piece(text: str) -> str:
    """A piece of a document as it is kept: normalized, without soft hyphens and without blank lines around it."""
    return normalize(text).replace(SOFT_HYPHEN, "").strip("\n")


def place_words(page: PageLayout, text: str, piece: str, start: int) -> PageLayout:
    """The page with offsets of the document's text, where `piece`, which is `clean_piece(text)`, begins at start.

    page: with offsets of `text`, words in their order, none overlapping another. A word of which nothing is left is
    dropped, and so is one that cannot be found again, which takes a combining mark at its edge.
    """
    words = _unmoved(page.words, start) if piece == text else _moved(page.words, text, piece, start)
    packed = pack_words(words, page.width, page.height)
    return PageLayout(page.page, page.width, page.height, packed)


def _unmoved(words: Iterable[Word], start: int) -> Iterator[Word]:
    for word in words:
        yield _at(word, word.start + start, word.end + start)


def _moved(words: Iterable[Word], text: str, piece: str, start: int) -> Iterator[Word]:
    """Each word is looked for where it must begin, or within the few characters that its gap lost or gained."""
    whole = normalize(text).replace(SOFT_HYPHEN, "")
    stripped = len(whole) - len(whole.lstrip("\n"))
    position, before = 0, 0
    for word in words:
        gap = len(normalize(text[before : word.start]).replace(SOFT_HYPHEN, ""))
        kept = normalize(text[word.start : word.end]).replace(SOFT_HYPHEN, "")
        at = position + gap
        if kept and not whole.startswith(kept, at):
            at = whole.find(kept, max(0, at - 2), at + len(kept) + 2)
        before = word.end
        if not kept or at < 0:
            position += gap + len(kept)
            continue
        position = at + len(kept)
        if at - stripped >= 0 and position - stripped <= len(piece):
            yield _at(word, at - stripped + start, position - stripped + start)


def _at(word: Word, start: int, end: int) -> Word:
    return Word(start, end, word.x0, word.y0, word.x1, word.y1, word.confidence)
