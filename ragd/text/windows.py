"""Texts on their way into an embedder and vectors on their way out: input checks, windows of long texts, averages.

Where the words of a normalized text begin, found for many words at once and kept for a stretch of the text only.

Words are what white space separates. Where more than UNSPACED_MAX characters of a script without spaces stand between
two spaces, they are no one word: two characters of Chinese, Japanese or Korean count as a word there, and four letters
of Thai, Lao, Khmer or Burmese, whose marks are not counted. A text with no more than SHORT_TEXT_MAX such characters is
not divided: it fits.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ragd.errors import DimensionMismatch, EmptyContent, InvalidInput
from ragd.text.languages import HAN, HANGUL, KANA, SOUTH_EAST_ASIAN, UNSPACED

FloatArray = npt.NDArray[np.float32]

SQUARES = (1e-30, 1e30)  # of a vector's components: beyond them a sum in single precision is 0 or infinite
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def accept_texts(texts: Sequence[str]) -> list[str]:
    """The texts, with each lone surrogate (which no encoding can carry) replaced by U+FFFD.

    Raises InvalidInput for anything that is not a sequence of str (a bare str included), EmptyContent for a blank text.
    """
    if isinstance(texts, str | bytes):
        raise InvalidInput("texts must be a sequence of str, not one str; wrap it in a list", field="texts")
    accepted = []
    for index, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise InvalidInput(
                f"every text to embed must be a str; text {index} of {len(texts)} is {type(text).__name__}",
                field="texts",
            )
        if not text.strip():
            raise EmptyContent(
                f"there is nothing to embed in text {index} of {len(texts)}: it is empty or blank; leave it out",
                field="texts",
            )
        accepted.append(LONE_SURROGATE.sub("\ufffd", text))
    return accepted


def check_vector(vector: npt.ArrayLike, dims: int, name: str) -> None:
    """Refuse a vector that has no cosine in single precision. name: of the vector, for the message.

    Raises DimensionMismatch for another length, InvalidInput for NaN, infinity, zeros only, and a length outside of
    1e-15 to 1e15.
    """
    try:
        with np.errstate(over="ignore"):
            wide = np.asarray(vector, dtype=np.float32).astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        wide = np.full(dims, np.nan)
    if wide.shape != (dims,):
        raise DimensionMismatch(
            f"{name} must have the collection's {dims} dimensions, not {wide.shape[0] if wide.ndim else 0}",
            field="embedding",
        )
    if not SQUARES[0] <= np.square(wide).sum() <= SQUARES[1]:
        raise InvalidInput(
            f"{name} must be finite numbers that are not all zero, of a length from 1e-15 to 1e15; make the vector"
            " again, at length 1",
            field="embedding",
        )


def unit_vector(vector: npt.ArrayLike) -> FloatArray:
    """The vector at length 1, summed in float64. The zero vector stays what it is."""
    wide = np.asarray(vector, dtype=np.float64)
    length = float(np.sqrt(np.square(wide).sum()))
    scaled: FloatArray = (wide / length if length else wide).astype(np.float32)
    return scaled


def average_windows(vectors: Sequence[npt.ArrayLike], weights: Sequence[int]) -> FloatArray:
    """The unit vector of the mean of a text's window vectors, weighted by their token counts."""
    if len(vectors) == 1:
        return unit_vector(vectors[0])
    stacked = np.asarray(vectors, dtype=np.float64)
    return unit_vector((stacked * np.asarray(weights, dtype=np.float64)[:, None]).sum(axis=0))


