"""The words of a PDF page: pdfium's characters, with wrong names corrected, and where each word stands."""

from __future__ import annotations

import ctypes
import math
import re
from dataclasses import dataclass

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from ragd.readers.arrangement.shapes import PlacedWord
from ragd.readers.pdf.pieces import MARK, char_indexes, read_pieces

HYPHENATED = re.compile("[\ufffe\x02](?:\r?\n)?")
TRAILING = re.compile(r"(?<![ \t])[ \t]+(\r?\n)")
WORD = re.compile("[^\\s\ufffe\x02]+")
# Signs of scripts that put no blanks between words: each stands by itself.
UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
INK_HEIGHTS = 3.0  # a character's box with the room of its font is at most so many times as high as its ink
SPECK = 0.3  # points: the size below which letters are dots
SCALE = 1000


@dataclass(frozen=True, slots=True)
class PageWords:
    """text: of the whole page, as pdfium orders it. words: those on the page, with boxes as the page is shown.

    unseen_chars: of words in text that lie outside of the page or have no size. turned: numbers of words that do not
    stand upright, with the quarter turns, against the clock, that they have.
    """

    text: str
    words: list[PlacedWord]
    unseen_chars: int
    turned: dict[int, int]
    width: float
    height: float


class Shown:
    """From the coordinates of a page's content to points from the top left corner of the page as it is shown."""

    def __init__(self, page: pdfium.PdfPage) -> None:
        self.width, self.height = page.get_size()
        size = round(self.width * SCALE), round(self.height * SCALE)
        x, y = ctypes.c_int(), ctypes.c_int()
        found: list[tuple[float, float]] = []
        for at in ((0, 0), (SCALE, 0), (0, SCALE)):
            raw.FPDF_PageToDevice(page, 0, 0, *size, 0, *at, x, y)
            found.append((x.value / SCALE, y.value / SCALE))
        (self.e, self.f), (ax, ay), (cx, cy) = found
        self.a, self.b = (ax - self.e) / SCALE, (ay - self.f) / SCALE
        self.c, self.d = (cx - self.e) / SCALE, (cy - self.f) / SCALE
        self.is_upright = (round(self.a, 4), round(self.b, 4), round(self.c, 4), round(self.d, 4)) == (1, 0, 0, -1)

    def point(self, x: float, y: float) -> tuple[float, float]:
        return self.a * x + self.c * y + self.e, self.b * x + self.d * y + self.f

    def box(self, left: float, bottom: float, right: float, top: float) -> tuple[float, float, float, float]:
        (x0, y0), (x1, y1) = self.point(left, bottom), self.point(right, top)
        return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


def read_words(text_page: pdfium.PdfTextPage, shown: Shown) -> PageWords:
    """The page's text and words. A word that pdfium gives no place stands at the end of the one before."""
    original: str = text_page.get_text_range()
    pieces = read_pieces(text_page, original, is_upright=shown.is_upright)
    skeleton = original if pieces is None else _skeleton(original, pieces)
    char_at = char_indexes(text_page, original)
    box_of = _Boxes(text_page, shown)
    words: list[PlacedWord] = []
    starts: list[int] = []
    gaps = {" ": " ", "\r\n": "\n"}
    before = 0
    unseen_chars = 0
    last = (0.0, 0.0, 0.0, 0.0)
    width, height = 2 * shown.width, 2 * shown.height
    for match in WORD.finditer(skeleton):
        word = match.group()
        start, ended = match.span()
        between = skeleton[before:start] if pieces is None else "".join(pieces[before:start])
        if between == "-" and words:  # of a word that a line end divides
            words[-1] = words[-1]._replace(text=f"{words[-1].text}-")
            between = ""
        gap = gaps.get(between)
        if gap is None:
            gap = gaps[between] = clean_gap(between)
        before = ended
        for part in (word,) if word.isascii() else _parts(word):
            end = start + len(part)
            first = start if char_at is None else char_at(start)
            box = box_of(first, end - 1 if char_at is None else char_at(end - 1), part)
            if box is None:
                box = last[2], last[1], last[2], last[3]
            x0, y0, x1, y1 = box
            if 0 <= x0 + x1 <= width and 0 <= y0 + y1 <= height and not _is_speck(box, part):
                text = part if pieces is None else "".join(pieces[start:end])
                words.append(PlacedWord(text, x0, y0, x1, y1, gap if words else "\n"))
                starts.append(first)
                gap, last = "", box
            else:
                unseen_chars += len(part)
                gap = gap if "\n" in gap else " "
            start = end
    text = original if pieces is None else "".join(pieces)
    turned = _turned(text_page, words, starts, shown)
    return PageWords(clean(text), words, unseen_chars, turned, shown.width, shown.height)


