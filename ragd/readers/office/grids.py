"""The rows of a sheet as Markdown tables, and which row and columns each line shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ragd.readers.text.markup import cell
from ragd.readers.text.spans import HEADER_ROWS_MAX, REPEATED_CHARS, REPEATED_TIMES, is_text, join_header
from ragd.readers.types import SheetLines

CAPTIONS_MAX = 10
Corner = tuple[int, int]
Merge = tuple[Corner, Corner]


@dataclass(frozen=True, slots=True)
class Row:
    """used: the columns with a value of their own. covered: those that a merged cell reaches beyond its first one."""

    number: int
    values: Sequence[Any]
    used: tuple[int, ...]
    covered: frozenset[int] = frozenset()

    def value(self, index: int) -> Any:
        """The value of a column; "" behind the row's end."""
        return self.values[index] if index < len(self.values) else ""


@dataclass(slots=True)
class Grid:
    """The lines of a sheet so far, and where they come from."""

    sheet: str
    show: Callable[[Any], str]
    first_column: int = 0
    merges: dict[Corner, Corner] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    places: list[SheetLines] = field(default_factory=list)

    def add(self, table: Sequence[Row]) -> None:
        """The captions of a table as plain lines, then its header and rows; one of a single column as plain lines."""
        used = columns_of(table)
        count = count_captions(table, len(used))
        self._part()
        for row in table[:count]:
            text = " ".join(self._texts(row, row.used)).replace("\\|", "|")
            self._place([row], row.used)
            self.lines.append(text)
        table = table[count:]
        used = columns_of(table)
        self._part()
        header = [self._texts(row, used) for row in table[: self._header_rows(table, used)]]
        rows = list(table[len(header) - 1 :])
        texts = [join_header(header), *(self._texts(row, used) for row in rows[1:])]
        if len(used) == 1:
            self._place(rows, used)
            self.lines += [text.replace("\\|", "|") for [text] in texts]
            return
        self._place(rows[:1], used)
        self.lines.append(bars(texts[0]))
        if len(rows) > 1:
            self.lines.append(rule(len(used)))
            self._place(rows[1:], used)
            self.lines += map(bars, texts[1:])

    def _part(self) -> None:
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def _place(self, rows: Sequence[Row], used: Sequence[int]) -> None:
        columns = [self.first_column + index + 1 for index in used]
        self.places.append(SheetLines(len(self.lines), self.sheet, columns, [row.number for row in rows]))

    def _texts(self, row: Row, used: Sequence[int]) -> list[str]:
        return [cell(self.show(row.value(index))) for index in used]

    def _header_rows(self, table: Sequence[Row], used: Sequence[int]) -> int:
        """How many rows the header has: more than one where one of its cells is merged over several of the columns."""
        if len(table) < 3 or not table[0].covered:
            return 1
        number = table[0].number - 1
        ends = {column: self.merges.get((number, self.first_column + column)) for column in table[0].used}
        wide = [
            column
            for column, end in ends.items()
            if end is not None and sum(column <= each <= end[1] - self.first_column for each in used) > 1
        ]
        deep = {end[0] - number + 1 if end else 1 for column, end in ends.items() if column not in wide}
        if not wide or table[1].used == table[0].used[:1]:  # the second row names a group of rows
            return 1
        if len(deep) == 1 and 1 < (depth := deep.pop()) <= min(HEADER_ROWS_MAX, len(table) - 1):
            return depth if table[depth - 1].number == table[0].number + depth - 1 else 1
        below = [table[1].value(index) for index in used]
        return 2 if all(map(is_text, below)) and not all(is_text(table[2].value(index)) for index in used) else 1


def lay_grid(
    rows: Sequence[Sequence[Any]],
    sheet: str,
    show: Callable[[Any], str],
    start: Corner = (0, 0),
    merges: Iterable[Merge] = (),
) -> tuple[list[str], list[SheetLines]]:
    """Lines without empty rows and columns, and where they come from; a table of one column as plain lines.

    start: row and column, from 0, of the first value. merges: corners of merged cells, whose value stands in all that
    they cover. Rows behind an empty one are a table of their own where they begin with a header: two or more different
    texts over a row that holds a number, or other columns than the table before. So are tables side by side with empty
    columns between. Rows with a single value over a header are its caption, plain lines.
    """
    grid = Grid(sheet, show, start[1], dict(merges))
    for table in _tables(_read_rows(rows, start, grid.merges)):
        grid.add(table)
    return grid.lines, grid.places


def bars(texts: Iterable[str]) -> str:
    """Cells as a line of a Markdown table."""
    return "| " + " | ".join(texts) + " |"


def rule(width: int) -> str:
    """The line below the header."""
    return "|" + " --- |" * width


def columns_of(rows: Iterable[Row]) -> list[int]:
    """The columns in which one of the rows has a value of its own."""
    return sorted({index for row in rows for index in row.used})


def is_value(value: Any) -> bool:
    """Return True for anything but an empty cell or blanks."""
    return value not in ("", None) and not (isinstance(value, str) and value.isspace())


