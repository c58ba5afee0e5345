"""CSV and TSV as tables: the delimiter is found from the content, titles stand above the header."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence

from ragd.readers import signatures as types
from ragd.readers.assembly import Assembly
from ragd.readers.office.grids import Row, bars, begins_table, columns_of, count_captions, rule
from ragd.readers.text.markup import cell
from ragd.readers.text.plain import decode_into
from ragd.readers.types import SheetLines, Source

DELIMITERS = (",", ";", "\t", "|")
SAMPLE_ROWS = 50
FIELD_CHARS = 10_000_000
LINES_PER_PIECE = 5000
STATED = re.compile(r"\ufeff?\"?sep=([^\r\n\"])\"?[ \t,;]*(?:\r\n?|\n)", re.IGNORECASE)


def read(source: Source, assembly: Assembly) -> None:
    """Add the rows as Markdown tables, each under its titles; one of a single column becomes plain lines."""
    text = decode_into(source.data, assembly)
    if stated := STATED.match(text):  # the line that tells Excel the delimiter is no row of its sheet
        text = text[stated.end() :]
        delimiter = stated[1]
    else:
        delimiter = "\t" if source.media_type == types.TSV and "\t" in text else find_delimiter(text)
    assembly.describe(delimiter=delimiter)
    csv.field_size_limit(FIELD_CHARS)
    writer = _Writer(assembly)
    titles: list[Row] = []
    for block, is_first in _blocks(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)):
        if not writer.width and len(titles) < LINES_PER_PIECE and all(len(row.used) < 2 for row in block):
            titles += block
            continue
        writer.add([*titles, *block], is_first=is_first or bool(titles))
        titles = []
    writer.add(titles, is_first=True)
    writer.flush()


def _blocks(rows: Iterable[Sequence[str]]) -> Iterator[tuple[list[Row], bool]]:
    """The rows between empty ones, in pieces; True with the first piece of a block."""
    block: list[Row] = []
    is_first = True
    for number, values in enumerate(rows, 1):
        used = tuple(index for index, value in enumerate(values) if value and not value.isspace())
        if block and (not used or len(block) >= LINES_PER_PIECE):
            yield block, is_first
            block, is_first = [], not used
        if used:
            block.append(Row(number, values, used))
    if block:
        yield block, is_first


class _Writer:
    """Writes blocks of rows. width: of the open table, 0 before the first one."""

    def __init__(self, assembly: Assembly) -> None:
        self.width = 0
        self._assembly = assembly
        self._columns: set[int] = set()
        self._last = Row(0, [], ())
        self._lines: list[str] = []
        self._places: list[SheetLines] = []
        self._joint = "\n"

    def add(self, block: Sequence[Row], *, is_first: bool) -> None:
        own = set(columns_of(block))
        if is_first and own and (not self.width or begins_table(block, own, self._columns, self._last)):
            block = self._begin(block, len(own))
        self._columns |= own
        for row in block:
            self._write(row)
            self._last = row
        if len(self._lines) >= LINES_PER_PIECE:
            self.flush()

    def _begin(self, block: Sequence[Row], width: int) -> Sequence[Row]:
        """Write the titles and the header of a table; returns the other rows."""
        if self.width:
            self.flush("\n\n")
        count = count_captions(block, width)
        self.width, self._columns = 1, set()
        for row in block[:count]:
            self._write(Row(row.number, [" ".join(filter(None, map(str.strip, row.values)))], (0,)))
        if count:
            self.flush("\n\n")
        columns = columns_of(block[count:])
        if len(columns) > 1:
            self.width = columns[-1] + 1
            self._write(block[count])
            self._lines.append(rule(self.width))
            count += 1
        return block[count:]

    def _write(self, row: Row) -> None:
        cells = [cell(value) for value in row.values[: max(self.width, row.used[-1] + 1)]]
        if self.width == 1 and len(row.used) == 1:
            self._note(row.number, [row.used[0] + 1])
            self._lines.append(cells[row.used[0]].replace("\\|", "|"))
            return
        self._note(row.number, range(1, max(self.width, len(cells)) + 1))
        self._lines.append(bars(cells + [""] * (self.width - len(cells))))

    def _note(self, number: int, columns: Sequence[int]) -> None:
        """A line that shows no row, or does not follow the one before, begins another entry."""
        last = self._places[-1] if self._places else None
        if last is not None and last.line + len(last.rows) == len(self._lines) and last.columns == columns:
            last.rows.append(number)  # type: ignore[attr-defined]
        else:
            self._places.append(SheetLines(len(self._lines), "", columns, [number]))

    def flush(self, joint: str = "\n") -> None:
        """Hand the lines over. joint: what stands between them and the next ones."""
        if self._lines:
            self._assembly.add("\n".join(self._lines), joint=self._joint, rows=self._places)
        self._lines, self._places, self._joint = [], [], joint


def find_delimiter(text: str) -> str:
    """The delimiter that cuts the first rows into the most equal, and then the most, fields; "," when none does."""
    best, best_score = ",", (0.0, 0)
    sample = io.StringIO(text[:200_000], newline="").readlines()[:SAMPLE_ROWS]
    for delimiter in DELIMITERS:
        try:
            widths = [len(row) for row in csv.reader(sample, delimiter=delimiter) if row]
        except csv.Error:
            continue
        if not widths or max(widths) < 2:
            continue
        usual = max(set(widths), key=lambda width: (widths.count(width), width))
        if usual > 1 and (score := (widths.count(usual) / len(widths), usual)) > best_score:
            best, best_score = delimiter, score
    return best