def _skeleton(text: str, pieces: list[str]) -> str:
    """A character for each piece, which parts words at line ends, at blanks, and at hyphens that divide them."""
    both = zip(text, pieces, strict=True)
    return "".join(MARK if sign == MARK and piece == "-" else piece[-1:] or " " for sign, piece in both)


def _is_speck(box: tuple[float, float, float, float], word: str) -> bool:
    x0, y0, x1, y1 = box
    return y1 - y0 < SPECK and x1 - x0 < SPECK * len(word) and word.isalnum()


def _parts(word: str) -> list[str]:
    return [word] if word.isascii() else [part for part in UNSPACED.split(word) if part]


class _Boxes:
    """The box of the characters from one number to another, as the page is shown; None: pdfium knows none."""

    def __init__(self, text_page: pdfium.PdfTextPage, shown: Shown) -> None:
        self.page, self.shown = text_page.raw, shown
        self.rect = raw.FS_RECTF()
        self.reference = ctypes.byref(self.rect)
        self.sides = [ctypes.c_double() for _ in range(4)]
        self.is_true: dict[int, bool] = {}  # of the height that a font's room takes: whether ink fills it

    def __call__(self, start: int, end: int, text: str) -> tuple[float, float, float, float] | None:
        rect, read = self.rect, raw.FPDFText_GetLooseCharBox
        if start < 0 or end < start or not read(self.page, start, self.reference):
            return None
        left, right, bottom, top = rect.left, rect.right, rect.bottom, rect.top
        if not (self.is_true.get(round(8 * (top - bottom))) or self._fits(start, top - bottom, text)):
            return self._inked(start, end)
        if end > start and read(self.page, end, self.reference):
            if rect.right > right:
                right = rect.right
            if rect.left < left:
                left = rect.left
            if rect.top > top:
                top = rect.top
            if rect.bottom < bottom:
                bottom = rect.bottom
        if right <= left or top <= bottom:
            return self._inked(start, end)
        shown = self.shown
        if shown.is_upright:
            return left + shown.e, shown.f - top, right + shown.e, shown.f - bottom
        return shown.box(left, bottom, right, top)

    def _fits(self, start: int, height: float, text: str) -> bool:
        """Whether the room of a font is about as high as a letter of it. Asked once for each height."""
        inked = self._ink(start)
        if inked is None or not text[0].isalnum() or inked[3] <= inked[1]:
            return height > 0
        known = self.is_true[round(8 * height)] = (
            0.8 * (inked[3] - inked[1]) <= height <= INK_HEIGHTS * (inked[3] - inked[1])
        )
        return known

    def _ink(self, index: int) -> tuple[float, float, float, float] | None:
        left, right, bottom, top = self.sides
        if not raw.FPDFText_GetCharBox(self.page, index, left, right, bottom, top):
            return None
        return left.value, bottom.value, right.value, top.value

    def _inked(self, start: int, end: int) -> tuple[float, float, float, float] | None:
        boxes = [box for box in map(self._ink, range(start, end + 1)) if box is not None and box[2] > box[0]]
        if not boxes:
            return None
        lefts, bottoms, rights, tops = zip(*boxes, strict=True)
        return self.shown.box(min(lefts), min(bottoms), max(rights), max(tops))


def _turned(text_page: pdfium.PdfTextPage, words: list[PlacedWord], starts: list[int], shown: Shown) -> dict[int, int]:
    """Words whose line does not run from left to right on the page. Only where a long word is tall all are asked."""
    if not any(len(word.text) > 2 and word.y1 - word.y0 > 1.8 * (word.x1 - word.x0) for word in words):
        return {}
    page_angle = math.atan2(-shown.b, shown.a)
    result: dict[int, int] = {}
    for number, start in enumerate(starts):
        angle = raw.FPDFText_GetCharAngle(text_page, start) if start >= 0 else -1.0
        if angle >= 0 and (quarters := round((page_angle - angle) / (math.pi / 2)) % 4):
            result[number] = quarters
    return result


def clean_gap(text: str) -> str:
    return TRAILING.sub(r"\1", HYPHENATED.sub("", text)).replace("\r\n", "\n")


def clean(text: str) -> str:
    """Words that a line end divides are joined; blanks at line ends go."""
    return TRAILING.sub(r"\1", HYPHENATED.sub("", text)).strip()
