"""XLSX, XLSB, XLS and ODS through calamine: each sheet as a table; comments and text boxes of XLSX beside it.

What the XML of a sheet says besides its values: percentages, times, links, formulas without a value, hidden rows.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from itertools import islice, product
from typing import Any

import python_calamine

from ragd.readers import signatures as types
from ragd.readers.archives import Package
from ragd.readers.assembly import Assembly
from ragd.readers.legacy import tika
from ragd.readers.office.formats import (
    PERCENT,
    SECONDS,
    NumberFormat,
    format_value,
    parse_format,
    show_elapsed,
    show_number,
)
from ragd.readers.office.grids import is_value, lay_grid
from ragd.readers.office.ooxml import (
    Parts,
    attach_embedded,
    main_part,
    read_beside_cells,
    read_core_properties,
    related,
    relationships,
)
from ragd.readers.office.opendocument import check_not_encrypted, read_properties
from ragd.readers.office.word import SCRIPTS, drawn_lines
from ragd.readers.text.markup import LEVEL, heading, squeeze, write_scripts
from ragd.readers.text.spans import read_span
from ragd.readers.text.xmldata import Attributes, collect_text, elements, stream_xml
from ragd.readers.types import ParseError, SheetLines, Source

BUILT_IN_FORMATS = dict.fromkeys(("9", "10"), NumberFormat(PERCENT))
ODS_FORMATS = {"percentage": NumberFormat(PERCENT), "time": NumberFormat(SECONDS)}
ROW_LIMIT, COLUMN_LIMIT = 1_048_576, 16_384
LINKS_MAX = 10_000
# A formula whose cell ends without a value, a link, or a hidden row or column: else a sheet need not be read twice.
TELLING = re.compile(
    rb"(?:</(?:\w+:)?f>|<(?:\w+:)?f\b[^<>]*/>)\s*(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</(?:\w+:)?v>)?\s*</(?:\w+:)?c>"
    rb"|HYPERLINK|<(?:\w+:)?hyperlink\b|\bhidden="
)
TELLING_ODS = re.compile(rb"-spanned=|<text:a\b|:value-type=\"(?:percentage|time|currency)\"")
LINK_FORMULA = re.compile(r'HYPERLINK\(\s*"((?:[^"]|"")+)"', re.IGNORECASE)
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)

Cell = tuple[int, int]


@dataclass(slots=True)
class SheetFacts:
    """formats: how cells show their numbers. formulas: of cells without a value, "" where another cell states it.

    links: the address of a cell's link. merges: first and last cell of merged ones, of ODS. scripts: cells' text with
    raised and lowered signs as it is written in one line, by the text without. hidden_rows, hidden_columns: how many,
    of rows those with a cell.
    """

    formats: dict[Cell, NumberFormat] = field(default_factory=dict)
    formulas: dict[Cell, str] = field(default_factory=dict)
    links: dict[Cell, str] = field(default_factory=dict)
    merges: list[tuple[Cell, Cell]] = field(default_factory=list)
    scripts: Mapping[str, str] = field(default_factory=dict)
    hidden_rows: int = 0
    hidden_columns: int = 0


def read_facts(package: Parts, part: str, styles: Mapping[str, NumberFormat]) -> SheetFacts:
    """Read the facts of one sheet. Positions count from 0. Raises ParseError."""
    data = package.read(part)
    reading = _Reading(styles)
    if styles or TELLING.search(data):
        stream_xml(data, reading.start, reading.end, reading.text)
    facts = reading.facts
    relations = relationships(package, part)
    for cell, relation in reading.relations.items():
        if relation in relations and relations[relation].external:
            facts.links[cell] = relations[relation].target
    facts.links = {cell: link for cell, link in facts.links.items() if ADDRESS.match(link)}
    return facts


class _Reading:
    """Handlers for stream_xml over a sheet."""

    def __init__(self, styles: Mapping[str, NumberFormat]) -> None:
        self.facts = SheetFacts()
        self.relations: dict[Cell, str] = {}
        self._styles = styles
        self._cell: Attributes = {}
        self._inside = ""
        self._formula: str | None = None
        self._has_value = False
        self._row_is_hidden = False

    def start(self, name: str, attributes: Attributes) -> None:
        self._inside = name
        if name == "c":
            self._cell, self._formula, self._has_value = attributes, None, False
            self.facts.hidden_rows += self._row_is_hidden
            self._row_is_hidden = False
            shown = self._styles.get(attributes.get("s", ""))
            if shown and (at := position_of(attributes.get("r", ""))):
                self.facts.formats[at] = shown
        elif name == "f":
            self._formula = ""
        elif name == "row":
            self._row_is_hidden = attributes.get("hidden") in ("1", "true")
        elif name == "col" and attributes.get("hidden") in ("1", "true"):
            first, last = attributes.get("min", ""), attributes.get("max", "")
            if first.isdecimal() and last.isdecimal() and int(last) < COLUMN_LIMIT:
                self.facts.hidden_columns += max(0, int(last) - int(first) + 1)
        elif name == "hyperlink" and len(self.relations) < LINKS_MAX and "r:id" in attributes:
            if at := position_of(attributes.get("ref", "").partition(":")[0]):
                self.relations[at] = attributes["r:id"]

    def end(self, name: str) -> None:
        self._inside = ""
        if name == "c" and self._formula is not None:
            at = position_of(self._cell.get("r", ""))
            if at is not None and not self._has_value and self._cell.get("t") != "str":
                self.facts.formulas[at] = f"={self._formula}" if self._formula else ""
            if at is not None and len(self.facts.links) < LINKS_MAX and (link := LINK_FORMULA.search(self._formula)):
                self.facts.links[at] = link[1].replace('""', '"')

    def text(self, piece: str) -> None:
        if self._inside == "f":
            self._formula = (self._formula or "") + piece
        elif self._inside in ("v", "t") and piece.strip():
            self._has_value = True


def read_scripts(package: Parts, workbook: str, sheets: Iterable[str]) -> dict[str, str]:
    """Text with raised or lowered signs as it is written in one line, by the text that calamine gives for it.

    A text that stands in one cell with such signs and in another one without is left out. Raises ParseError.
    """
    written: dict[str, set[str]] = {}
    for part in [*related(package, workbook, "sharedStrings"), *sheets]:
        if b"vertAlign" in (data := package.read(part)):
            reading = _ScriptReading(written)
            stream_xml(data, reading.start, reading.end, reading.text)
    return {plain: min(texts) for plain, texts in written.items() if len(texts) == 1 and plain not in texts}


class _ScriptReading:
    """Handlers for stream_xml over shared strings or a sheet; written: plain text -> how its cells write it."""

    def __init__(self, written: dict[str, set[str]]) -> None:
        self._written = written
        self._inside = self._sign = self._plain = self._marked = ""
        self._is_spoken = False

    def start(self, name: str, attributes: Attributes) -> None:
        self._inside = name
        if name in ("si", "is"):
            self._plain = self._marked = ""
        elif name == "r":
            self._sign = ""
        elif name == "vertAlign":
            self._sign = SCRIPTS.get(attributes.get("val", ""), "")
        elif name == "rPh":
            self._is_spoken = True

    def end(self, name: str) -> None:
        self._inside = ""
        if name in ("si", "is"):
            self._written.setdefault(self._plain, set()).add(write_scripts(self._marked))
        elif name == "r":
            self._sign = ""
        elif name == "rPh":
            self._is_spoken = False

    def text(self, piece: str) -> None:
        if self._inside == "t" and not self._is_spoken:
            self._plain += piece
            self._marked += f"{self._sign}{piece}{LEVEL}" if self._sign else piece


def read_ods_facts(package: Parts) -> dict[str, SheetFacts]:
    """Merged cells, formats and links of an ODS file by the names of its sheets. Raises ParseError."""
    data = package.read("content.xml") if "content.xml" in package else b""
    reading = _OdsReading()
    if TELLING_ODS.search(data):
        stream_xml(data, reading.start, doctype_allowed=True)
    return reading.sheets


class _OdsReading:
    """Handlers for stream_xml over content.xml; counts rows and columns as they repeat."""

    def __init__(self) -> None:
        self.sheets: dict[str, SheetFacts] = {}
        self._facts = SheetFacts()
        self._row = self._next_row = self._column = self._next_column = 0

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "table":
            self._facts = self.sheets.setdefault(attributes.get("name", ""), SheetFacts())
            self._next_row = 0
        elif name == "table-row":
            self._row, self._next_column = self._next_row, 0
            self._next_row += read_span(attributes.get("number-rows-repeated"), ROW_LIMIT)
        elif name in ("table-cell", "covered-table-cell"):
            self._column = self._next_column
            self._next_column += read_span(attributes.get("number-columns-repeated"), COLUMN_LIMIT)
            columns = read_span(attributes.get("number-columns-spanned"), COLUMN_LIMIT)
            rows = read_span(attributes.get("number-rows-spanned"), ROW_LIMIT)
            if columns > 1 or rows > 1:
                corner = (self._row, self._column)
                self._facts.merges.append((corner, (corner[0] + rows - 1, corner[1] + columns - 1)))
            shown = ODS_FORMATS.get(attributes.get("value-type", ""))
            if attributes.get("value-type") == "currency" and attributes.get("currency"):
                shown = NumberFormat(after=f" {attributes['currency']}")
            if shown:
                repeated = product(range(self._row, self._next_row), range(self._column, self._next_column))
                room = CELLS_MAX - len(self._facts.formats)
                self._facts.formats.update(dict.fromkeys(islice(repeated, max(0, room)), shown))
        elif name == "a" and len(self._facts.links) < LINKS_MAX and ADDRESS.match(link := attributes.get("href", "")):
            self._facts.links[self._row, self._column] = link


def number_styles(package: Parts, workbook: str) -> dict[str, NumberFormat]:
    """The formats of cell styles by the styles' numbers, of those that show more than a value."""
    result: dict[str, NumberFormat] = {}
    for part in related(package, workbook, "styles"):
        formats: dict[str, NumberFormat | None] = {**BUILT_IN_FORMATS}
        count = 0
        inside = False

        def start(name: str, attributes: Attributes, formats: dict[str, NumberFormat | None] = formats) -> None:
            nonlocal count, inside
            if name == "numFmt":
                formats[attributes.get("numFmtId", "")] = parse_format(attributes.get("formatCode", ""))
            elif name == "cellXfs":
                inside = True
            elif name == "xf" and inside:
                if shown := formats.get(attributes.get("numFmtId", "")):
                    result[str(count)] = shown
                count += 1

        def end(name: str) -> None:
            nonlocal inside
            inside = inside and name != "cellXfs"

        stream_xml(package.read(part), start, end)
    return result


