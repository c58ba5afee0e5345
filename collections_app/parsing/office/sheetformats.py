"""Which cells of an XLSX sheet are shown as percentages: their values are hundredths of what people read."""

from __future__ import annotations

from collections_app.parsing.office.ooxml import Parts, related
from collections_app.parsing.text.xmlstream import Attributes, stream_xml

BUILT_IN_PERCENT = frozenset({"9", "10"})
COLUMN_LIMIT = 16_384

Cell = tuple[int, int]


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

        stream_xml(package.read(part), start, end, lambda _: None)
    return frozenset(result)


def percent_cells(package: Parts, sheet: str, styles: frozenset[str]) -> frozenset[Cell]:
    """(row, column), from 0, of the sheet's cells with one of the styles."""
    cells: set[Cell] = set()
    if not styles:
        return frozenset()

    def start(name: str, attributes: Attributes) -> None:
        if name == "c" and attributes.get("s") in styles and (position := place_of(attributes.get("r", ""))):
            cells.add(position)

    stream_xml(package.read(sheet), start, lambda _: None, lambda _: None)
    return frozenset(cells)


def place_of(reference: str) -> Cell | None:
    """(row, column) of a reference such as "AB12"; None for anything else."""
    letters = reference.rstrip("0123456789")
    digits = reference[len(letters) :]
    if not digits or len(digits) > 7 or not letters.isascii() or not letters.isalpha() or len(letters) > 3:
        return None
    column = 0
    for letter in letters.upper():
        column = 26 * column + ord(letter) - ord("A") + 1
    return (int(digits) - 1, column - 1) if column <= COLUMN_LIMIT else None
