"""Excel 2003 XML: worksheets as tables."""

from __future__ import annotations

from ragd.readers.assembly import Assembly
from ragd.readers.office.grids import Merge, lay_grid
from ragd.readers.office.sheets import add_sheet
from ragd.readers.text.spans import read_span
from ragd.readers.text.xmldata import Attributes, stream_xml
from ragd.readers.types import Source

COLUMN_LIMIT = 16_384
ROW_LIMIT = 1_048_576


def read(source: Source, assembly: Assembly) -> None:
    """Add every worksheet with its label "sheet NAME". Raises ParseError."""
    name = ""
    rows: list[list[str]] = []
    pieces: list[str] = []
    in_data = False
    merges: list[Merge] = []
    place = reserved = 0  # the open cell's column, and how many behind it belong to it

    def start(element: str, attributes: Attributes) -> None:
        nonlocal name, rows, in_data, place, reserved
        if element == "Worksheet":
            name, rows = attributes.get("Name", ""), []
            merges.clear()
        elif element == "Row":
            index = attributes.get("Index", "")
            if index.isdigit():
                rows.extend([] for _ in range(min(int(index), ROW_LIMIT) - 1 - len(rows)))
            rows.append([])
            reserved = 0
        elif element == "Cell" and rows:
            index = attributes.get("Index", "")
            place = min(int(index), COLUMN_LIMIT) - 1 if index.isdigit() else len(rows[-1]) + reserved
            rows[-1].extend([""] * (place + 1 - len(rows[-1])))
            reserved = read_span(attributes.get("MergeAcross"), COLUMN_LIMIT) if "MergeAcross" in attributes else 0
            down = read_span(attributes.get("MergeDown"), ROW_LIMIT) if "MergeDown" in attributes else 0
            if reserved or down:
                merges.append(((len(rows) - 1, place), (len(rows) - 1 + down, place + reserved)))
        elif element in ("Data", "Title"):
            in_data = True
            pieces.clear()

    def end(element: str) -> None:
        nonlocal in_data
        if element == "Data" and rows and rows[-1]:
            rows[-1][place] = "".join(pieces)
            in_data = False
        elif element == "Title":
            assembly.entitle("".join(pieces))
            in_data = False
        elif element == "Worksheet":
            lines, places = lay_grid(rows, name, str, merges=merges)
            if lines:
                add_sheet(assembly, name, lines, places)

    def text(piece: str) -> None:
        if in_data:
            pieces.append(piece)

    stream_xml(source.data, start, end, text)
