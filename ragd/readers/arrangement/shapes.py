"""What a page is made of before and after it is arranged.

All boxes are (x0, y0, x1, y1) in points from the top left corner of the page, with x0 <= x1 and y0 <= y1.

Words to segments: what stands side by side in one line without a wide gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

SAME_LINE = 0.5  # of the smaller height, by which the boxes of words in one line overlap


class PlacedWord(NamedTuple):
    """A word on the page. gap: what stands between it and the word before in the order it came in.

    gap is "" where the word goes on (the rest of a hyphenated one, or the next sign of a script without blanks); one
    with a line feed ends a line; None is not known, as for words of OCR.
    """

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    gap: str | None = None


class Rule(NamedTuple):
    """A line that is drawn on the page, along one of the axes, or a filled box as thin as one."""

    x0: float
    y0: float
    x1: float
    y1: float


class Box(NamedTuple):
    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(slots=True)
class Segment:
    """Words side by side in one line, by their number. table: it stands for a whole table, and has no words."""

    words: list[int]
    x0: float
    y0: float
    x1: float
    y1: float
    table: Table | None = None

    @property
    def middle(self) -> float:
        return (self.y0 + self.y1) / 2

    def shares_line(self, other: Segment) -> bool:
        """Whether the two overlap in height by half of the lower one."""
        overlap = min(self.y1, other.y1) - max(self.y0, other.y0)
        return overlap > SAME_LINE * min(self.y1 - self.y0, other.y1 - other.y0)


@dataclass(slots=True)
class Cell:
    """A cell of a table: its words by number, line by line. box: its ruled rectangle, or that of its words."""

    lines: list[list[int]]
    box: Box


@dataclass(slots=True)
class Table:
    """Rows of cells, equally many in each. A cell over several places stands in the first.

    title: the lines of what stands in a first row over all columns.
    """

    rows: list[list[Cell]]
    box: Box
    title: list[list[int]] = field(default_factory=list)

    def words(self) -> Iterable[int]:
        yield from (word for line in self.title for word in line)
        yield from (word for row in self.rows for cell in row for line in cell.lines for word in line)


@dataclass(slots=True)
class TextBlock:
    """Lines of words, by number, in the order in which they are read."""

    lines: list[list[int]] = field(default_factory=list)

    def words(self) -> Iterable[int]:
        return (word for line in self.lines for word in line)


Block = TextBlock | Table


def bounds(boxes: Sequence[PlacedWord | Segment | Rule | Box]) -> Box:
    """The smallest box around others. ValueError when there are none."""
    return Box(
        min(box.x0 for box in boxes),
        min(box.y0 for box in boxes),
        max(box.x1 for box in boxes),
        max(box.y1 for box in boxes),
    )


WIDE_GAP = 1.0  # of a word's height: wider gaps part columns and cells
BACK_STEP = 0.6  # of a word's height, by which a word may begin before the end of the one before


def join_segments(words: Sequence[PlacedWord], numbers: Iterable[int], wide: float = WIDE_GAP) -> list[Segment]:
    """Words that follow each other both in the order given and along a line."""
    result: list[Segment] = []
    before = -2
    x0 = y0 = x1 = y1 = 0.0
    for number in numbers:
        _, left, top, right, bottom, gap = words[number]
        joins = False
        if number == before + 1 and (gap is None or "\n" not in gap):
            high, low = bottom - top, y1 - y0
            overlap = (y1 if y1 < bottom else bottom) - (y0 if y0 > top else top)
            if overlap > SAME_LINE * (low if low < high else high):
                size = high if high > low else low
                joins = -BACK_STEP * size <= left - x1 <= wide * size or gap == ""
        if joins:
            last = result[-1]
            last.words.append(number)
            if left < x0:
                last.x0 = x0 = left
            if top < y0:
                last.y0 = y0 = top
            if right > x1:
                last.x1 = x1 = right
            if bottom > y1:
                last.y1 = y1 = bottom
        else:
            x0, y0, x1, y1 = left, top, right, bottom
            result.append(Segment([number], x0, y0, x1, y1))
        before = number
    return result


def rows_of(segments: Iterable[Segment]) -> list[list[Segment]]:
    """Segments that share a line, from top to bottom, each row from left to right.

    A segment joins the row whose first segment it shares a line with, so that rows do not grow without end.
    """
    rows: list[list[Segment]] = []
    for segment in sorted(segments, key=lambda each: (each.middle, each.x0)):
        for row in rows[:-4:-1]:
            if row[0].shares_line(segment):
                row.append(segment)
                break
        else:
            rows.append([segment])
    for row in rows:
        row.sort(key=lambda each: each.x0)
    return rows
