"""CSV and TSV: one table, its delimiter found from the content."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from collections_app.parsing import signatures as types
from collections_app.parsing.assembly import Assembly
from collections_app.parsing.text.markup import cell
from collections_app.parsing.text.plain import decode_into
from collections_app.parsing.types import SheetLines, Source

DELIMITERS = (",", ";", "\t", "|")
SAMPLE_ROWS = 50
FIELD_CHARS = 10_000_000
LINES_PER_PIECE = 5000


def read(source: Source, assembly: Assembly) -> None:
    """Add the rows as a Markdown table whose first row is the header; one column becomes plain lines."""
    text = decode_into(source.data, assembly)
    delimiter = "\t" if source.media_type == types.TSV and "\t" in text else find_delimiter(text)
    assembly.describe(delimiter=delimiter)
    csv.field_size_limit(FIELD_CHARS)
    lines: list[str] = []
    places: list[SheetLines] = []  # a line that shows no row, or does not follow the one before, begins another
    width = 0
    for number, row in enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), 1):
        cells = [cell(value) for value in row]
        if not any(cells):
            continue
        first = not width
        width = width or len(cells)
        columns = range(1, max(width, len(cells)) + 1)
        _note_row(places, len(lines), number, columns)
        if width == 1 and len(cells) == 1:
            lines.append(cells[0].replace("\\|", "|"))
        else:
            lines.append("| " + " | ".join(cells + [""] * (width - len(cells))) + " |")
            if first:
                lines.append("|" + " --- |" * width)
        if len(lines) >= LINES_PER_PIECE:
            assembly.add("\n".join(lines), joint="\n", rows=places)
            lines.clear()
            places.clear()
    assembly.add("\n".join(lines), joint="\n", rows=places)


def _note_row(places: list[SheetLines], line: int, number: int, columns: Sequence[int]) -> None:
    last = places[-1] if places else None
    if last is not None and last.line + len(last.rows) == line and last.columns == columns:
        last.rows.append(number)  # type: ignore[attr-defined]
    else:
        places.append(SheetLines(line, "", columns, [number]))


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
