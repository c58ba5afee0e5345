"""Excel 2003 XML: worksheets as tables."""

from __future__ import annotations

from collections_app.parsing.assembly import Assembly
from collections_app.parsing.office.grids import lay_grid
from collections_app.parsing.office.sheets import add_sheet
from collections_app.parsing.text.xmlstream import Attributes, stream_xml
from collections_app.parsing.types import Source

COLUMN_LIMIT = 16_384
ROW_LIMIT = 1_048_576


def read(source: Source, assembly: Assembly) -> None:
    """Add every worksheet with its label "sheet NAME". Raises ParseError."""
    name = ""
    rows: list[list[str]] = []
    pieces: list[str] = []
    in_data = False

    def start(element: str, attributes: Attributes) -> None:
        nonlocal name, rows, in_data
        if element == "Worksheet":
            name, rows = attributes.get("Name", ""), []
        elif element == "Row":
            index = attributes.get("Index", "")
            if index.isdigit():
                rows.extend([] for _ in range(min(int(index), ROW_LIMIT) - 1 - len(rows)))
            rows.append([])
        elif element == "Cell" and rows:
            index = attributes.get("Index", "")
            if index.isdigit():
                rows[-1].extend([""] * (min(int(index), COLUMN_LIMIT) - 1 - len(rows[-1])))
            rows[-1].append("")
        elif element in ("Data", "Title"):
            in_data = True
            pieces.clear()

    def end(element: str) -> None:
        nonlocal in_data
        if element == "Data" and rows and rows[-1]:
            rows[-1][-1] = "".join(pieces)
            in_data = False
        elif element == "Title":
            assembly.entitle("".join(pieces))
            in_data = False
        elif element == "Worksheet":
            lines, places = lay_grid(rows, name, str)
            if lines:
                add_sheet(assembly, name, lines, places)

    def text(piece: str) -> None:
        if in_data:
            pieces.append(piece)

    stream_xml(source.data, start, end, text)