def position_of(reference: str) -> Cell | None:
    """(row, column) of a reference such as "AB12"; None for anything else."""
    letters = reference.rstrip("0123456789")
    digits = reference[len(letters) :]
    if not digits or len(digits) > 7 or not letters.isascii() or not letters.isalpha() or len(letters) > 3:
        return None
    column = 0
    for letter in letters.upper():
        column = 26 * column + ord(letter) - ord("A") + 1
    return (int(digits) - 1, column - 1) if column <= COLUMN_LIMIT else None


MAIN = "xl/workbook.xml"
DRAWING = re.compile(r"xl/drawings/drawing\d+\.xml")
NEARLY_SECOND_US = 998_000
# How many rows, and how many cells, formulas without a value may add to a sheet's values.
CELLS_MAX = 1_000_000
ZIPPED = frozenset({types.XLSX, types.XLSB, types.ODS})


@dataclass(frozen=True, slots=True)
class Beside:
    """What a sheet's cells do not tell: its comments and text boxes, and what its XML says of the cells."""

    lines: list[str] = field(default_factory=list)
    facts: SheetFacts = field(default_factory=SheetFacts)


def read(source: Source, assembly: Assembly) -> None:
    """Add every sheet that holds a value, as a heading and a table, labelled "sheet NAME". Raises ParseError."""
    package = Package(source.data, source.limits, source.media_type) if source.media_type in ZIPPED else None
    beside: dict[str, Beside] = {}
    if package is not None and source.media_type == types.ODS:
        check_not_encrypted(package)
        read_properties(package, assembly)
        beside = {name: Beside(facts=facts) for name, facts in read_ods_facts(package).items()}
    if package is not None and source.media_type == types.XLSX:
        read_core_properties(package, assembly)
        beside = _beside_sheets(package, assembly)
    try:
        workbook = _open(source)
    except ParseError as error:
        if source.media_type != types.XLS:
            raise
        tika.read_instead(source, assembly, error)
        return
    for metadata in workbook.sheets_metadata:
        beside_sheet = beside.get(metadata.name) or Beside()
        if metadata.typ != python_calamine.SheetTypeEnum.WorkSheet:
            assembly.add("\n".join([heading(metadata.name, 2), *beside_sheet.lines]), f"sheet {metadata.name}")
            continue
        _add_sheet(workbook, metadata.name, beside_sheet, assembly)
    hidden = [
        each.name for each in workbook.sheets_metadata if each.visible != python_calamine.SheetVisibleEnum.Visible
    ]
    if hidden:
        assembly.warn(f"{len(hidden)} sheets are hidden and are read: {', '.join(map(repr, hidden[:5]))}.")
    workbook.close()
    if package is not None and source.media_type != types.ODS:
        if source.media_type == types.XLSB:
            _add_drawings(package, assembly)
        attach_embedded(package, assembly)
    if source.media_type == types.XLS and not assembly.length:  # text boxes, Excel before 5
        tika.add_extract(tika.extract(source.data, source.limits), assembly)
    if source.media_type == types.XLS:
        read_beside_cells(source.data, assembly)


