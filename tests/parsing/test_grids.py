"""Sheets as tables with the rows and columns that their lines show."""

from __future__ import annotations

import io
from typing import Any

import pytest
import xlsxwriter

from ragd.readers.assembly import read_document
from ragd.readers.types import ParsedDocument, ParseLimits, Source
from tests.parsing.builders import make_odt, make_zip


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


@pytest.mark.fault("N-12")
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            "Stanley Cups,,\nTeam,Location,Cups\nBlues,STL,1\nFlyers,PHI,2\n",
            "Stanley Cups\n\n"
            "| Team | Location | Cups |\n| --- | --- | --- |\n| Blues | STL | 1 |\n| Flyers | PHI | 2 |",
        ),
        (
            "Report of sales\n\nname,units\nwidget,12\n",
            "Report of sales\n\n| name | units |\n| --- | --- |\n| widget | 12 |",
        ),
        ("sep=;\r\na;b\r\n1,5;2\r\n", "| a | b |\n| --- | --- |\n| 1,5 | 2 |"),
        (
            "Date:,2024-01-01,,\nBy:,Bob,,\nname,units,price,total\nx,1,2,3\n",
            "Date: 2024-01-01\nBy: Bob\n\n"
            "| name | units | price | total |\n| --- | --- | --- | --- |\n| x | 1 | 2 | 3 |",
        ),
        (
            "a,b\n1,2\n\nname,city\nBob,Ulm\n",
            "| a | b |\n| --- | --- |\n| 1 | 2 |\n\n| name | city |\n| --- | --- |\n| Bob | Ulm |",
        ),
        (
            "name,city,note\na,Ulm,x\n\nb,Bonn\nc,Rom\n",
            "| name | city | note |\n| --- | --- | --- |\n| a | Ulm | x |\n| b | Bonn |  |\n| c | Rom |  |",
        ),
        ("Name\nBob\n\nAl\n", "Name\nBob\nAl"),
    ],
)
def test_titles_of_a_csv_file_are_no_header(content: str, text: str) -> None:
    for name, data in (("a.csv", content.encode()), ("a.csv", content.encode("utf-16"))):
        assert read(data, name).text == text


def test_a_long_csv_file_is_one_table_whose_rows_are_numbered_through() -> None:
    parsed = read(b"Title,\nkey,note\n" + b"a,b\n" * 12_000, "a.csv")
    assert parsed.text.count("---") == 2 and parsed.text.count("| a | b |") == 12_000
    assert [entry[3] for entry in shown(parsed)] == ["1", "2", "3:5000", "5001:10000", "10001:12002"]


@pytest.mark.fault("N-15")
def test_tables_side_by_side_are_two() -> None:
    parsed = workbook(
        (0, 0, ["Sales"]),
        (2, 0, ["Item", "Qty", "", "", "City", "People"]),
        (3, 0, ["tea", 3, "", "", "York", 200]), (4, 0, ["bread", 4, "", "", "Hull", 260]),
        (6, 4, ["Leeds", 800]),
    )  # fmt: skip
    assert parsed.text.split("\n\n")[2:] == [
        "| Item | Qty |\n| --- | --- |\n| tea | 3 |\n| bread | 4 |",
        "| City | People |\n| --- | --- |\n| York | 200 |\n| Hull | 260 |\n| Leeds | 800 |",
    ]
    assert ("| York | 200 |\n| Hull | 260 |\n| Leeds | 800 |", "Prices", "E:F", "4:5,7") in shown(parsed)


def test_an_empty_column_does_not_divide_a_table() -> None:
    parsed = workbook(
        (0, 0, ["Item", "Qty", "", "Jan", "Feb"]), (1, 0, ["tea", 3, "", 4, 5]), (2, 0, ["rye", 4, "", 6, 7])
    )
    assert parsed.text.count("---") == 4


def sheet_xml(cells: str, more: str = "") -> bytes:
    """A workbook of one sheet, from the XML of its rows and what follows them."""
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = 'xmlns="http://schemas.openxmlformats.org/package/2006/relationships"'
    return make_zip({
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": f'<Relationships {package}><Relationship Id="r1" Type="{office}/officeDocument"'
        ' Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook {main} xmlns:r="{office}"><sheets>'
        '<sheet name="S" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships {package}><Relationship Id="r1" Type="{office}/worksheet"'
        ' Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f"<worksheet {main}>{cells}{more}</worksheet>",
    })  # fmt: skip


@pytest.mark.fault("N-13")
def test_formulas_without_a_value_show_as_formulas_and_are_told() -> None:
    parsed = read(
        sheet_xml(
            '<sheetData><row r="2"><c r="B2"><v>1</v></c><c r="C2"><v>2</v></c></row><row r="3"><c r="B3"><f>B2+C2</f>'
            '<v></v></c><c r="C3"><f>B2*2</f><v>2</v></c></row><row r="4"><c r="A4"><f>B3</f></c>'
            '<c r="C4" t="str"><f>IF(1,"","x")</f><v></v></c></row></sheetData>'
        ),
        "a.xlsx",
    )
    assert shown(parsed)[0][1:] == ("S", "A:C", "2")
    assert [line for line in parsed.text.split("\n") if line.startswith("| ") and "---" not in line] == [
        "|  | 1 | 2 |", "|  | =B2+C2 | 2 |", "| =B3 |  |  |"
    ]  # fmt: skip
    assert len(parsed.warnings) == 1 and " 2 formulas" in parsed.warnings[0]