def _read_rows(rows: Sequence[Sequence[Any]], start: Corner, merges: dict[Corner, Corner]) -> list[Row]:
    """The rows with a value of their own, in which merged cells carry theirs."""
    used = [tuple(index for index, value in enumerate(values) if is_value(value)) for values in rows]
    covered: dict[int, set[int]] = {}
    if merges:
        room = REPEATED_CHARS + REPEATED_TIMES * sum(map(len, used))
        width = max(map(len, rows), default=0)
        filled = [list(values) for values in rows]
        rows = filled
        for (top, left), (bottom, right) in sorted(merges.items()):
            at, column = top - start[0], left - start[1]
            if not (0 <= at < len(rows) and 0 <= column < len(rows[at]) and is_value(rows[at][column])):
                continue
            stop, end = min(bottom - start[0] + 1, len(rows)), min(right - start[1] + 1, width)
            room -= (stop - at) * (end - column)
            if room < 0:
                break
            for index in range(at, stop):
                filled[index] += [""] * (end - len(filled[index]))
                filled[index][column:end] = [filled[at][column]] * (end - column)
                covered.setdefault(index, set()).update(range(column + (index == at), end))
    none: frozenset[int] = frozenset()
    return [
        Row(start[0] + at + 1, rows[at], own, frozenset(covered[at]) if at in covered else none)
        for at, own in enumerate(used)
        if own
    ]


def _tables(filled: Sequence[Row]) -> list[list[Row]]:
    if not filled:
        return []
    breaks = [at for at, (one, two) in enumerate(pairwise(filled), 1) if two.number != one.number + 1]
    blocks = [list(filled[first:stop]) for first, stop in pairwise([0, *breaks, len(filled)])]
    tables = [blocks[0]]
    columns = set(columns_of(blocks[0]))
    for block in blocks[1:]:
        own = set(columns_of(block))
        if begins_table(block, own, columns, tables[-1][-1]):
            tables.append(block)
            columns = own
        else:
            tables[-1].extend(block)
            columns |= own
    return [part for table in tables for part in _side_by_side(table)]


def begins_table(block: Sequence[Row], own: set[int], columns: set[int], before: Row) -> bool:
    """Return True for rows behind an empty one that begin a table of their own.

    own: their columns. columns: of the table before. before: its last row.
    """
    rest = block[count_captions(block, len(own)) :]
    if len(rest) < 2 or not _is_header(rest[0]):
        return False
    below = {index: is_text(rest[1].values[index]) for index in rest[1].used if index in rest[0].used}
    if not all(below.values()) or any(index in below and not is_text(before.values[index]) for index in before.used):
        return True
    return not own <= columns or len(columns - own) > 1  # one value may be missing from all of them


def count_captions(rows: Sequence[Row], width: int) -> int:
    """How many rows stand over the header: of a single value, or of few above a row of texts in most columns."""
    if width < 2:
        return 0
    count = next((at for at, row in enumerate(rows) if len(row.used) > 1), 0)
    for at in range(count + 1, min(len(rows) - 1, count + CAPTIONS_MAX)):
        if any(2 * len(row.used) > width or row.covered for row in rows[count:at]):
            break
        if 4 * len(rows[at].used) >= 3 * width and _is_header(rows[at]):
            count = at
            break
    return count if len(rows) - count > 1 else 0


def _side_by_side(table: list[Row]) -> list[list[Row]]:
    """The tables that stand beside each other in a table's rows, from left to right."""
    for left, right in pairwise(columns_of(table)):
        if right == left + 1:
            continue
        sides = [_cut(table, 0, right), _cut(table, right, None)]
        if all(map(_stands_alone, sides)) and _differ(*sides, gap=right - left - 1, covers=set(range(left + 1, right))):
            return [part for side in sides for part in _tables(side)]
    return [table]


def _cut(table: Sequence[Row], first: int, stop: int | None) -> list[Row]:
    parts = ((row, tuple(at for at in row.used if first <= at and (stop is None or at < stop))) for row in table)
    return [Row(row.number, row.values, used, row.covered) for row, used in parts if used]


def _stands_alone(side: Sequence[Row]) -> bool:
    width = len(columns_of(side))
    rest = side[count_captions(side, width) :]
    return len(rest) > 1 and width > 1 and len(rest[0].used) == width and _is_header(rest[0])


def _differ(one: Sequence[Row], two: Sequence[Row], *, gap: int, covers: set[int]) -> bool:
    """Whether two sides are two tables, not one with an empty column in it."""
    one, two = (side[count_captions(side, len(columns_of(side))) :] for side in (one, two))
    if any(row.covered & covers for row in [*one, *two]):
        return False
    if gap > 1 or {row.number for row in one} != {row.number for row in two}:
        return True
    keys = [row.value(two[0].used[0]) for row in two[1:]]
    return all(map(is_text, keys)) and len(set(keys)) == len(keys)


def _is_header(row: Row) -> bool:
    texts = [row.values[index] for index in row.used]
    return len(texts) > 1 and all(map(is_text, texts)) and len(set(texts)) == len(texts)
