"""What a page is made of before and after it is arranged.

All boxes are (x0, y0, x1, y1) in points from the top left corner of the page, with x0 <= x1 and y0 <= y1.
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