def _open(source: Source) -> python_calamine.CalamineWorkbook:
    try:
        return python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(source.data))
    except python_calamine.PasswordError as error:
        raise ParseError(
            "encrypted", "The workbook is locked by a password. Save a copy without it and upload that."
        ) from error
    except BaseException as error:
        raise _unreadable(error) from error


def _unreadable(error: BaseException) -> BaseException:
    """A Rust panic is no Exception, but says no more than that the file is damaged."""
    if isinstance(error, MemoryError | KeyboardInterrupt | SystemExit):
        return error
    return ParseError(
        "broken",
        f"The workbook could not be read ({str(error)[:200]}). Open it in its own program, save it again as XLSX, and"
        " upload that.",
    )


def _add_sheet(workbook: python_calamine.CalamineWorkbook, name: str, beside: Beside, assembly: Assembly) -> None:
    try:
        sheet = workbook.get_sheet_by_name(name)
        rows = sheet.to_python(skip_empty_area=True)
        merges = [*(sheet.merged_cell_ranges or ()), *beside.facts.merges]
    except BaseException as error:
        failure = _unreadable(error)
        if not isinstance(failure, ParseError):
            raise failure from error
        assembly.leave_out(f"Sheet {name!r} could not be read ({str(error)[:200]}).")
        return
    start, facts = sheet.start or (0, 0), beside.facts
    _show_formats(rows, start, facts.formats)
    if facts.scripts:
        rows = [[facts.scripts.get(value, value) if isinstance(value, str) else value for value in row] for row in rows]
    rows, start = _show_formulas(rows, start, facts.formulas)
    lines, places = lay_grid(rows, name, show, start, merges)
    further = [*beside.lines, *_link_lines(rows, start, facts.links)]
    if lines or further:
        add_sheet(assembly, name, lines, places, further)
    _tell_of_sheet(name, facts, assembly)


