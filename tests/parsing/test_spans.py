"""Tables whose cells span rows and columns, and the parts of a page that it hides."""

from __future__ import annotations

import pytest

from ragd.readers.assembly import read_document
from ragd.readers.office.slides import Box, reading_order
from ragd.readers.office.word import Body
from ragd.readers.office.wordstyles import Numbering, Styles
from ragd.readers.text.html import render_page
from ragd.readers.text.spans import SpanningCell, TableRow, spanned_blocks
from ragd.readers.text.xmldata import stream_xml
from ragd.readers.types import ParseLimits, Source
from tests.parsing import builders


def rows_of(markup: str) -> list[str]:
    return [line for line in render_page(markup).text.split("\n") if line and "---" not in line]


@pytest.mark.fault("N-08")
@pytest.mark.parametrize(
    ("table", "rows"),
    [
        (
            "<tr><th>Region<th>Product<th>Units<tr><td rowspan=2>EU<td>Cable<td>12"
            "<tr><td>Hub<td>7<tr><td>US<td>Cable<td>3",
            ["| Region | Product | Units |", "| EU | Cable | 12 |", "| EU | Hub | 7 |", "| US | Cable | 3 |"],
        ),
        ("<tr><th colspan=2>A<th>B<tr><td>1<td>2<td>3", ["| A | A | B |", "| 1 | 2 | 3 |"]),
        ("<tfoot><tr><td>Sum<td>9<tbody><tr><th>A<th>B<tr><td>x<td>8", ["| A | B |", "| x | 8 |", "| Sum | 9 |"]),
        (
            "<tr><td>a<td>b<td>c<tr><td>1<td rowspan=2 colspan=2>x<tr><td>2<tr><td>3<td>y<td>z",
            ["| a | b | c |", "| 1 | x | x |", "| 2 | x | x |", "| 3 | y | z |"],
        ),
        (
            "<thead><tr><th rowspan=2>R<th colspan=2>Sales<tr><th>2023<th>2024<tbody><tr><td rowspan=0>EU<td>1<td>2"
            "<tr><td>3<td>4<tbody><tr><td>US<td>5<td rowspan=99>6",
            ["| R | Sales 2023 | Sales 2024 |", "| EU | 1 | 2 |", "| EU | 3 | 4 |", "| US | 5 | 6 |"],
        ),
        (
            "<tr><td rowspan=2>R<td colspan=2>Sales<tr><td>2023<td>2024<tr><td>EU<td>1<td>2",
            ["| R | Sales 2023 | Sales 2024 |", "| EU | 1 | 2 |"],
        ),
        ("<tr><td colspan=3>Title<tr><td>a<td>b<td>c<tr><td>1<td>2<td>3", ["Title", "| a | b | c |", "| 1 | 2 | 3 |"]),
        ("<tr><td>Title<tr><td>a<td>b<td>c<tr><td>1<td>2<td>3", ["Title", "| a | b | c |", "| 1 | 2 | 3 |"]),
        ("<tr><td>Name:<td><tr><td>a<td>b<tr><td>c<td>d", ["| Name: |  |", "| a | b |", "| c | d |"]),
        ("<tr><td colspan=9>a<td colspan=x>b<tr><td colspan=9>1<td>2", ["| a | b |", "| 1 | 2 |"]),
        *(
            (
                f"{head}<tr><th colspan=3>Children<tr><td>Crawl<td>Mon<td>40"
                "<tr><th colspan=3>Adults<tr><td>Aqua<td>Tue<td>60",
                ["| Course | Day | Fee |", "| Children | Children | Children |", "| Crawl | Mon | 40 |",
                 "| Adults | Adults | Adults |", "| Aqua | Tue | 60 |"],
            )
            for head in ("<tr><th>Course<th>Day<th>Fee", "<thead><tr><th>Course<th>Day<th>Fee<tbody>")
        ),
        (
            "<tr><td>Course<td colspan=2>Time<td>Fee<tr><td colspan=4>Children<tr><td>Crawl<td>9<td>10<td>40",
            ["| Course | Time | Time | Fee |", "| Children | Children | Children | Children |",
             "| Crawl | 9 | 10 | 40 |"],
        ),
        (
            "<thead><tr><th>R<th colspan=2>Sales<tr><th><th>2023<th>2024<tbody><tr><th colspan=3>EU<tr><td>a<td>1<td>2",
            ["| R | Sales 2023 | Sales 2024 |", "| EU | EU | EU |", "| a | 1 | 2 |"],
        ),
        (
            "<tr><td><table><tr><td rowspan=2>i<td>j<tr><td>k</table><td colspan=900 rowspan=900>outer",
            ["| i | j |", "| i | k |", "outer"],
        ),
    ],
)  # fmt: skip
def test_a_value_stands_in_every_place_that_its_cell_covers(table: str, rows: list[str]) -> None:
    assert rows_of(f"<table>{table}</table>") == rows


