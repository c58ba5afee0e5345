"""XLSX, XLSB, XLS and ODS through calamine: each sheet as a table; comments and text boxes of XLSX beside it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from typing import Any

import python_calamine

from collections_app.parsing import signatures as types
from collections_app.parsing.archives import Package
from collections_app.parsing.assembly import Assembly
from collections_app.parsing.legacy import tika
from collections_app.parsing.office.grids import lay_grid
from collections_app.parsing.office.ooxml import Parts, main_part, read_core_properties, related, relationships
from collections_app.parsing.office.opendocument import check_not_encrypted, read_properties
from collections_app.parsing.office.word import drawn_lines
from collections_app.parsing.text.markup import heading, squeeze
from collections_app.parsing.text.xmlstream import Attributes, collect_text, elements, stream_xml
from collections_app.parsing.types import ParseError, SheetLines, Source

MAIN = "xl/workbook.xml"
# Beyond it a floating-point number no longer holds every whole number.
WHOLE_LIMIT = 2**53
NEARLY_SECOND_US = 998_000
ZIPPED = frozenset({types.XLSX, types.XLSB, types.ODS})
BUILT_IN_PERCENT = frozenset({"9", "10"})
COLUMN_LIMIT = 16_384

Cell = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Beside:
    """What a sheet's cells do not tell: its comments and text boxes, and which cells show percentages."""

    lines: list[str] = field(default_factory=list)
    percents: frozenset[Cell] = frozenset()


def read(source: Source, assembly: Assembly) -> None:
    """Add every sheet that holds a value, as a heading and a table, labelled "sheet NAME". Raises ParseError."""
    package = Package(source.data, source.limits, source.media_type) if source.media_type in ZIPPED else None
    if package is not None and source.media_type == types.ODS:
        check_not_encrypted(package)
        read_properties(package, assembly)
    beside: dict[str, Beside] = {}
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
    workbook.close()
    if source.media_type == types.XLS and not assembly.length:  # text boxes, Excel before 5
        tika.add_extract(tika.extract(source.data, source.limits), assembly)


def _open(source: Source) -> python_calamine.CalamineWorkbook:
    try:
        return python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(source.data))
    except python_calamine.PasswordError as error:
        raise ParseError(
            "encrypted", "The workbook is locked by a password. Save it without one and upload that."
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
    except BaseException as error:
        failure = _unreadable(error)
        if not isinstance(failure, ParseError):
            raise failure from error
        assembly.leave_out(f"Sheet {name!r} could not be read ({str(error)[:200]}).")
        return
    if sheet.start is not None:
        _show_percents(rows, sheet.start, beside.percents)
    lines, places = lay_grid(rows, name, show, sheet.start or (0, 0))
    if lines or beside.lines:
        add_sheet(assembly, name, lines, places, beside.lines)


def add_sheet(
    assembly: Assembly, name: str, lines: list[str], places: list[SheetLines], further: Sequence[str] = ()
) -> None:
    """Add the lines of a grid under the sheet's name; further: lines that follow them."""
    head = [heading(name, 2), ""] if heading(name, 2) else []
    parts = ("\n".join(head + lines).strip("\n"), "\n".join(further))
    rows = [replace(place, line=place.line + len(head)) for place in places]
    assembly.add("\n\n".join(part for part in parts if part), f"sheet {name}", rows=rows)


def _show_percents(rows: list[list[Any]], start: Cell, percents: frozenset[Cell]) -> None:
    """Write the numbers in the cells that show percentages as such. start: the cell that the rows begin with."""
    for row, column in percents:
        at, position = row - start[0], column - start[1]
        if 0 <= at < len(rows) and 0 <= position < len(rows[at]):
            value = rows[at][position]
            if isinstance(value, int | float) and not isinstance(value, bool):
                rows[at][position] = f"{value * 100:.10g}%"


def show(value: Any) -> str:
    """A cell's value as people write it: whole numbers without a point, dates in ISO form."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < WHOLE_LIMIT else f"{value:.15g}"
    if isinstance(value, datetime):
        moment = _whole_second(value)
        return moment.isoformat(" ") if moment.time() != time() else moment.date().isoformat()
    if isinstance(value, time):
        return value.replace(microsecond=0).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    return str(value)


def _whole_second(value: datetime) -> datetime:
    """Without the fraction, which formats hide; a fraction of nearly 1 is what a binary number lacks of the second."""
    if value.microsecond > NEARLY_SECOND_US:
        return value.replace(microsecond=0) + timedelta(seconds=1)
    return value.replace(microsecond=0)


def _beside_sheets(package: Package, assembly: Assembly) -> dict[str, Beside]:
    """Comments, text boxes and percentages by sheet name. Damage there costs only them."""
    result: dict[str, Beside] = {}
    try:
        styles = percent_styles(package, main_part(package, MAIN))
        for name, part in _sheet_parts(package).items():
            result[name] = Beside(_beside_sheet(package, part), percent_cells(package, part, styles))
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


def _drawing_lines(package: Package, drawing: str) -> list[str]:
    lines = collect_text(package.read(drawing), frozenset({"t"}), frozenset({"p"}))
    for kind in ("chart", "diagramData"):
        for name in related(package, drawing, kind):
            lines.extend(drawn_lines(package.read(name)))
    return [squeeze(line) for line in lines]


def percent_styles(package: Parts, workbook: str) -> frozenset[str]:
    """The numbers of the cell styles whose format shows a percent sign."""
    result: set[str] = set()
    for part in related(package, workbook, "styles"):
        formats = set(BUILT_IN_PERCENT)
        count = 0
        inside = False

        def start(name: str, attributes: Attributes, formats: set[str] = formats) -> None:
            nonlocal count, inside
            if name == "numFmt" and "%" in attributes.get("formatCode", ""):
                formats.add(attributes.get("numFmtId", ""))
            elif name == "cellXfs":
                inside = True
            elif name == "xf" and inside:
                if attributes.get("numFmtId") in formats:
                    result.add(str(count))
                count += 1

        def end(name: str) -> None:
            nonlocal inside
            inside = inside and name != "cellXfs"

        stream_xml(package.read(part), start, end)
    return frozenset(result)


def percent_cells(package: Parts, sheet: str, styles: frozenset[str]) -> frozenset[Cell]:
    """(row, column), from 0, of the sheet's cells with one of the styles."""
    cells: set[Cell] = set()

    def start(name: str, attributes: Attributes) -> None:  # of many, so none is gathered but these
        if name == "c" and attributes.get("s") in styles and (position := position_of(attributes.get("r", ""))):
            cells.add(position)

    if styles:
        stream_xml(package.read(sheet), start)
    return frozenset(cells)


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
