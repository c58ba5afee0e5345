"""The words of a PDF page: pdfium's characters, with wrong names corrected, and where each word stands."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from ragd.readers.arrangement.shapes import PlacedWord
from ragd.readers.text.markup import POWERED, SUPERSCRIPTS

# pdfium writes U+FFFE for the hyphen of a word that goes on in the next line, and for a glyph that stands for nothing.
MARK = "\ufffe"
LETTER = re.compile(r"[^\W\d_]")
# Fonts written by macOS name the ligatures of old TeX fonts wrongly: U+21B5 is "ff", a glyph without a name "ffi".
WRONG_FF = re.compile(r"(?<=[^\W\d_])\u21b5(?=[^\W\d_]|-)|(?<!\S)\u21b5(?=[a-z])")
# The hyphen that Chromium draws where a soft one divides a word.
DIVIDED = re.compile(r"(?<=[^\W\d_])\u2010\r\n(?=[^\W\d_])")
# Letters and marks of scripts from right to left, without digits and the signs of Arabic that end words.
TO_THE_LEFT = re.compile(
    "(?:(?![\\d\u060c\u061b\u061f\u066a-\u066d\u06d4])[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]){2,}"
)
BROKEN_RANGE = re.compile(r"(?<=\d)[-\u2013]\r\n(?=\d)")
BEFORE_MARK, AFTER_MARK = re.compile(r"[^\W_][\w\u2019\u2010'-]*\Z"), re.compile(r"(?:\r?\n)?([\w-]+)")
# Digits behind a letter, digit or closing mark, that may be raised: an exponent or the mark of a note.
DIGITS = re.compile(r"(?<=[^\s\ufffe])[-+\u2212]?\d{1,12}(?:[,\u2013-]\d{1,3})*")
RAISED, RAISED_MOST = 0.12, 0.9  # of the height of the sign before: how much higher a superscript stands
PARTED, FAR = 0.15, 1.0  # of the height of a sign: a gap that parts words; one that parts more
LINE_END = re.compile(r"(?<=\S)\r\n(?=\S)")
JOINED = "\u2060"  # for a line end that goes

CharAt = Callable[[int], int]


def char_indexes(text_page: pdfium.PdfTextPage, text: str) -> CharAt | None:
    """From a position in the text to pdfium's number of the character; -1: it has none. None: they are the same."""
    units: list[int] | None = None
    count = len(text)
    if not text.isascii() and max(text) > "\uffff":
        units, count = [], 0
        for character in text:
            units.append(count)
            count += 1 + (character > "\uffff")
    is_same = count == raw.FPDFText_CountChars(text_page)
    if is_same and units is None:
        return None

    def index(position: int) -> int:
        unit = position if units is None else units[position]
        return unit if is_same else int(raw.FPDFText_GetCharIndexFromTextIndex(text_page, unit))

    return index


def read_pieces(text_page: pdfium.PdfTextPage, text: str, shown: Shown) -> list[str] | None:
    """What each character reads as, "" for one that goes; None where all of them are as they are.

    A glyph that stands for nothing reads as U+FFFD, one that stands for NUL as NUL. The hyphen of a divided word stays
    U+FFFE where it goes, and is "-" where it belongs to the word. The letters of a word from right to left are in
    reading order. Raised digits are superscripts behind a power of ten or a unit, and else apart from what they are
    raised above. A line end within a word reads as U+2060.
    """
    char_at = char_indexes(text_page, text) or _same
    pieces = list(text)
    if MARK in text or "\u21b5" in text:
        name_glyphs(text_page, text, pieces, char_at)
    if not text.isascii():
        for match in DIVIDED.finditer(text):
            pieces[match.start() : match.end()] = MARK, "", ""
        _keep_hyphens(text, pieces)
        _turn_words(_Boxes(text_page, shown), text, pieces, char_at)
    for match in BROKEN_RANGE.finditer(text):
        pieces[match.start() + 1] = pieces[match.start() + 2] = ""
    if shown.is_upright:
        _join_letters(text_page, text, pieces, char_at)
        _part_raised(text_page, text, pieces, char_at)
    return None if pieces == list(text) else pieces