def _show_formulas(rows: list[list[Any]], start: Cell, formulas: Mapping[Cell, str]) -> tuple[list[list[Any]], Cell]:
    """The rows with the formulas that have no value, and their first cell, which may be another one then."""
    if not formulas:
        return rows, start
    if not rows:
        start = (min(row for row, _ in formulas), min(column for _, column in formulas))
    top, left = (min(start[axis], *(cell[axis] for cell in formulas)) for axis in (0, 1))
    room = CELLS_MAX - (start[1] - left) * len(rows)
    if start[0] - top > CELLS_MAX or room < 0:
        return rows, start
    rows = [[] for _ in range(start[0] - top)] + [[""] * (start[1] - left) + row for row in rows]
    for (row, column), formula in sorted(formulas.items()):
        rows += ([] for _ in range(min(CELLS_MAX, row - top + 1) - len(rows)))
        values: list[Any] = rows[row - top] if row - top < len(rows) else []
        missing = max(0, column - left + 1 - len(values))
        if (room := room - missing) < 0:
            break
        values += [""] * missing
        if not is_value(values[column - left]):
            values[column - left] = formula
    return rows, (top, left)


def _link_lines(rows: Sequence[Sequence[Any]], start: Cell, links: Mapping[Cell, str]) -> list[str]:
    """The address of each link behind what its cell shows, where that is not the address itself."""
    lines = []
    for (row, column), link in sorted(links.items()):
        at, index = row - start[0], column - start[1]
        text = squeeze(show(rows[at][index])) if 0 <= at < len(rows) and 0 <= index < len(rows[at]) else ""
        if link.removeprefix("mailto:").rstrip("/") not in text:
            lines.append(f"Link: {text} {link}" if text else f"Link: {link}")
    return list(dict.fromkeys(lines))


