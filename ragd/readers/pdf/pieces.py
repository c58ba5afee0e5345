"""What each character of a PDF page reads as: glyphs without a meaning, ligatures, divided words, superscripts."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from ragd.readers.text.markup import POWERED, SUPERSCRIPTS

# pdfium writes U+FFFE for the hyphen of a word that goes on in the next line, and for a glyph that stands for nothing.
MARK = "\ufffe"
LETTER = re.compile(r"[^\W\d_]")
# Fonts written by macOS name the ligatures of old TeX fonts wrongly: U+21B5 is "ff", a glyph without a name "ffi".
WRONG_FF = re.compile(r"(?<=[^\W\d_])\u21b5(?=[^\W\d_]|-)|(?<!\S)\u21b5(?=[a-z])")
BROKEN_RANGE = re.compile(r"(?<=\d)[-\u2013]\r\n(?=\d)")
BEFORE_MARK, AFTER_MARK = re.compile(r"[^\W_][\w\u2019'-]*\Z"), re.compile(r"(?:\r?\n)?([\w-]+)")
# Digits behind a letter, digit or closing mark, that may be raised: an exponent or the mark of a note.
DIGITS = re.compile(r"(?<=[^\s\ufffe])[-+\u2212]?\d{1,12}(?:[,\u2013-]\d{1,3})*")
RAISED, RAISED_MOST = 0.12, 0.9  # of the height of the sign before: how much higher a superscript stands
PARTED = 0.15  # of the height of a sign: a gap that parts words

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


def read_pieces(text_page: pdfium.PdfTextPage, text: str, *, is_upright: bool) -> list[str] | None:
    """What each character reads as, "" for one that goes; None where all of them are as they are.

    A glyph that stands for nothing reads as U+FFFD, one that stands for NUL as NUL. The hyphen of a divided word stays
    U+FFFE where it goes, and is "-" where it belongs to the word. Raised digits are superscripts behind a power of ten
    or a unit, and else apart from what they are raised above.
    """
    char_at = char_indexes(text_page, text) or _same
    pieces = list(text)
    if MARK in text or "\u21b5" in text:
        name_glyphs(text_page, text, pieces, char_at)
        _keep_hyphens(text, pieces)
    for match in BROKEN_RANGE.finditer(text):
        pieces[match.start() + 1] = pieces[match.start() + 2] = ""
    if is_upright:
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
    if re.search(rf"\b{re.escape(before)}-{re.escape(after)}", text):
        return True
    if re.search(rf"\b{re.escape(before)}{re.escape(after)}", text):
        return False
    last = before.rpartition("-")[2]
    if after[0].isdigit() or "-" in before.strip("-") or (len(last) == 1 and last.isalpha()):
        return True
    return after[0].isupper() and not (last.isupper() and after.isupper())


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