@pytest.mark.fault("N-08")
def test_merged_cells_of_a_sheet_carry_their_value() -> None:
    buffer = io.BytesIO()
    book = xlsxwriter.Workbook(buffer, {"in_memory": True})
    page = book.add_worksheet("S")
    page.merge_range("A1:D1", "Sales of the year")
    page.merge_range("A2:A3", "Region")
    page.merge_range("B2:C2", "Units")
    page.merge_range("D2:D3", "Note")
    page.write_row("B3", [2023, 2024])
    page.merge_range("A4:A5", "EU")
    page.write_row("B4", [1, 2, "x"])
    page.write_row("B5", [3, 4, "y"])
    page.write_row("A6", ["US", 5, 6, "z"])
    book.close()
    parsed = read(buffer.getvalue(), "a.xlsx")
    assert parsed.text.split("\n\n")[1:] == [
        "Sales of the year",
        "| Region | Units 2023 | Units 2024 | Note |\n| --- | --- | --- | --- |\n"
        "| EU | 1 | 2 | x |\n| EU | 3 | 4 | y |\n| US | 5 | 6 | z |",
    ]
    assert [entry[3] for entry in shown(parsed)] == ["1", "3", "4:6"]


def test_the_name_of_a_group_of_rows_is_no_part_of_the_header() -> None:
    buffer = io.BytesIO()
    book = xlsxwriter.Workbook(buffer, {"in_memory": True})
    page = book.add_worksheet("S")
    page.write_row("A1", ["Course", "", "", "Fee"])
    page.merge_range("B1:C1", "Time")
    page.merge_range("A2:D2", "Children")
    page.write_row("A3", ["Crawl", 9, 10, 40])
    book.close()
    assert read(buffer.getvalue(), "a.xlsx").text.split("\n")[2:] == [
        "| Course | Time | Time | Fee |", "| --- | --- | --- | --- |", "| Children | Children | Children | Children |",
        "| Crawl | 9 | 10 | 40 |",
    ]  # fmt: skip


def test_merged_cells_that_cover_a_whole_sheet_are_bounded() -> None:
    parsed = read(
        sheet_xml(
            '<sheetData><row r="1"><c r="A1"><v>7</v></c><c r="B1"><v>1</v></c></row><row r="100000">'
            '<c r="B100000"><v>2</v></c></row></sheetData>',
            '<mergeCells count="1"><mergeCell ref="A1:XFD1048576"/></mergeCells>',
        ),
        "a.xlsx",
    )
    assert len(parsed.text) < 1000


def test_links_of_a_sheet_and_what_it_hides_are_told() -> None:
    buffer = io.BytesIO()
    book = xlsxwriter.Workbook(buffer, {"in_memory": True})
    page, secret = book.add_worksheet("S"), book.add_worksheet("T")
    page.write_row("A1", ["name", "page"])
    page.write_url("B2", "https://example.org/a", string="Acme")
    page.write_url("B3", "https://example.org/b")
    page.write_formula("B4", '=HYPERLINK("https://example.org/c","Carl")', None, "Carl")
    page.set_row(2, None, None, {"hidden": True})
    page.set_column(3, 4, None, None, {"hidden": True})
    secret.write("A1", "hidden words")
    secret.hide()
    book.close()
    parsed = read(buffer.getvalue(), "a.xlsx")
    assert [line for line in parsed.text.split("\n") if line.startswith("Link")] == [
        "Link: Acme https://example.org/a", "Link: Carl https://example.org/c"
    ]  # fmt: skip
    assert "hidden words" in parsed.text
    assert [warning for warning in parsed.warnings if "1 rows" in warning and "2 columns" in warning]
    assert [warning for warning in parsed.warnings if "'T'" in warning]


@pytest.mark.fault("N-08")
def test_merged_cells_of_ods_and_of_excel_2003_carry_their_value() -> None:
    def cell(text: str, more: str = "") -> str:
        return f'<table:table-cell office:value-type="string" {more}><text:p>{text}</text:p></table:table-cell>'

    rows = [
        cell("a") + cell("b") + cell("c"),
        cell("x", 'table:number-columns-spanned="2" table:number-rows-spanned="2"')
        + "<table:covered-table-cell/>" + cell("1"),
        '<table:covered-table-cell table:number-columns-repeated="2"/>' + cell("2"),
        cell("p") + cell('<text:a xlink:href="https://example.org/q" xmlns:xlink="x">q</text:a>') + cell("3"),
    ]  # fmt: skip
    body = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    ods = make_odt(
        f'<office:spreadsheet><table:table table:name="S">{body}</table:table></office:spreadsheet>',
        mimetype="application/vnd.oasis.opendocument.spreadsheet",
    )
    text = "| a | b | c |\n| --- | --- | --- |\n| x | x | 1 |\n| x | x | 2 |\n| p | q | 3 |"
    assert read(ods, "a.ods").text == f"## S\n\n{text}\n\nLink: q https://example.org/q"

    def data(value: str, more: str = "") -> str:
        return f'<Cell {more}><Data ss:Type="String">{value}</Data></Cell>'

    lines = [
        data("a") + data("b") + data("c"), data("x", 'ss:MergeAcross="1" ss:MergeDown="1"') + data("1"),
        data("2", 'ss:Index="3"'), data("p") + data("q") + data("3"),
    ]  # fmt: skip
    book = (
        '<?xml version="1.0"?><?mso-application progid="Excel.Sheet"?><Workbook'
        ' xmlns="urn:schemas-microsoft-com:office:spreadsheet" xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet">'
        f'<Worksheet ss:Name="S"><Table>{"".join(f"<Row>{line}</Row>" for line in lines)}</Table></Worksheet>'
        "</Workbook>"
    )
    assert read(book.encode(), "a.xml").text == f"## S\n\n{text}"
