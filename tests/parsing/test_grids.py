"""Sheets as tables with the rows and columns that their lines show."""

from __future__ import annotations

import io
from typing import Any

import xlsxwriter

from collections_app.parsing.assembly import read_document
from collections_app.parsing.types import ParsedDocument, ParseLimits, Source


def shown(parsed: ParsedDocument) -> list[tuple[str, str, str, str]]:
    """(text, sheet, columns, rows) of each entry of the cell map."""
    return [(parsed.text[start:end], *names) for start, end, *names in parsed.cell_map]  # type: ignore[misc]


def read(data: bytes, name: str) -> ParsedDocument:
    return read_document(Source(data, name, "", ParseLimits()))


def workbook(*rows: tuple[int, int, list[Any]], sheet: str = "Prices") -> ParsedDocument:
    """rows: (row, column) from 0 of the first value, and the values."""
    buffer = io.BytesIO()
    book = xlsxwriter.Workbook(buffer, {"in_memory": True})
    page = book.add_worksheet(sheet)
    for row, column, values in rows:
        page.write_row(row, column, values)
    book.close()
    return read(buffer.getvalue(), "a.xlsx")


def test_empty_rows_and_columns_shift_no_number() -> None:
    parsed = workbook((4, 2, ["key", "", "price"]), (5, 2, ["a", "", 1]), (8, 2, ["b", "", 2]))
    assert shown(parsed) == [
        ("| key | price |", "Prices", "C,E", "5"),
        ("| a | 1 |\n| b | 2 |", "Prices", "C,E", "6,9"),
    ]


def test_a_caption_and_two_tables_of_one_sheet() -> None:
    parsed = workbook(
        (0, 0, ["Price list"]),
        (2, 0, ["key", "price"]), (3, 0, ["a", 1]), (4, 0, ["b", 2]),
        (6, 0, ["town", "people"]), (7, 0, ["Ulm", 126]),
    )  # fmt: skip
    assert parsed.text == (
        "## Prices\n\nPrice list\n\n| key | price |\n| --- | --- |\n| a | 1 |\n| b | 2 |\n\n"
        "| town | people |\n| --- | --- |\n| Ulm | 126 |"
    )
    assert [entry[1:] for entry in shown(parsed)] == [
        ("Prices", "A", "1"), ("Prices", "A:B", "3"), ("Prices", "A:B", "4:5"),
        ("Prices", "A:B", "7"), ("Prices", "A:B", "8"),
    ]  # fmt: skip


def test_rows_behind_an_empty_one_without_a_header_go_on_with_the_table() -> None:
    parsed = workbook((0, 0, ["key", "price"]), (1, 0, ["a", 1]), (3, 0, ["b", 2]), (4, 0, ["c", 3]))
    assert parsed.text.count("---") == 2
    assert shown(parsed)[1] == ("| a | 1 |\n| b | 2 |\n| c | 3 |", "Prices", "A:B", "2,4:5")


def test_records_of_a_csv_file_are_counted_with_empty_ones() -> None:
    parsed = read(b'key,note\na,"two\nlines"\n\nb,x\n', "a.csv")
    lines = {row: text for text, sheet, columns, row in shown(parsed) if not sheet and columns == "A:B"}
    assert lines == {"1": "| key | note |", "2,4": "| a | two lines |\n| b | x |"}
