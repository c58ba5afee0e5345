"""What an engine read on a page, put into the order in which people read it, as text with places.

Recognized pages: packed for their way between processes, and what is said of how surely they were read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from ragd.readers.assembly import Assembly
from ragd.readers.layout import PackedWords, pack_words
from ragd.readers.types import RecognizedPage, Word

Box = tuple[float, float, float, float]  # x0, y0, x1, y1 in pixels

# Scripts that set no blanks between words: Chinese, kana, full-width forms.
UNSPACED = re.compile(
    "[\u2e80-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)
DIVIDED = re.compile(r"[^\W\d_]-$")
COLUMN_GAP = 0.015  # of the page's width
COLUMN_LINES = 3
COLUMN_WIDTH = 0.18
PROSE_SHARE = 0.5  # of a column's width that its lines fill on average; cells of a table fill less
PARAGRAPH_GAP = 0.8  # of a line's height
SAME_ROW = 0.5
CELL_GAP = 0.5  # of a line's height
MOST_SLOPE = 0.3  # radians; a line that is steeper stands upright


@dataclass(frozen=True, slots=True)
class ReadWord:
    """joint: what stands between it and the word before it in the line."""

    text: str
    box: Box
    confidence: float
    joint: str = ""


@dataclass(frozen=True, slots=True)
class ReadLine:
    """ordered: the engine has put its lines into reading order by itself. slope: of its baseline, in radians."""

    words: tuple[ReadWord, ...]
    slope: float = 0.0
    ordered: bool = False

    @property
    def box(self) -> Box:
        boxes = [word.box for word in self.words]
        return min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes)


def split_words(text: str, corners: Any, score: float, parts: Sequence[Any]) -> ReadLine:
    """A line of rapidocr. corners: its four, from the upper left one on. parts: (text, confidence, corners) of words or
    single characters in order, which leave out blanks; a line whose parts do not fit its text is one word."""
    words: list[ReadWord] = []
    position = 0
    for part, confidence, place in parts:
        at = text.find(part, position)
        if at < 0:
            words = []
            break
        word = ReadWord(part, _around(place), float(confidence), text[position:at])
        if words and not word.joint and not (UNSPACED.match(part) or UNSPACED.match(words[-1].text)):
            gap, height = word.box[0] - words[-1].box[2], word.box[3] - word.box[1]
            if gap > CELL_GAP * height:  # cells far from each other come without the blank between them
                word = replace(word, joint=" ")
            else:
                word = _joined(words.pop(), word)
        words.append(word)
        position = at + len(part)
    if not words:
        words = [ReadWord(text, _around(corners), score)]
    elif position < len(text):
        words[-1] = replace(words[-1], text=words[-1].text + text[position:].rstrip())
    across, down = corners[1][0] - corners[0][0], corners[1][1] - corners[0][1]
    return ReadLine(tuple(words), math.atan2(float(down), float(across)))


def _joined(first: ReadWord, second: ReadWord) -> ReadWord:
    a, b = first.box, second.box
    box = (min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3]))
    share = len(first.text) / (len(first.text) + len(second.text))
    confidence = first.confidence * share + second.confidence * (1 - share)
    return ReadWord(first.text + second.text, box, confidence, first.joint)


def _around(corners: Any) -> Box:
    across, down = [float(corner[0]) for corner in corners], [float(corner[1]) for corner in corners]
    return min(across), min(down), max(across), max(down)


def compose_page(
    number: int, size: tuple[float, float], pixels: tuple[int, int], lines: Sequence[ReadLine]
) -> RecognizedPage:
    """The page's text with the places of its words. size: in points; pixels: width and height of what was read.

    A word that a line end divides is joined; it keeps a box in each line.
    """
    across, down = size[0] / pixels[0], size[1] / pixels[1]
    rows = [list(line.words) for line in lines] if lines and lines[0].ordered else _in_order(lines, pixels[0])
    text: list[str] = []
    words: list[Word] = []
    length, before = 0, None
    for row in rows:
        joint = ""
        if before is not None:
            if DIVIDED.search(text[-1]) and row[0].text[0].islower():
                text[-1], length = text[-1][:-1], length - 1
                words[-1] = replace(words[-1], end=length)
            else:
                joint = "\n\n" if _is_apart(before, row) else "\n"
        for index, word in enumerate(row):
            between = (word.joint or _blank(row[index - 1].text, word.text)) if index else joint
            start = length + len(between)
            length = start + len(word.text)
            text += [between, word.text]
            x0, y0, x1, y1 = word.box
            words.append(Word(start, length, x0 * across, y0 * down, x1 * across, y1 * down, word.confidence))
        before = row
    return RecognizedPage(number, *size, "".join(text), tuple(words))


def _blank(before: str, after: str) -> str:
    return "" if UNSPACED.match(before[-1]) and UNSPACED.match(after) else " "


def _height(row: Iterable[ReadWord]) -> float:
    return median(word.box[3] - word.box[1] for word in row)


def _is_apart(before: Sequence[ReadWord], after: Sequence[ReadWord]) -> bool:
    """Whether a paragraph ends between two rows: they are far from each other, or in different columns."""
    gap = min(word.box[1] for word in after) - max(word.box[3] for word in before)
    height = min(_height(before), _height(after))
    return gap > PARAGRAPH_GAP * height or gap < -3 * height


@dataclass(frozen=True, slots=True)
class _Placed:
    """A line with its box on the page as if it were straight."""

    line: ReadLine
    x0: float
    y0: float
    x1: float
    y1: float


def _in_order(lines: Sequence[ReadLine], page_width: float) -> list[list[ReadWord]]:
    """Rows from top to bottom, column by column; lines side by side, such as cells of a table, are one row."""
    placed = _straighten(lines)
    rows: list[list[ReadWord]] = []
    for block in _columns(placed, page_width):
        for row in _rows(block):
            ordered = sorted(row, key=lambda each: each.x0)
            rows.append(
                [
                    replace(word, joint=word.joint if index else "")
                    for each in ordered
                    for index, word in enumerate(each.line.words)
                ]
            )
    return rows


def _straighten(lines: Sequence[ReadLine]) -> list[_Placed]:
    slopes = [line.slope for line in lines if abs(line.slope) < MOST_SLOPE]
    slope = math.tan(median(slopes)) if slopes else 0.0
    result = []
    for line in lines:
        x0, y0, x1, y1 = line.box
        x, y = (x0 + x1) / 2 + slope * (y0 + y1) / 2, (y0 + y1) / 2 - slope * (x0 + x1) / 2
        width = x1 - x0
        height = max((y1 - y0) - abs(slope) * width, (y1 - y0) / 4)
        result.append(_Placed(line, x - width / 2, y - height / 2, x + width / 2, y + height / 2))
    return result


def _rows(placed: Iterable[_Placed], share: float = SAME_ROW) -> list[list[_Placed]]:
    """Those that overlap in height by more than this share of the lower one, from top to bottom."""
    rows: list[list[_Placed]] = []
    for each in sorted(placed, key=lambda each: (each.y0 + each.y1, each.x0)):
        if rows and share >= 0:
            top, bottom = min(other.y0 for other in rows[-1]), max(other.y1 for other in rows[-1])
            common = min(bottom, each.y1) - max(top, each.y0)
            if common > share * min(bottom - top, each.y1 - each.y0):
                rows[-1].append(each)
                continue
        rows.append([each])
    return rows


def _columns(placed: Sequence[_Placed], page_width: float) -> list[list[_Placed]]:
    """Blocks in reading order: what stands in columns is cut into them, what is above and below stays around them."""
    bands = _rows(placed, 0.0)
    for size in range(len(bands), 0, -1):
        for first in range(len(bands) - size + 1):
            block = _flat(bands[first : first + size])
            if any(_is_table_row(band, block) for band in (bands[first], bands[first + size - 1])):
                continue
            if (cut := _column_cut(block, page_width)) is not None:
                sides = [[each for each in block if (each.x0 >= cut) is right] for right in (False, True)]
                above, below = bands[:first], bands[first + size :]
                parts = [_flat(above), *sides, _flat(below)]
                return [found for part in parts if part for found in _columns(part, page_width)]
    return [list(placed)]


def _is_table_row(band: Sequence[_Placed], block: Sequence[_Placed]) -> bool:
    """Whether it is short cells side by side: a table above or below columns is no part of them."""
    width = max(each.x1 for each in block) - min(each.x0 for each in block)
    return len(band) > 1 and all(each.x1 - each.x0 < PROSE_SHARE * width / 2 for each in band)


def _flat(bands: Iterable[list[_Placed]]) -> list[_Placed]:
    return [each for band in bands for each in band]


def _column_cut(block: Sequence[_Placed], page_width: float) -> float | None:
    """Where running text stands on both sides of an empty stripe: the place of its right edge."""
    if len(block) < 2 * COLUMN_LINES:
        return None
    ordered = sorted(block, key=lambda each: each.x0)
    reach = ordered[0].x1
    for index, each in enumerate(ordered[1:], 1):
        sides = (ordered[:index], ordered[index:])
        if each.x0 - reach > COLUMN_GAP * page_width and all(_is_column(side, page_width) for side in sides):
            return each.x0
        reach = max(reach, each.x1)
    return None


def _is_column(side: Sequence[_Placed], page_width: float) -> bool:
    width = max(each.x1 for each in side) - min(each.x0 for each in side)
    filled = sum(each.x1 - each.x0 for each in side) / len(side)
    return len(side) >= COLUMN_LINES and width >= COLUMN_WIDTH * page_width and filled >= PROSE_SHARE * width


UNSURE = 0.6  # a word of less confidence is marked
POOR = 0.85  # a page of less on average is warned of


def pack_page(page: RecognizedPage) -> tuple[dict[str, Any], bytes, bytes]:
    """(head, text, words) of a page, as it is sent."""
    words = pack_words(page.words, page.width, page.height)
    return {"page": page.page, "width": page.width, "height": page.height}, page.text.encode(), words.data


def unpack_page(head: Mapping[str, Any], text: bytes, words: bytes) -> RecognizedPage:
    size = float(head["width"]), float(head["height"])
    return RecognizedPage(int(head["page"]), *size, text.decode(), PackedWords(words, *size))


def pack_recognized(pages: Mapping[int, RecognizedPage]) -> bytes:
    """Pages on their way to the reader of their document."""
    packed = [pack_page(page) for page in pages.values()]
    heads = [head | {"sizes": [len(text), len(words)]} for head, text, words in packed]
    body = b"".join(text + words for _, text, words in packed)
    return json.dumps(heads).encode() + b"\n" + body


def unpack_recognized(data: bytes) -> dict[int, RecognizedPage]:
    first, _, body = data.partition(b"\n")
    pages: dict[int, RecognizedPage] = {}
    position = 0
    for head in json.loads(first):
        middle = position + head["sizes"][0]
        end = middle + head["sizes"][1]
        pages[head["page"]] = unpack_page(head, body[position:middle], body[middle:end])
        position = end
    return pages


def mean_confidence(pages: Mapping[int, RecognizedPage]) -> float | None:
    """Over all words; None where there are none."""
    known = [word.confidence for page in pages.values() for word in page.words if word.confidence is not None]
    return sum(known) / len(known) if known else None


def describe(pages: Mapping[int, RecognizedPage], assembly: Assembly) -> None:
    """Say in the document's metadata that pages were recognized and how surely, and warn where it is poor."""
    mean = mean_confidence(pages)
    if mean is None:
        return
    unsure = sum(word.confidence is not None and word.confidence < UNSURE for p in pages.values() for word in p.words)
    assembly.describe(recognized_pages=sorted(pages), confidence=round(mean, 3), unsure_words=unsure)
    poor = [number for number, page in sorted(pages.items()) if (mean_confidence({0: page}) or 1) < POOR]
    if poor:
        shown = ", ".join(map(str, poor[:20])) + (f" and {len(poor) - 20} more" if len(poor) > 20 else "")
        assembly.warn(
            f"Text recognition is unsure of {'page' if len(poor) == 1 else 'pages'} {shown}: a mean confidence below"
            f" {POOR:.0%}. Compare the text with the page, or upload a sharper scan."
        )
