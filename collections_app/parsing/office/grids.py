"""The rows of a sheet as Markdown tables, and which row and columns each line shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from collections_app.parsing.text.markup import cell
from collections_app.parsing.types import SheetLines

NUMBER = re.compile(r"[\s\d.,:%+\-/\u20ac$\u00a3()]*")


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    values: Sequence[Any]
    used: tuple[int, ...]


def lay_grid(
    rows: Sequence[Sequence[Any]], sheet: str, show: Callable[[Any], str], start: tuple[int, int] = (0, 0)
) -> tuple[list[str], list[SheetLines]]:
    """Lines without empty rows and columns, and where they come from; a table of one column as plain lines.

    start: row and column, from 0, of the first value. Rows behind an empty one are a table of their own where they
    begin with a header: two or more different texts over a row that holds a number, or other columns than the table
    before. Rows with a single value over a header are its caption, plain lines.
    """
    lines: list[str] = []
    places: list[SheetLines] = []
    for table in _tables(rows, start[0]):
        if lines:
            lines.append("")
        columns = sorted({index for row in table for index in row.used})
        captions = _captions(table, len(columns))
        for part in (table[:captions], table[captions:]):
            if part and lines and lines[-1]:
                lines.append("")
            used = sorted({index for row in part for index in row.used})
            _lay_part(part, used, sheet, show, start[1], lines, places)
    return lines, places


def _lay_part(
    rows: Sequence[_Row],
    used: Sequence[int],
    sheet: str,
    show: Callable[[Any], str],
    first_column: int,
    lines: list[str],
    places: list[SheetLines],
) -> None:
    columns = [first_column + index + 1 for index in used]
    texts: list[str] = []
    numbers: list[int] = []
    for row in rows:
        values = row.values
        cells = [cell(show(values[index])) if index < len(values) else "" for index in used]
        if any(cells):
            texts.append("| " + " | ".join(cells) + " |" if len(used) > 1 else cells[0].replace("\\|", "|"))
            numbers.append(row.number)
    if len(used) > 1 and len(texts) > 1:
        places.append(SheetLines(len(lines), sheet, columns, numbers[:1]))
        places.append(SheetLines(len(lines) + 2, sheet, columns, numbers[1:]))
        texts.insert(1, "|" + " --- |" * len(used))
    elif texts:
        places.append(SheetLines(len(lines), sheet, columns, numbers))
    lines += texts


def _tables(rows: Sequence[Sequence[Any]], first_row: int) -> list[list[_Row]]:
    filled = [
        _Row(first_row + at + 1, values, used)
        for at, values in enumerate(rows)
        if (used := tuple(index for index, value in enumerate(values) if value not in ("", None)))
    ]
    if not filled:
        return []
    breaks = [at for at, (one, two) in enumerate(pairwise(filled), 1) if two.number != one.number + 1]
    blocks = [filled[first:stop] for first, stop in pairwise([0, *breaks, len(filled)])]
    tables = [blocks[0]]
    columns = {index for row in blocks[0] for index in row.used}
    for block in blocks[1:]:
        own = {index for row in block for index in row.used}
        if _begins_table(block, own, columns):
            tables.append(block)
            columns = own
        else:
            tables[-1].extend(block)
            columns |= own
    return tables


def _begins_table(block: Sequence[_Row], own: set[int], columns: set[int]) -> bool:
    rest = block[_captions(block, len(own)) :]
    if len(rest) < 2 or len(rest[0].used) < 2:
        return False
    texts = [rest[0].values[index] for index in rest[0].used]
    if not all(_is_text(value) for value in texts) or len(set(texts)) < len(texts):
        return False
    return own != columns or any(not _is_text(rest[1].values[index]) for index in rest[1].used)


def _captions(rows: Sequence[_Row], width: int) -> int:
    """How many rows with a single value stand over a row of two or more."""
    if width < 2:
        return 0
    count = next((at for at, row in enumerate(rows) if len(row.used) > 1), 0)
    return count if len(rows) - count > 1 else 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not NUMBER.fullmatch(value)