def halve_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Pieces of the text, in order, each of which fits: cut in halves, at white space where some is near the middle.

    Nothing but blank pieces is left out. A single character that does not fit is returned as it is.
    """
    if len(text) <= 1 or fits(text):
        return [text] if text.strip() else []
    middle = _blank_near_middle(text)
    return halve_text(text[:middle], fits) + halve_text(text[middle:], fits)


def _blank_near_middle(text: str) -> int:
    """Where to cut: never at 0 or at the end; the exact middle when no white space lies in the middle half."""
    middle, reach = len(text) // 2, len(text) // 4
    for step in range(reach + 1):
        for position in (middle - step, middle + step):
            if 0 < position < len(text) and text[position].isspace():
                return position
    return middle


STRETCH_CHARS = 1 << 16
UNSPACED_MAX = 12
SHORT_TEXT_MAX = 200
_IDEOGRAPHS = re.compile(f"[{HAN}{KANA}{HANGUL}]")
_LETTERS = re.compile(f"[{SOUTH_EAST_ASIAN}]")
_MARKS = re.compile(
    "[\\u0e31\\u0e34-\\u0e3a\\u0e47-\\u0e4e\\u0eb1\\u0eb4-\\u0ebc\\u0ec8-\\u0ece"
    "\\u17b4-\\u17d3\\u17dd\\u102b-\\u103e\\u105e-\\u1060]"
)
_ANY = re.compile(f"[{UNSPACED}]")
_ASCII_BYTES = bytes(range(0x80))
_OTHER_SPACE = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


class Words:
    """Counts and finds words: what white space separates, as str.split() does, and parts of text without spaces.

    Every question is about a span of the text; spans are asked for from left to right, and one that reaches beyond the
    stretch that was read last makes the next stretch begin where it begins. `text` must be normalized: its only control
    characters are tabs and line feeds.
    """

    def __init__(self, text: str, *, short_too: bool = False) -> None:
        self.text = text
        self.divides_runs = not text.isascii() and _has_more(text, 0 if short_too else SHORT_TEXT_MAX)
        self._first = self._last = 0  # the stretch
        self._begun = memoryview(b"")  # for each of its characters: the words that begin up to there

    def count(self, start: int, end: int) -> int:
        """The words of a span that begins with a word's character: as str.split() has them where words have spaces."""
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
        if self.divides_runs:
            begins |= _parts(self.text[start : self._last], begins)
        self._begun = begins.cumsum(dtype=np.int32).data


def _one_byte_each(text: str) -> bytes:
    """One byte for each character, not above 0x20 where the character is white space."""
    if text.isascii():
        return text.encode()
    if _OTHER_SPACE.search(text.encode().translate(None, _ASCII_BYTES).decode()):
        text = _OTHER_SPACE.sub(" ", text)
    return text.encode("ascii", "replace")


def count_words(text: str) -> int:
    """The words of a text as Words counts them; 0 of a blank one."""
    if text.isascii() or not _ANY.search(text):
        return len(text.split())
    stripped = text.strip()
    return Words(stripped, short_too=True).count(0, len(stripped)) if stripped else 0


def _has_more(text: str, number: int) -> bool:
    """Whether the text has more characters of scripts without spaces than that."""
    return next(itertools.islice(_ANY.finditer(text), number, None), None) is not None


def is_inside_run(text: str, position: int) -> bool:
    """Whether the position stands in text without spaces that is more than one word."""
    before, after = text[max(0, position - 1) : position], text[position : position + 1]
    if not (before and after) or before.isspace() or after.isspace() or not (_ANY.match(before) or _ANY.match(after)):
        return False
    near = text[max(0, position - 4 * UNSPACED_MAX) : position].split()[-1]
    near += text[position : position + 4 * UNSPACED_MAX].split()[0]
    return len(_ANY.findall(near)) > UNSPACED_MAX


def _parts(text: str, begins: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Where the parts of text without spaces begin, each as a word. begins: the words that white space separates."""
    quarters = np.zeros(len(text), dtype=np.int32)  # of a word
    for pattern, share in ((_IDEOGRAPHS, 2), (_LETTERS, 1), (_MARKS, 0)):
        quarters[[match.start() for match in pattern.finditer(text)]] = share
    unspaced = np.zeros(len(text), dtype=np.int32)
    unspaced[[match.start() for match in _ANY.finditer(text)]] = 1
    starts = np.flatnonzero(begins)
    word = begins.cumsum() - 1  # of each character; white space counts with the word before it
    if not len(starts):
        return begins
    word = np.maximum(word, 0)
    long = np.add.reduceat(unspaced, starts) > UNSPACED_MAX
    total = quarters.cumsum()
    base = (total - quarters)[starts]
    inside = total - base[word]  # quarters of the word up to and with this character
    counts = np.maximum(1, -(-inside // 4))
    before = np.maximum(1, -(-(inside - quarters) // 4))
    parts: npt.NDArray[np.bool_] = long[word] & (counts > before)
    return parts