def _same(position: int) -> int:
    return position


def name_glyphs(text_page: pdfium.PdfTextPage, text: str, pieces: list[str], char_at: CharAt) -> None:
    has_wrong_names = WRONG_FF.search(text) is not None
    for index, character in enumerate(text):
        number = char_at(index) if character == MARK else -1
        if number < 0 or raw.FPDFText_IsHyphen(text_page, number) == 1:
            continue
        before, after = text[index - 1 : index], text[index + 1 : index + 2]
        is_inside = LETTER.fullmatch(before) and LETTER.fullmatch(after)
        is_zero = not raw.FPDFText_GetUnicode(text_page, number) and not raw.FPDFText_HasUnicodeMapError(
            text_page, number
        )
        pieces[index] = "ffi" if has_wrong_names and is_inside else "\x00" if is_zero else "\ufffd"
    if has_wrong_names:
        for match in WRONG_FF.finditer("".join(piece[-1] for piece in pieces)):
            pieces[match.start()] = "ff"


def _keep_hyphens(text: str, pieces: list[str]) -> None:
    for index, piece in enumerate(pieces):
        if piece != MARK:
            continue
        before, after = BEFORE_MARK.search(text[max(0, index - 60) : index]), AFTER_MARK.match(text, index + 1)
        if before and after and _is_hyphenated(before.group(), after.group(1), text):
            pieces[index] = "-"


def _is_hyphenated(before: str, after: str, text: str) -> bool:
    """Whether a hyphen at a line end belongs to the word, as the rest of the page or the parts of the word show."""
    before, text = before.replace("\u2010", "-"), text.replace("\u2010", "-")
    if re.search(rf"\b{re.escape(before)}-{re.escape(after)}", text):
        return True
    if re.search(rf"\b{re.escape(before)}{re.escape(after)}", text):
        return False
    last = before.rpartition("-")[2]
    if after[0].isdigit() or "-" in before.strip("-") or (len(last) == 1 and last.isalpha()):
        return True
    return after[0].isupper() and not (last.isupper() and after.isupper())


def _turn_words(box_of: _Boxes, text: str, pieces: list[str], char_at: CharAt) -> None:
    """Turn round the words of scripts from right to left whose last letter stands right of the first one."""
    for match in TO_THE_LEFT.finditer(text):
        start, end = match.span()
        first, last = (box_of(char_at(place), char_at(place), text[place]) for place in (start, end - 1))
        if first and last and last[0] >= (first[0] + first[2]) / 2:
            pieces[start:end] = pieces[start:end][::-1]


def _join_letters(text_page: pdfium.PdfTextPage, text: str, pieces: list[str], char_at: CharAt) -> None:
    """Take out the line ends that pdfium puts between drawings, as letters may be, of a page with an empty strip."""
    x, y, base_y, rect = ctypes.c_double(), ctypes.c_double(), ctypes.c_double(), raw.FS_RECTF()
    close: list[int] = []
    parted: list[int] = []
    for match in LINE_END.finditer(text):
        before, after = char_at(match.start() - 1), char_at(match.end())
        raw.FPDFText_GetCharOrigin(text_page, before, x, base_y)
        raw.FPDFText_GetCharOrigin(text_page, after, x, y)
        if y.value == base_y.value and raw.FPDFText_GetLooseCharBox(text_page, before, ctypes.byref(rect)):
            height, gap = rect.top - rect.bottom, x.value - rect.right
            if abs(gap) < FAR * height:
                (parted if gap > PARTED * height else close).append(match.start())
    for place in close:
        pieces[place : place + 2] = JOINED, JOINED
    for place in parted if len(close) > len(parted) else []:
        pieces[place : place + 2] = " ", ""


