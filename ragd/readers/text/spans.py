"""Tables whose cells span rows and columns: each value in every place that its cell covers, titles above the header."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from ragd.readers.text.markup import table

COLUMNS_MAX = 1000  # of one cell, as browsers have it
ROWS_MAX = 65_534
HEADER_ROWS_MAX = 4
# What repeated values may add to a table: this, and so many times the characters of its cells.
REPEATED_CHARS, REPEATED_TIMES = 20_000, 20
# A table with more places than this, and so many times more than cells, is no table: it becomes a line for each row.
PLACES_MAX, PLACES_PER_CELL = 1_000_000, 20
NUMBER = re.compile(r"[\s\d.,:%+\-/\u20ac$\u00a3()]*")


@dataclass(slots=True)
class SpanningCell:
    """A cell and how many columns and rows it covers. rows: 0 up to the end of its group.

    continues: the cell goes on with the one above it, and its own text is not shown.
    """

    text: str = ""
    columns: int = 1
    rows: int = 1
    continues: bool = False


@dataclass(slots=True)
class TableRow:
    """group: no cell reaches from one group of rows into another. is_header, is_foot: the file marks it as such."""

    cells: list[SpanningCell] = field(default_factory=list)
    group: int = 0
    is_header: bool = False
    is_foot: bool = False


@dataclass(slots=True)
class _Placed:
    """A cell's text over the columns from start up to stop, in one row. rows: how many of them are still to come."""

    text: str
    start: int
    stop: int
    rows: int
    is_first: bool = True  # the cell begins in this row
    columns: int = 1  # of those that hold a value of their own
    begun: _Placed | None = None  # the cell above that this one goes on with


def read_span(value: str | None, most: int, least: int = 1) -> int:
    """The number of an attribute such as colspan; 1 for none, kept between least and most."""
    stated = (value or "").strip()
    return max(least, min(most, int(stated))) if stated.isdecimal() and len(stated) < 9 else 1


def spanned_blocks(rows: Sequence[TableRow]) -> list[str]:
    """The titles above the table as lines, then the table in Markdown, under a header of one row."""
    room = REPEATED_CHARS + REPEATED_TIMES * sum(len(cell.text) + 1 for row in rows for cell in row.cells)
    placed = _place(rows, room)
    columns = sorted({cell.start for row in placed for cell in row if cell.text and cell.is_first})
    places = len(rows) * len(columns)
    if places > PLACES_MAX and places > PLACES_PER_CELL * sum(len(row.cells) for row in rows):
        return ["\n".join(" ".join(cell.text for cell in row.cells if cell.text) for row in rows)]
    _narrow(placed, columns, room)
    titles: list[str] = []
    while len(placed) - len(titles) > 2 and (title := _title(placed[len(titles)], columns)):
        titles.append(title)
    placed = placed[len(titles) :]
    count = _header_rows(placed, columns, _marked_rows(rows[len(titles) :], placed, columns))
    grid = [_values(row, columns) for row in placed]
    if count > 1:
        grid[:count] = [join_header(grid[:count])]
    block = table([value.replace("\\|", "|") for value in row] for row in grid)
    return [*titles, *([block] if block else [])]


def join_header(rows: Sequence[Sequence[str]]) -> list[str]:
    """Header rows as one: the different values of each column, from top to bottom."""
    return [" ".join(dict.fromkeys(value for value in column if value)) for column in zip(*rows, strict=True)]


def is_text(value: object) -> bool:
    """Return True for a value that can name a column: words, no number or date."""
    return isinstance(value, str) and not NUMBER.fullmatch(value)


def _narrow(grid: Sequence[Sequence[_Placed]], columns: Sequence[int], room: int) -> None:
    """Count the columns of each cell that stay; all end behind their first where that would repeat too much."""
    for cell in (cell for row in grid for cell in row):
        covered = bisect_left(columns, cell.stop) - bisect_left(columns, cell.start)
        room -= (covered - 1) * (len(cell.text) + 1)
        cell.columns = covered
    if room < 0:
        for cell in (cell for row in grid for cell in row):
            cell.stop, cell.columns = cell.start + 1, 1


def _place(rows: Sequence[TableRow], room: int) -> list[list[_Placed]]:
    """The cells of each row by the columns that they cover. room: how many characters may be repeated."""
    grid: list[list[_Placed]] = []
    above: list[_Placed] = []
    group = 0
    for row in rows:
        if row.group != group or room < 0:
            above = []
        group = row.group
        line = [_Placed(cell.text, cell.start, cell.stop, cell.rows - 1, False) for cell in above if cell.rows > 1]
        taken = iter(line[:])
        waiting = next(taken, None)
        column = 0
        for cell in row.cells:
            while waiting is not None and waiting.start <= column:
                column = max(column, waiting.stop)
                waiting = next(taken, None)
            stop = column + cell.columns
            over = next((each for each in above if each.start == column), None) if cell.continues else None
            if over is not None:
                begun = over.begun or over
                begun.rows += 1
                line.append(_Placed(over.text, column, over.stop, 1, False, begun=begun))
            else:
                line.append(_Placed(cell.text, column, stop, cell.rows or ROWS_MAX))
            column = stop
        line.sort(key=lambda each: each.start)
        room -= sum(len(each.text) + 1 for each in line if not each.is_first)
        grid.append(line)
        above = line
    return grid


def _values(row: Sequence[_Placed], columns: Sequence[int]) -> list[str]:
    values = dict.fromkeys(columns, "")
    index = 0
    for cell in row:
        while index < len(columns) and columns[index] < cell.start:
            index += 1
        at = index
        while at < len(columns) and columns[at] < cell.stop:
            values[columns[at]] = values[columns[at]] or cell.text
            at += 1
    return list(values.values())


def _title(row: Sequence[_Placed], columns: Sequence[int]) -> str:
    """The text of a row whose only value stands first or over all columns; "" for any other row."""
    filled = [cell for cell in row if cell.text]
    if len(columns) < 2 or len(filled) != 1 or filled[0].rows > 1 or filled[0].start > columns[0]:
        return ""
    if len(columns) == 2 and len(row) > 1:  # a label whose value is missing
        return ""
    return filled[0].text.replace("\\|", "|")


def _marked_rows(rows: Sequence[TableRow], grid: Sequence[Sequence[_Placed]], columns: Sequence[int]) -> int:
    """How many rows the file marks as the header, up to the name of a group of rows; 0 where it marks all of them."""
    ends = (at for at, row in enumerate(rows) if not row.is_header or (at and _title(grid[at], columns)))
    return next(ends, 0)


def _header_rows(grid: Sequence[Sequence[_Placed]], columns: Sequence[int], marked: int) -> int:
    """How many rows the header has: as marked, else as far as cells of its first row, one of them wide, reach down."""
    if 1 < marked <= HEADER_ROWS_MAX and marked < len(grid):
        return marked
    if marked or len(grid) < 3:
        return 1
    cells = [cell for cell in grid[0] if cell.text]
    if not any(cell.columns > 1 for cell in cells) or _title(grid[1], columns):
        return 1
    deep = {cell.rows for cell in cells if cell.columns == 1}
    if len(deep) == 1 and 1 < (depth := deep.pop()) <= HEADER_ROWS_MAX and depth < len(grid):
        return depth
    below = _values(grid[1], columns)
    return 2 if all(map(is_text, below)) and not any(map(is_text, _values(grid[2], columns)[1:])) else 1