def test_repeated_values_are_bounded() -> None:
    count = 1500
    wide = [TableRow([SpanningCell("v" * 50, 1000, 65_534) for _ in range(count)])]
    deep = [TableRow([SpanningCell("w")]) for _ in range(count)]
    [text] = spanned_blocks(wide + deep)
    assert len(text) < 20 * 52 * count + 200_000
    assert text.count("w") == count


@pytest.mark.fault("N-09")
@pytest.mark.parametrize(
    "page",
    [
        "<p>shown<div style='display:none'><p>secret</div>",
        "<p>shown<div style='DISPLAY : None !important'><p>secret</div>",
        "<style>/* a */ .x{color:red;display:none}</style><p>shown<p class='y x'>secret",
        "<style>@media screen { .x{visibility:hidden} }</style><p>shown<p class=x>secret",
        "<style>div > p, #x{font-size:0px}</style><p>shown<p id=x>secret",
        "<style>.t:not(.on){display:none}</style><p class='t on'>shown<p class=t>secret",
        "<style>.t{display:none}.t.on{display:block}</style><p class='t on'>shown<p class=t>secret",
        "<p>shown<p hidden>secret",
        "<p>shown<p aria-hidden=true>secret",
        "<p>shown<p style='position:absolute; left:-9999px'>secret",
        "<div style='display:none'><ix:header>secret</ix:header></div><p>shown",
        "<ix:header><ix:hidden>secret</ix:hidden></ix:header><p>shown",
        "<p>shown<div hidden>sec<b style='display:none'>ret</b></div>",
        *(f"<p>shown<p style='{style}'>secret" for style in (
            "opacity: 0", "color:#FFF; background-color:white", "color:rgba(0, 0, 0, 0)", "font:0/0 a", "font-size:1px",
            "height:0;overflow:hidden", "position:absolute;clip:rect(0,0,0,0)", "display/**/:none",
        )),
        "<style media=screen>@layer a{@media (min-width:40em){.x{display:none}}}</style><p>shown<p class=x>secret",
    ],
)  # fmt: skip
def test_what_a_page_hides_is_left_out_and_told(page: str) -> None:
    rendered = render_page(f"<html><body>{page}</body></html>")
    assert rendered.text == "shown"
    assert f"({len('secret')} characters)" in rendered.warning


@pytest.mark.parametrize(
    "page",
    [
        "<style>@media print{.x{display:none}} @media (max-width:9px){.x{display:none}}</style><p class=x>shown",
        "<style>.x{display:none}</style><p class=x style='display:block'>shown",
        "<style>#x{display:block} .x{display:none}</style><p class=x id=x>shown",
        "<style>.x:hover{display:none} .x::before{display:none} .x{{</style><p class=x>shown",
        "<style>.x{font-size:0} .x p{font-size:14px}</style><div class=x><p>shown</div>",
        "<div style='visibility:hidden'><p style='visibility:visible'>shown</div>",
        "<p style='font-size:0.8em; margin-left:-10px'>shown",
        "<p>shown<span hidden> \u00d7 </span>",
        "<style media=print>.x{display:none}</style><noscript><style>.x{opacity:0}</style></noscript><p class=x>shown",
        "<style>.x{display:none}@media (width>=48rem){.m\\:x{display:block}}</style><p class='x m:x'>shown",
        "<p style='opacity:0;transition:opacity 1s'>shown",
        "<p style='color:transparent;background:red;background-clip:text'>shown",
    ],
)
def test_what_a_page_shows_is_kept(page: str) -> None:
    rendered = render_page(f"<html><body style='visibility:hidden'>{page}</body></html>")
    assert (rendered.text, rendered.warning) == ("shown", "")


WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def word_blocks(body: str) -> list[str]:
    reading = Body(Styles(), Numbering())
    stream_xml(f"<w:body {WORD}>{body}</w:body>".encode(), reading.start, reading.end, reading.text)
    return reading.finish()


def word_cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>"


@pytest.mark.fault("N-08")
def test_merged_cells_of_word_carry_their_value() -> None:
    wide, first, more = '<w:gridSpan w:val="2"/>', '<w:vMerge w:val="restart"/>', "<w:vMerge/>"
    rows = [
        word_cell("Region", first) + word_cell("Units", wide),
        word_cell("", more) + word_cell("2023") + word_cell("2024"),
        word_cell("EU", first) + word_cell("1") + word_cell("2"),
        word_cell("lost", more + '<w:tcPrChange><w:tcPr><w:gridSpan w:val="9"/></w:tcPr></w:tcPrChange>')
        + word_cell("3") + word_cell("4"),
        '<w:trPr><w:gridBefore w:val="1"/></w:trPr>' + word_cell("5", wide),
    ]  # fmt: skip
    assert word_blocks(f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>") == [
        "| Region | Units 2023 | Units 2024 |\n| --- | --- | --- |\n| EU | 1 | 2 |\n| EU | 3 | 4 |\n|  | 5 | 5 |"
    ]


@pytest.mark.fault("N-05")
@pytest.mark.parametrize(
    ("base", "raised", "rest", "higher", "lower"),
    [
        ("10", "3", " l", "10³ l", "10₃ l"), ("10", "-6", " m", "10⁻⁶ m", "10₋₆ m"),
        ("5 km", "2", ".", "5 km².", "5 km2."), ("in 2025", "12", " by", "in 2025 12 by", "in 2025₁₂ by"),
        ("end.", "4", "", "end. 4", "end.4"), ("the 1", "st", " of", "the 1st of", "the 1st of"),
        ("1", "1", "/2", "1 1/2", "1₁/2"), ("CO", "2", "!", "CO 2!", "CO2!"),
    ],
)  # fmt: skip
def test_raised_digits_are_no_part_of_a_number(base: str, raised: str, rest: str, higher: str, lower: str) -> None:
    def run(text: str, position: str = "") -> str:
        return f'<w:r><w:rPr><w:vertAlign w:val="{position}"/></w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'

    def odt(position: str) -> str:
        styles = f'<s:style s:name="T"><s:text-properties s:text-position="{position}"/></s:style>'
        body = f'<text:p>{base}<text:span text:style-name="T">{raised}</text:span>{rest}</text:p>'
        data = builders.make_odt(f'<office:automatic-styles xmlns:s="s">{styles}</office:automatic-styles>{body}')
        return read_document(Source(data, "a.odt", "", ParseLimits())).text

    xml = f"<r><p>So {base}<sup>{raised}</sup>{rest}</p></r>".encode()
    assert read_document(Source(xml, "a.xml", "", ParseLimits())).text == f"So {higher}"
    for kind, tag, position, text in (("superscript", "sup", "super 58%", higher), ("subscript", "sub", "-33%", lower)):
        word = word_blocks(f"<w:p>{run(base)}{run(raised[:1], kind)}{run(raised[1:], kind)}{run(rest)}</w:p>")
        assert word == rows_of(f"<p>{base}<{tag}>{raised}</{tag}>{rest}") == [odt(position)] == [text]


@pytest.mark.fault("N-18")
def test_form_fields_of_word_show_what_is_chosen() -> None:
    def field(content: str) -> str:
        begin = f'<w:r><w:fldChar w:fldCharType="begin"><w:ffData>{content}</w:ffData></w:fldChar></w:r>'
        return f"<w:p><w:r><w:t>X: </w:t></w:r>{begin}<w:r><w:instrText>FORM</w:instrText></w:r></w:p>"

    fields = [
        "<w:checkBox><w:default w:val='0'/><w:checked/></w:checkBox>",
        "<w:checkBox><w:default w:val='1'/></w:checkBox>",
        "<w:checkBox><w:default w:val='1'/><w:checked w:val='0'/></w:checkBox>",
        "<w:ddList><w:result w:val='1'/><w:listEntry w:val='Red'/><w:listEntry w:val='Blue'/></w:ddList>",
        "<w:ddList><w:listEntry w:val='Red'/><w:listEntry w:val='Blue'/></w:ddList>",
        "<w:textInput><w:default w:val='none'/></w:textInput>",
    ]
    assert word_blocks("".join(map(field, fields))) == [
        "X: \u2612", "X: \u2612", "X: \u2610", "X: Blue", "X: Red", "X:"
    ]  # fmt: skip