def _tell_of_sheet(name: str, facts: SheetFacts, assembly: Assembly) -> None:
    if count := len(facts.formulas):
        assembly.warn(
            f"Sheet {name!r} has {count:,} formulas without a stored value; they show as formulas or stay empty. Open"
            " the workbook in its own program, save it, and upload it again."
        )
    if facts.hidden_rows or facts.hidden_columns:
        assembly.warn(
            f"Sheet {name!r} hides {facts.hidden_rows:,} rows and {facts.hidden_columns:,} columns; they are read."
        )


def add_sheet(
    assembly: Assembly, name: str, lines: list[str], places: list[SheetLines], further: Sequence[str] = ()
) -> None:
    """Add the lines of a grid under the sheet's name; further: lines that follow them."""
    head = [heading(name, 2), ""] if heading(name, 2) else []
    parts = ("\n".join(head + lines).strip("\n"), "\n".join(further))
    rows = [replace(place, line=place.line + len(head)) for place in places]
    assembly.add("\n\n".join(part for part in parts if part), f"sheet {name}", rows=rows)


def _show_formats(rows: list[list[Any]], start: Cell, formats: Mapping[Cell, NumberFormat]) -> None:
    """Write numbers as their cells show them. start: the cell that the rows begin with."""
    for (row, column), form in formats.items():
        at, position = row - start[0], column - start[1]
        if 0 <= at < len(rows) and 0 <= position < len(rows[at]):
            rows[at][position] = format_value(rows[at][position], form)


def show(value: Any) -> str:
    """A cell's value as people write it: whole numbers without a point, dates in ISO form."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return show_number(value)
    if isinstance(value, datetime):
        moment = _whole_second(value)
        return moment.isoformat(" ") if moment.time() != time() else moment.date().isoformat()
    if isinstance(value, time):
        return value.replace(microsecond=0).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return show_elapsed(value)
    return str(value)


def _whole_second(value: datetime) -> datetime:
    """Without the fraction, which formats hide; a fraction of nearly 1 is what a binary number lacks of the second."""
    if value.microsecond > NEARLY_SECOND_US:
        return value.replace(microsecond=0) + timedelta(seconds=1)
    return value.replace(microsecond=0)


def _beside_sheets(package: Package, assembly: Assembly) -> dict[str, Beside]:
    """Comments, text boxes and formats by sheet name. Damage there costs only them."""
    result: dict[str, Beside] = {}
    try:
        workbook, parts = main_part(package, MAIN), _sheet_parts(package)
        styles, scripts = number_styles(package, workbook), read_scripts(package, workbook, parts.values())
        for name, part in parts.items():
            facts = replace(read_facts(package, part, styles), scripts=scripts)
            result[name] = Beside(_beside_sheet(package, part), facts)
    except ParseError as error:
        if error.kind in ("bomb", "encrypted"):
            raise
        assembly.leave_out(f"Comments and text boxes were left out: {error.message}")
    return result


def _sheet_parts(package: Package) -> dict[str, str]:
    part = main_part(package, MAIN)
    relations = relationships(package, part)
    parts: dict[str, str] = {}
    for _, attributes in elements(package.read(part), "sheet"):
        relation = relations.get(attributes.get("r:id", ""))
        if relation is not None and relation.target in package:
            parts[attributes.get("name", "")] = relation.target
    return parts


def _beside_sheet(package: Package, part: str) -> list[str]:
    lines: list[str] = []
    for name in related(package, part, "comments"):
        texts = collect_text(package.read(name), frozenset({"t"}), frozenset({"comment"}))
        lines.extend(f"Comment: {squeeze(text)}" for text in texts)
    for drawing in related(package, part, "drawing"):
        lines.extend(_drawing_lines(package, drawing))
    return lines


def _add_drawings(package: Package, assembly: Assembly) -> None:
    """The words of the drawings of XLSB, whose sheets are no XML that names them."""
    try:
        drawings = [name for name in package.names if DRAWING.fullmatch(name)]
        lines = [line for name in drawings for line in _drawing_lines(package, name)]
        assembly.add("\n".join(dict.fromkeys(lines)))
    except ParseError as error:
        if error.kind in ("bomb", "encrypted"):
            raise
        assembly.leave_out(f"Text boxes, charts and diagrams were left out: {error.message}")


def _drawing_lines(package: Package, drawing: str) -> list[str]:
    lines = collect_text(package.read(drawing), frozenset({"t"}), frozenset({"p"}))
    for kind in ("chart", "diagramData"):
        for name in related(package, drawing, kind):
            lines.extend(drawn_lines(package.read(name)))
    return [squeeze(line) for line in lines]
