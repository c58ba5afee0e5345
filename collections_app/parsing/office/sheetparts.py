"""What the XML of an XLSX sheet says besides its values: percentages, links, formulas without a value, hidden rows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from collections_app.parsing.office.ooxml import Parts, related, relationships
from collections_app.parsing.text.spans import read_span
from collections_app.parsing.text.xmlstream import Attributes, stream_xml

BUILT_IN_PERCENT = frozenset({"9", "10"})
ROW_LIMIT, COLUMN_LIMIT = 1_048_576, 16_384
LINKS_MAX = 10_000
# A formula whose cell ends without a value, a link, or a hidden row or column: else a sheet need not be read twice.
TELLING = re.compile(
    rb"(?:</(?:\w+:)?f>|<(?:\w+:)?f\b[^<>]*/>)\s*(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</(?:\w+:)?v>)?\s*</(?:\w+:)?c>"
    rb"|HYPERLINK|<(?:\w+:)?hyperlink\b|\bhidden="
)
TELLING_ODS = re.compile(rb"-spanned=|<text:a\b")
LINK_FORMULA = re.compile(r'HYPERLINK\(\s*"((?:[^"]|"")+)"', re.IGNORECASE)
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)

Cell = tuple[int, int]


@dataclass(slots=True)
class SheetFacts:
    """percents: cells that show percentages. formulas: of cells without a value, "" where another cell states it.

    links: the address of a cell's link. merges: first and last cell of merged ones, of ODS. hidden_rows,
    hidden_columns: how many, of rows those with a cell.
    """

    percents: set[Cell] = field(default_factory=set)
    formulas: dict[Cell, str] = field(default_factory=dict)
    links: dict[Cell, str] = field(default_factory=dict)
    merges: list[tuple[Cell, Cell]] = field(default_factory=list)
    hidden_rows: int = 0
    hidden_columns: int = 0


def read_facts(package: Parts, part: str, percent_styles: frozenset[str]) -> SheetFacts:
    """Read the facts of one sheet. Positions count from 0. Raises ParseError."""
    data = package.read(part)
    reading = _Reading(percent_styles)
    if percent_styles or TELLING.search(data):
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

    def __init__(self, percent_styles: frozenset[str]) -> None:
        self.facts = SheetFacts()
        self.relations: dict[Cell, str] = {}
        self._percent_styles = percent_styles
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
            if attributes.get("s") in self._percent_styles and (at := position_of(attributes.get("r", ""))):
                self.facts.percents.add(at)
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


def read_ods_facts(package: Parts) -> dict[str, SheetFacts]:
    """Merged cells and links of an ODS file by the names of its sheets. Raises ParseError."""
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
        elif name == "a" and len(self._facts.links) < LINKS_MAX and ADDRESS.match(link := attributes.get("href", "")):
            self._facts.links[self._row, self._column] = link


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