@pytest.mark.fault("N-08")
def test_merged_cells_of_opendocument_carry_their_value() -> None:
    def cell(text: str, more: str = "") -> str:
        return f"<table:table-cell {more}><text:p>{text}</text:p></table:table-cell>"

    rows = [
        cell("a") + cell("b") + cell("c"),
        cell("x", 'table:number-columns-spanned="2" table:number-rows-spanned="2"')
        + "<table:covered-table-cell/>" + cell("1"),
        '<table:covered-table-cell table:number-columns-repeated="2"><text:p/></table:covered-table-cell>' + cell("2"),
        '<table:table-cell table:number-columns-repeated="2"/>' + cell("3"),
    ]  # fmt: skip
    data = builders.make_odt(
        f"<table:table>{''.join(f'<table:table-row>{row}</table:table-row>' for row in rows)}</table:table>"
    )
    assert read_document(Source(data, "a.odt", "", ParseLimits())).text == (
        "| a | b | c |\n| --- | --- | --- |\n| x | x | 1 |\n| x | x | 2 |\n|  |  | 3 |"
    )


@pytest.mark.fault("N-16")
def test_shapes_are_read_from_top_to_bottom_column_by_column() -> None:
    def order(*boxes: tuple[float, float, float, float] | None) -> list[int]:
        return reading_order([Box(*box) if box else None for box in boxes])

    assert order((1, 40, 4, 5), (1, 30, 4, 5), (1, 20, 4, 5), (1, 10, 4, 5)) == [3, 2, 1, 0]
    left, right = [(0, 10, 4, 2), (0, 13, 4, 9)], [(6, 10, 4, 2), (6, 13, 4, 9)]
    assert order(right[1], left[1], (0, 0, 10, 3), right[0], left[0]) == [2, 4, 1, 3, 0]
    assert order(left[0], right[0], left[1], right[1]) == [0, 1, 2, 3]
    assert order(left[0], left[1], right[0], right[1]) == [0, 1, 2, 3]
    assert order((6, 10, 4, 5), (0, 10, 4, 5), (0, 0, 10, 3)) == [2, 1, 0]
    assert order(None, (0, 9, 1, 1), None, (0, 1, 1, 1)) == [0, 3, 1, 2]
    assert order() == [] and order(None, None) == [0, 1]


@pytest.mark.fault("N-09")
def test_what_the_page_of_a_mail_hides_is_told_where_the_page_is_read() -> None:
    page = "Content-Type: text/html\n\n<p>shown</p><div style='display:none'>secret</div>\n"
    head = "From: a@example.org\nSubject: S\nMIME-Version: 1.0\n"
    alone = read_document(Source(f"{head}{page}".encode(), "a.eml", "", ParseLimits()))
    assert "shown" in alone.text and "secret" not in alone.text and "(6 characters)" in alone.warnings[0]
    parts = f"--b\nContent-Type: text/plain\n\nplain words of the message\n--b\n{page}--b--\n"
    both = f'{head}Content-Type: multipart/alternative; boundary="b"\n\n{parts}'
    assert read_document(Source(both.encode(), "a.eml", "", ParseLimits())).warnings == ()


def test_hidden_words_and_slides_are_read_and_told() -> None:
    run = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>secret</w:t></w:r>"
    run += "<w:r><w:rPr><w:vanish w:val='0'/></w:rPr><w:t> x</w:t></w:r>"
    data = builders.make_zip({
        "[Content_Types].xml": "<Types/>",
        "word/document.xml": f"<w:document {WORD}><w:body><w:p>{run}</w:p></w:body></w:document>",
    })  # fmt: skip
    parsed = read_document(Source(data, "a.docx", "", ParseLimits()))
    assert parsed.text == "secret x" and "(6 characters)" in parsed.warnings[0] and not parsed.is_partial
    section = '<text:section text:display="none"><text:p>secret</text:p></text:section>'
    parsed = read_document(Source(builders.make_odt(section), "a.odt", "", ParseLimits()))
    assert parsed.text == "secret" and len(parsed.warnings) == 1