def _part_raised(text_page: pdfium.PdfTextPage, text: str, pieces: list[str], char_at: CharAt) -> None:
    above = _Raised(text_page, char_at)
    for match in DIGITS.finditer(text):
        start, end = match.span()
        base = start - 1
        if not above(base, end - 1):
            base, start = start, start + 1
            if start == end or not above(base, end - 1):
                continue
        while start < end and not above(base, start):
            base, start = start, start + 1
        if start == end:
            continue
        is_number = text[start:end].lstrip("+-\u2212").isdigit()
        is_power = is_number and POWERED.search(text[max(0, base - 7) : base + 1]) is not None
        for index in range(start, end):
            pieces[index] = text[index].translate(SUPERSCRIPTS) if is_power else text[index]
        if not is_power and text[base].isalnum():
            pieces[start] = f" {text[start]}"
        if not is_power and text[end : end + 1].isalnum():
            pieces[end - 1] += " "
        _join_line(text_page, text, pieces, char_at, base, end)


class _Raised:
    """Whether a character stands higher than one before it in the same line, as a superscript does."""

    def __init__(self, text_page: pdfium.PdfTextPage, char_at: CharAt) -> None:
        self._page, self._char_at = text_page, char_at
        self._x, self._y, self._rect = ctypes.c_double(), ctypes.c_double(), raw.FS_RECTF()

    def __call__(self, base: int, index: int) -> bool:
        low, high = self._char_at(base), self._char_at(index)
        if low < 0 or high < 0:
            return False
        x0, y0 = self._origin(low)
        x1, y1 = self._origin(high)
        if y1 <= y0 or x1 <= x0 or not raw.FPDFText_GetLooseCharBox(self._page, low, ctypes.byref(self._rect)):
            return False
        height = self._rect.top - self._rect.bottom
        is_level = raw.FPDFText_GetCharAngle(self._page, high) in (0.0, -1.0)
        return is_level and RAISED * height < y1 - y0 < RAISED_MOST * height and x1 - x0 < 8 * height

    def _origin(self, number: int) -> tuple[float, float]:
        raw.FPDFText_GetCharOrigin(self._page, number, self._x, self._y)
        return self._x.value, self._y.value


def _join_line(
    text_page: pdfium.PdfTextPage, text: str, pieces: list[str], char_at: CharAt, base: int, end: int
) -> None:
    """Take out the line end that pdfium puts behind a superscript, where the line goes on."""
    following = next((index for index in range(end + 2, min(end + 5, len(text))) if not text[index].isspace()), -1)
    if following < 0 or text[end : end + 2] != "\r\n":
        return
    x, y, base_y, rect = ctypes.c_double(), ctypes.c_double(), ctypes.c_double(), raw.FS_RECTF()
    raw.FPDFText_GetCharOrigin(text_page, char_at(base), x, base_y)
    raw.FPDFText_GetCharOrigin(text_page, char_at(following), x, y)
    raw.FPDFText_GetLooseCharBox(text_page, char_at(end - 1), ctypes.byref(rect))
    if abs(y.value - base_y.value) < 1 and x.value > rect.left:
        is_parted = following == end + 2 and x.value - rect.right > PARTED * (rect.top - rect.bottom)
        pieces[end], pieces[end + 1] = " " if is_parted else "", ""


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
    pieces = read_pieces(text_page, original, shown)
    skeleton = original
    if pieces is not None:
        skeleton = _skeleton(original, pieces)
        pieces = ["" if piece == JOINED else piece for piece in pieces]
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
            gap = gaps[between] = TRAILING.sub(r"\1", HYPHENATED.sub("", between)).replace("\r\n", "\n")
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


def clean(text: str) -> str:
    """Words that a line end divides are joined; blanks at line ends go."""
    return TRAILING.sub(r"\1", HYPHENATED.sub("", text)).strip()
