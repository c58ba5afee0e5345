"""Word, PowerPoint, Excel, OpenDocument, RTF and the old binary formats: text, structure, maps, reasons."""

from __future__ import annotations

import io
import re
import zipfile
from copy import deepcopy

import pptx
import pytest
import xlsxwriter
from pptx.enum.shapes import PP_PLACEHOLDER

from ragd.readers import ParsedDocument, ParseError, parse
from ragd.readers.office.ooxml import chart_blocks
from ragd.readers.office.slides import Slide
from ragd.readers.text.xmldata import stream_xml
from tests.parsing import builders
from tests.refusals import raises_with

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
TABLE = "| a | b |\n| --- | --- |\n| c | d |"


def labelled(document: ParsedDocument) -> list[tuple[str, str]]:
    return [(label, document.text[start:end]) for start, end, label in document.page_map]


def parse_word(body: str, **parts: str) -> ParsedDocument:
    members = {
        "[Content_Types].xml": "<Types/>",
        "word/document.xml": f"<w:document {WORD}><w:body>{body}</w:body></w:document>",
    }
    return parse(builders.make_zip({**members, **parts}), "a.docx")


def test_docx_keeps_headings_lists_tables_and_headers() -> None:
    document = parse(builders.make_docx(), "a.docx")
    assert document.text == (
        "# Care of garden tools\n\n# Blades\n\nClean the blade after use.\n\n"
        "- Sharpen it in spring.\n- Oil it in autumn.\n\n## Prices\n\n"
        "| Tool | Price |\n| --- | --- |\n| Spade | 12.50 |\n\n1. First, wash.\n2. Then, dry.\n\nHeader: Garden club"
    )
    assert document.title == "Care of garden tools"
    assert document.metadata["author"] == "A. Gardener"
    assert document.media_type.endswith("wordprocessingml.document")


def test_docx_reads_text_boxes_once_and_leaves_out_what_was_deleted() -> None:
    document = parse_word(
        "<w:p><w:r><w:t>Before</w:t></w:r>"
        '<w:r><mc:AlternateContent xmlns:mc="m"><mc:Choice><w:txbxContent><w:p><w:r><w:t>In the box</w:t></w:r></w:p>'
        "</w:txbxContent></mc:Choice><mc:Fallback><w:txbxContent><w:p><w:r><w:t>In the box</w:t></w:r></w:p>"
        "</w:txbxContent></mc:Fallback></mc:AlternateContent></w:r></w:p>"
        "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins><w:r><w:t>here</w:t></w:r></w:ins></w:p>"
    )
    assert document.text == "Before\n\nIn the box\n\nhere"


def test_docx_writes_ruby_behind_its_base_and_joins_soft_hyphens() -> None:
    document = parse_word(
        "<w:p><w:r><w:ruby><w:rt><w:r><w:t>とうきょう</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>東京</w:t></w:r></w:rubyBase>"
        "</w:ruby></w:r><w:r><w:t> an\xadti</w:t><w:softHyphen/><w:t>que</w:t></w:r></w:p>"
    )
    assert document.text == "東京(とうきょう) antique"


def test_docx_keeps_the_signs_of_symbol_fonts() -> None:
    def sign(font: str, code: str) -> str:
        return f'<w:r><w:sym w:font="{font}" w:char="{code}"/></w:r>'

    signs = [("Symbol", "F0A3"), ("Symbol", "6D"), ("Symbol", "F0F2"), ("Wingdings", "F0FC"), ("Arial", "2264")]
    others = [("Symbol", "F0FF"), ("Other", "F061"), ("Symbol", "x"), ("Wingdings", "F001")]
    document = parse_word(f"<w:p>{''.join(sign(*each) for each in [*signs, *others])}</w:p>")
    assert document.text == "≤μ∫✓≤"
    fonts = (("Symbol", "at  5"), ("Wingdings", " "), ("Other", ""), ("Symbol", " a"))
    runs = (f'<w:r><w:rPr><w:rFonts w:ascii="{font}"/></w:rPr><w:t>{text}</w:t></w:r>' for font, text in fonts)
    assert parse_word(f"<w:p>{''.join(runs)}</w:p>").text == "at ≥ 5 → a"


def test_pptx_keeps_the_signs_of_symbol_fonts() -> None:
    slide = Slide()
    runs = ("in", ""), (" à ", "Wingdings"), ("out ", ""), (" à b", "Symbol"), (" à", "")
    signs = (f'<r><rPr><sym typeface="{font}"/></rPr><t>{text}</t></r>' for text, font in runs)
    stream_xml(f"<s><sp><p>{''.join(signs)}</p></sp></s>".encode(), slide.start, slide.end, slide.text)
    assert slide.blocks() == ["in → out ≤ à b à"]


def test_docx_writes_formulas_in_one_line() -> None:
    def run(text: str) -> str:
        return f"<m:r><m:t>{text}</m:t></m:r>"

    fraction = f"<m:f><m:num>{run('a')}{run('+b')}</m:num><m:den>{run('2')}</m:den></m:f>"
    power = f"<m:sSup><m:e>{run('x')}</m:e><m:sup>{run('n')}{run('-1')}</m:sup></m:sSup>"
    root = f"<m:rad><m:deg/><m:e>{run('y')}{run('+1')}</m:e></m:rad>"
    total = f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub>{run("i")}</m:sub><m:e>{run("z")}</m:e></m:nary>'
    brackets = f"<m:d><m:e>{run('u')}</m:e></m:d>"
    formula = f'<m:oMath xmlns:m="m">{fraction}{run("=")}{power}{run("+")}{root}{run("+")}{total}{brackets}</m:oMath>'
    document = parse_word(f"<w:p><w:r><w:t>So </w:t></w:r>{formula}<w:r><w:t>.</w:t></w:r></w:p>")
    assert document.text == "So (a+b)/2=x^(n-1)+√(y+1)+∑_iz(u)."
    half = f"<m:f><m:num>{run('1')}</m:num><m:den>{run('2')}</m:den></m:f>"
    cube = f"<m:rad><m:deg>{run('3')}</m:deg><m:e>{run('x')}</m:e></m:rad>"
    square = f"<m:sSup><m:e><m:d><m:e>{run('a+b')}</m:e></m:d></m:e><m:sup>{run('2')}</m:sup></m:sSup>"
    document = parse_word(f'<w:p><m:oMath xmlns:m="m">{run("2")}{half}+{cube}{square}</m:oMath></w:p>')
    assert document.text == "2 1/2∛x(a+b)^2"


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("<m:d><m:e>a</m:e><m:e>b</m:e></m:d>", "(a|b)"),
        (
            '<m:d><m:dPr><m:begChr m:val="["/><m:sepChr m:val=","/><m:endChr m:val=""/></m:dPr><m:e>a</m:e>'
            "<m:e><m:d><m:e>b</m:e></m:d></m:e></m:d>",
            "[a,(b)",
        ),
        ("<m:m><m:mr><m:e>1</m:e><m:e>2</m:e></m:mr><m:mr><m:e>3</m:e><m:e>4</m:e></m:mr></m:m>", "1, 2; 3, 4"),
        ("<m:eqArr><m:e>x=1</m:e><m:e>2y=3</m:e></m:eqArr>", "x=1; 2y=3"),
        ("2<m:func><m:fName>sin</m:fName><m:e>x</m:e></m:func>", "2sin x"),
        ('<m:acc><m:accPr><m:chr m:val="̄"/></m:accPr><m:e>x</m:e></m:acc>', "x̄"),
    ],
)
def test_docx_keeps_the_parts_of_a_formula_apart(formula: str, text: str) -> None:
    formula = re.sub(r"(?<=>)([^<>]+)(?=<)", r"<m:r><m:t>\1</m:t></m:r>", f">{formula}<")[1:-1]
    assert parse_word(f'<w:p><m:oMath xmlns:m="m">{formula}</m:oMath></w:p>').text == text


def test_docx_leaves_out_the_fields_inside_of_the_code_of_another() -> None:
    def mark(kind: str) -> str:
        return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'

    def run(text: str) -> str:
        return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'

    def field(code: str, result: str) -> str:
        return f"{mark('begin')}{code}{mark('separate')}{result}{mark('end')}"

    code = "<w:r><w:instrText>IF</w:instrText></w:r>"
    sentence = (
        run("Dear ") + field(code + field(code, run("f")) + code, run("Mrs ") + field(code, run("Poe"))) + run("!")
    )
    assert parse_word(f"<w:p>{sentence}</w:p>").text == "Dear Mrs Poe!"
    broken = f"<w:p>{run('a')}{mark('begin')}{code}</w:p><w:p>{field(code, run('b'))}{mark('end')}{run('c')}</w:p>"
    assert parse_word(broken).text == "a\n\nbc"


FORMULA = (
    '<math xmlns="http://www.w3.org/1998/Math/MathML"><semantics><mrow><mi>E</mi><mo>=</mo><mi>m</mi><msup><mi>c</mi>'
    '<mn>2</mn></msup></mrow><annotation encoding="StarMath 5.0">E = m c^2</annotation></semantics></math>'
)


def test_odt_writes_formulas_in_their_sentence() -> None:
    def frame(content: str, href: str = "") -> str:
        drawing = f'<draw:object xlink:href="{href}" xmlns:xlink="x">{content}</draw:object>'
        return f"<draw:frame>{drawing}<desc>formula</desc></draw:frame>"

    body = "<text:p>So {} at rest.</text:p>"
    data = builders.make_odt(body.format(frame("", "./Object 1")))
    apart = parse(builders.with_member(data, "Object 1/content.xml", FORMULA.encode()), "a.odt")
    assert apart.text == parse(builders.make_odt(body.format(frame(FORMULA))), "a.odt").text == "So E=mc^2 at rest."
    slide = builders.make_odt(f"<draw:page>{frame(FORMULA)}</draw:page>")
    assert parse(slide, "a.odp").text == "E=mc^2"


def listed(number_id: int, level: int, text: str) -> str:
    properties = f'<w:pPr><w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number_id}"/></w:numPr></w:pPr>'
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def level_xml(at: int, form: str, pattern: str, more: str = "") -> str:
    return f'<w:lvl w:ilvl="{at}">{more}<w:numFmt w:val="{form}"/><w:lvlText w:val="{pattern}"/></w:lvl>'


def test_docx_counts_lists_as_word_does() -> None:
    one, legal = '<w:start w:val="1"/>', '<w:start w:val="1"/><w:isLgl/>'
    numbering = (
        f"<w:numbering {WORD}>"
        f'<w:abstractNum w:abstractNumId="1">{level_xml(0, "ordinal", "%1")}{level_xml(1, "lowerRoman", "%1.%2", one)}'
        f"{level_xml(2, 'decimal', '%1.%2.%3', legal)}</w:abstractNum>"
        '<w:abstractNum w:abstractNumId="2"><w:numStyleLink w:val="L"/></w:abstractNum>'
        f'<w:abstractNum w:abstractNumId="3"><w:styleLink w:val="L"/>{level_xml(0, "upperLetter", "%1)", one)}'
        "</w:abstractNum>"
        '<w:num w:numId="1"><w:abstractNumId w:val="1"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="2"/></w:num>'
        '<w:num w:numId="3"><w:abstractNumId w:val="3"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/>'
        '</w:lvlOverride></w:num><w:num w:numId="4"><w:abstractNumId w:val="3"/><w:lvlOverride w:ilvl="0">'
        f"{level_xml(0, 'decimal', '(%1)', one)}</w:lvlOverride></w:num></w:numbering>"
    )
    relations = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1"'
        ' Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/numbering"'
        ' Target="numbering.xml"/></Relationships>'
    )
    body = "".join(
        [
            listed(1, 0, "starts at nothing"),
            listed(1, 0, "next"),
            listed(1, 2, "skips a level"),
            listed(1, 1, "which counts as used"),
            listed(2, 0, "by a style"),
            listed(3, 0, "starts at five"),
            listed(3, 0, "once"),
            listed(4, 0, "counts on in a form of its own"),
        ]
    )
    document = parse_word(body, **{"word/numbering.xml": numbering, "word/_rels/document.xml.rels": relations})
    assert [line.strip() for line in document.text.split("\n") if line] == [
        "0th starts at nothing", "1st next", "1.1.1 skips a level", "1st.ii which counts as used", "A) by a style",
        "E) starts at five", "F) once", "(7) counts on in a form of its own",
    ]  # fmt: skip


def test_docx_without_its_main_part_is_broken() -> None:
    with raises_with(ParseError, kind="broken"):
        parse(builders.make_zip({"[Content_Types].xml": "<Types/>", "word/styles.xml": "<x/>"}), "a.docx")


def test_docx_with_entities_is_refused() -> None:
    body = '<!DOCTYPE w [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><w:document ' + WORD + "><w:body/></w:document>"
    with raises_with(ParseError, kind="bomb"):
        parse(builders.make_zip({"[Content_Types].xml": "<T/>", "word/document.xml": body}), "a.docx")


def test_docx_cut_off_in_the_middle_is_broken() -> None:
    data = builders.make_docx()
    with pytest.raises(ParseError) as caught:
        parse(data[: len(data) // 2], "a.docx")
    assert (caught.value.kind, caught.value.media_type.rpartition(".")[2]) == ("broken", "document")


def test_pptx_maps_slides_and_keeps_notes() -> None:
    document = parse(builders.make_pptx(), "a.pptx")
    assert labelled(document) == [
        ("slide 1", "## Soil\n\n- Sand drains\n  - but dries out"),
        ("slide 2", "## Water\n\n| Month | Litres |\n| --- | --- |\n| May | 40 |\n\nNotes: Mention the rain barrel"),
    ]
    assert document.title == "Soil"


def test_pptx_keeps_a_footer_once() -> None:
    show = pptx.Presentation()
    for title in ("One", "Two"):
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text = title
        [footer] = [
            shape
            for shape in show.slide_layouts[1].placeholders
            if shape.placeholder_format.type == PP_PLACEHOLDER.FOOTER
        ]
        slide.shapes._spTree.append(deepcopy(footer._element))
        slide.placeholders[footer.placeholder_format.idx].text_frame.text = "Confidential"
    buffer = io.BytesIO()
    show.save(buffer)
    assert parse(buffer.getvalue(), "a.pptx").text == "## One\n\n## Two\n\nFooter: Confidential"


def test_phonetic_guides_of_a_workbook_are_no_words() -> None:
    with zipfile.ZipFile(io.BytesIO(builders.make_xlsx())) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    strings = parts["xl/sharedStrings.xml"].decode()
    spoken = '<t>東京</t><rPh sb="0" eb="2"><t>トウキョウ</t></rPh>'
    parts["xl/sharedStrings.xml"] = strings.replace("<t>Spade</t>", spoken, 1).encode()
    text = parse(builders.make_zip(parts), "a.xlsx").text
    assert "東京" in text and "トウキョウ" not in text


def test_a_chart_is_the_table_that_it_draws() -> None:
    def points(values: dict[int, str]) -> str:
        return "".join(f'<c:pt idx="{at}"><c:v>{value}</c:v></c:pt>' for at, value in values.items())

    def series(name: str, values: dict[int, str]) -> str:
        return (
            f"<c:ser><c:tx><c:strCache>{points({0: name})}</c:strCache></c:tx>"
            f"<c:cat><c:strCache>{points({0: 'May', 1: 'June'})}</c:strCache></c:cat>"
            f"<c:val><c:numCache>{points(values)}</c:numCache></c:val></c:ser>"
        )

    chart = (
        '<c:chart xmlns:c="c" xmlns:a="a"><c:title><a:p><a:t>Rain </a:t><a:t>fall</a:t></a:p></c:title>'
        f"{series('North', {0: '4.2999999999999998', 1: '2'})}{series('South', {1: 'n/a'})}</c:chart>"
    )
    assert chart_blocks(chart.encode()) == [
        "Rain fall",
        "|  | North | South |\n| --- | --- | --- |\n| May | 4.3 |  |\n| June | 2 | n/a |",
    ]
    assert chart_blocks(b"<c/>") == []


def test_a_chart_shows_numbers_and_dates_by_their_format() -> None:
    def cache(code: str, *values: str) -> str:
        points = "".join(f'<c:pt idx="{at}"><c:v>{value}</c:v></c:pt>' for at, value in enumerate(values))
        return f"<c:numCache><c:formatCode>{code}</c:formatCode>{points}</c:numCache>"

    def drawn(dates: str, head: str = "") -> list[str]:
        cells = cache("0.0%", "0.25", "0.5"), cache('#,##0 "€"', "1250.5", "0.1")
        name = f"<c:tx>{cache('General', 'Share')}</c:tx>"
        series = "".join(f"<c:ser>{name}<c:cat>{dates}</c:cat><c:val>{each}</c:val></c:ser>" for each in cells)
        [table] = chart_blocks(f'<c:chart xmlns:c="c">{head}{series}</c:chart>'.encode())
        return table.splitlines()[2:]

    rows = ["| 2024-03-05 | 25% | 1250.5 € |", "| 2024-04-05 | 50% | 0.1 € |"]
    assert drawn(cache("d/m/yyyy", "45356", "45387")) == drawn(cache("mmm\\-yy", "45356", "45387")) == rows
    assert drawn(cache("d/m/yyyy", "43894", "43925"), '<c:date1904 val="1"/>') == rows
    assert drawn(cache("General", "2023", "2024"))[0] == "| 2023 | 25% | 1250.5 € |"


def test_pptx_numbers_the_items_of_lists_as_they_state() -> None:
    def paragraph(text: str, scheme: str = "", level: int = 0, start: str = "") -> str:
        number = f'<buAutoNum type="{scheme}" {start}/>' if scheme else ""
        return f'<p><pPr lvl="{level}">{number}</pPr><r><t>{text}</t></r></p>'

    items = [
        paragraph("a", "arabicPeriod"), paragraph("in", "alphaLcParenR", 1), paragraph("in", "alphaLcParenR", 1),
        paragraph("b", "arabicPeriod"), paragraph("bullet"), paragraph("c", "arabicPeriod"),
        *(paragraph(text, "romanUcParenBoth", start='startAt="4"') for text in "de"),
        paragraph("f", "circleNumDbPlain"),
    ]  # fmt: skip
    slide = Slide()
    body = f'<sp><ph type="body"/><txBody>{"".join(items)}</txBody></sp>'
    other = f"<sp><txBody>{paragraph('text', 'arabicPeriod')}</txBody></sp>"
    stream_xml(f"<s>{body}{other}</s>".encode(), slide.start, slide.end, slide.text)
    assert slide.blocks() == [
        "1. a", "  a) in", "  b) in", "2. b", "- bullet", "1. c", "(IV) d", "(V) e", "1. f", "1. text"
    ]  # fmt: skip


def test_pptx_leaves_out_slide_numbers_and_keeps_dates() -> None:
    slide = Slide()
    xml = (
        b"<s><sp><p><r><t>Now </t></r><fld type='datetime1'><t>today</t></fld></p>"
        b"<p><fld type='slidenum'><t>7</t></fld></p></sp></s>"
    )
    stream_xml(xml, slide.start, slide.end, slide.text)
    assert slide.blocks() == ["Now today"]


def test_xlsx_maps_sheets_and_writes_values_as_people_do() -> None:
    document = parse(builders.make_xlsx(), "a.xlsx")
    assert labelled(document) == [
        (
            "sheet Prices",
            "## Prices\n\n| Tool | Price | Since |\n| --- | --- | --- |\n| Spade | 12.5 | 2024-03-01 |\n"
            "| Rake \\| wide | 9 |  |\n\nComment: Sold out",
        ),
        ("sheet Stock", "## Stock\n\nSpade\nRake"),
    ]


def test_xlsx_shows_percentages_as_such_and_times_in_whole_seconds() -> None:
    buffer = io.BytesIO()
    book = xlsxwriter.Workbook(buffer, {"in_memory": True})
    sheet = book.add_worksheet("S")
    percent, own = book.add_format({"num_format": "0%"}), book.add_format({"num_format": '0.0"of"%'})
    moment = book.add_format({"num_format": "yyyy-mm-dd hh:mm"})
    sheet.write_row(2, 1, ["Share", "Own", "Plain", "Time"])
    sheet.write_number(3, 1, 2 / 3, percent)
    sheet.write_number(3, 2, 0.025, own)
    sheet.write_number(3, 3, 0.5)
    sheet.write_number(3, 4, 33966.2604167, moment)
    sheet.write_string(4, 1, "text", percent)
    book.close()
    document = parse(buffer.getvalue(), "a.xlsx")
    assert document.text == (
        "## S\n\n| Share | Own | Plain | Time |\n| --- | --- | --- | --- |\n"
        "| 66.66666667% | 2.5% | 0.5 | 1992-12-28 06:15:00 |\n| text |  |  |  |"
    )


def test_lengths_of_time_are_hours_as_the_sheet_shows_them() -> None:
    buffer = io.BytesIO()
    book = xlsxwriter.Workbook(buffer, {"in_memory": True})
    sheet = book.add_worksheet("S")
    hours, own = book.add_format({"num_format": "[h]:mm"}), book.add_format({"num_format": '[hh]" hours "mm;@'})
    seconds = book.add_format({"num_format": "[h]:mm:ss"})
    sheet.write_row(0, 0, ["Hours", "Own", "Seconds"])
    for at, days in enumerate((42.5 / 24, 7.25 / 24), 1):
        for column, form in enumerate((hours, own, seconds)):
            sheet.write_number(at, column, days, form)
    book.close()
    document = parse(buffer.getvalue(), "a.xlsx")
    assert document.text.splitlines()[4:] == ["| 42:30 | 42:30 | 42:30:00 |", "| 7:15 | 7:15 | 7:15:00 |"]


@pytest.mark.parametrize(
    ("code", "value", "text"),
    [
        ("00000", 1067, "01067"),
        ('"D-"00000', 1067, "D-01067"),
        ("00000", 1067.5, "1067.5"),
        ('#,##0.00 "€"', 1250.5, "1250.5 €"),
        ('_-* #,##0.00\\ "€"_-;\\-* #,##0.00\\ "€"_-;_-* "-"??\\ "€"_-', -1250.5, "-1250.5 €"),
        ("#,##0.00 [$€-407]", 40, "40 €"),
        ("$#,##0.00_);[Red]($#,##0.00)", -5, "-$5"),
        ('_ "CHF" * #,##0_ ', 5, "CHF 5"),
        ('General "kg"', 2.5, "2.5 kg"),
        ('0.0,, "million"', 2_500_000, "2500000"),
        ('[>=1000]0 "many";0', 5, "5"),
        ('0"-"000', 5123, "5123"),
        ("#,##0;(#,##0)", -5, "-5"),
        ('0.0E+00 "m"', 5, "5"),
    ],
)
def test_xlsx_shows_the_unit_and_the_zeros_that_a_format_adds_to_a_number(code: str, value: float, text: str) -> None:
    buffer = io.BytesIO()
    book = xlsxwriter.Workbook(buffer, {"in_memory": True})
    sheet = book.add_worksheet("S")
    sheet.write_row(0, 0, ["Name", "Value"])
    sheet.write_string(1, 0, "a", book.add_format({"num_format": code}))
    sheet.write_number(1, 1, value, book.add_format({"num_format": code}))
    book.close()
    assert parse(buffer.getvalue(), "a.xlsx").text.splitlines()[-1] == f"| a | {text} |"


def test_ods_shows_percentages_and_lengths_of_time_as_such() -> None:
    def row(name: str, *cells: str) -> str:
        name_cell = f'<table:table-cell office:value-type="string"><text:p>{name}</text:p></table:table-cell>'
        return (
            f"<table:table-row>{name_cell}{''.join(f'<table:table-cell {each}/>' for each in cells)}</table:table-row>"
        )

    percent, length = 'office:value-type="percentage" office:value="0.025"', 'office:value-type="time"'
    number = 'office:value-type="float" office:value="0.5"'
    rows = [
        row("a", number, number, number),
        row("b", f'{percent} table:number-columns-repeated="2"', number),
        row("d", 'office:value-type="currency" office:currency="EUR" office:value="1250.5"'),
        row("c", f'{length} office:time-value="PT42H30M00S"', f'{length} office:time-value="-PT01H05M09.4S"', percent),
    ]
    table = f'<office:spreadsheet><table:table table:name="S">{"".join(rows)}</table:table></office:spreadsheet>'
    data = builders.make_odt(table, mimetype="application/vnd.oasis.opendocument.spreadsheet")
    assert parse(data, "a.ods").text == (
        "## S\n\n| a | 0.5 | 0.5 | 0.5 |\n| --- | --- | --- | --- |\n"
        "| b | 2.5% | 2.5% | 0.5 |\n| d | 1250.5 EUR |  |  |\n| c | 42:30:00 | -1:05:09 | 2.5% |"
    )


def test_xlsx_keeps_raised_and_lowered_signs_of_a_cell_apart() -> None:
    """Unless another cell has the same text without them."""
    buffer = io.BytesIO()
    book = xlsxwriter.Workbook(buffer, {"in_memory": True})
    sheet = book.add_worksheet("S")
    up, down = book.add_format({"font_script": 1}), book.add_format({"font_script": 2})
    sheet.write_row(0, 0, ["Name", "Value"])
    sheet.write_rich_string(1, 0, "Area in m", up, "2")
    sheet.write_rich_string(1, 1, "3·10", up, "-3", " to 5·10", up, "4")
    sheet.write_rich_string(2, 0, "CO", down, "2", " of 1990", up, "1")
    sheet.write_rich_string(3, 0, "Row 10", up, "2", " of it")
    sheet.write_string(4, 0, "Row 102 of it")
    book.close()
    rows = parse(buffer.getvalue(), "a.xlsx").text.splitlines()[4:]
    assert rows == [
        "| Area in m² | 3·10⁻³ to 5·10⁴ |",
        "| CO2 of 1990 1 |  |",
        "| Row 102 of it |  |",
        "| Row 102 of it |  |",
    ]


def test_odt_keeps_headings_numbers_tables_and_notes() -> None:
    data = builders.make_odt(
        '<office:text><text:h text:outline-level="1">Top</text:h><text:p>Some<text:s text:c="2"/>text<text:note>'
        "<text:note-citation>1</text:note-citation><text:note-body><text:p>A note</text:p></text:note-body></text:note>"
        ".</text:p><text:list><text:list-item><text:p>one</text:p></text:list-item></text:list>"
        "<table:table><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell><table:table-cell>"
        "<text:p>b</text:p></table:table-cell></table:table-row></table:table></office:text>"
    )
    document = parse(data, "a.odt")
    assert document.text == "# Top\n\nSome  text[^1].\n\n[^1]: A note\n\n- one\n\n| a | b |"
    assert document.title == "Top"


def test_odt_lists_go_on_with_others_and_begin_where_they_state() -> None:
    def listed(items: str, attributes: str = "") -> str:
        return f'<text:list text:style-name="L" {attributes}>{items}</text:list><text:p>Then:</text:p>'

    def item(text: str, attributes: str = "") -> str:
        return f"<text:list-item {attributes}><text:p>{text}</text:p></text:list-item>"

    level = '<text:list-level-style-number text:level="1" style:num-format="1" text:start-value="2"/>'
    body = (
        f'<office:automatic-styles><text:list-style style:name="L">{level}</text:list-style></office:automatic-styles>'
        + listed(item("a") + item("b"), 'xml:id="l1"')
        + listed(item("c"), 'text:continue-numbering="true" xml:id="l2"')
        + listed(item("d") + item("e", 'text:start-value="10"') + item("f"))
        + listed(item("g"), 'text:continue-list="l2"')
    )
    lines = parse(builders.make_odt(body), "a.odt").text.split("\n")
    assert [line for line in lines if line not in ("", "Then:")] == [
        "2. a", "3. b", "4. c", "2. d", "10. e", "11. f", "5. g"
    ]  # fmt: skip


def test_odt_keeps_fields_and_sets_the_names_of_pictures_apart() -> None:
    body = (
        "<text:p>Bonn, <text:date>5 May</text:date>, <text:title>Rules</text:title> by <text:creator>Ann</text:creator>"
        "<draw:frame><draw:image/><svg:title>Logo</svg:title><svg:desc>A logo</svg:desc></draw:frame>."
        "<office:annotation><dc:creator>Bob</dc:creator><dc:date>2024</dc:date><text:p>why</text:p></office:annotation>"
        "</text:p>"
    )
    data = builders.make_odt(f'<office:text xmlns:svg="svg" xmlns:dc="dc">{body}</office:text>')
    assert parse(data, "a.odt").text == "Bonn, 5 May, Rules by Ann.\n\nLogo\n\nA logo\n\nComment: why"


def test_odp_maps_slides() -> None:
    data = builders.make_odt(
        "<office:presentation><draw:page><draw:frame><draw:text-box><text:p>One</text:p></draw:text-box></draw:frame>"
        "<presentation:notes><text:p>say it</text:p></presentation:notes></draw:page><draw:page><draw:frame>"
        "<draw:text-box><text:p>Two</text:p></draw:text-box></draw:frame></draw:page></office:presentation>",
        mimetype="application/vnd.oasis.opendocument.presentation",
    )
    assert labelled(parse(data, "a.odp")) == [("slide 1", "One\n\nNotes: say it"), ("slide 2", "Two")]


def test_odf_with_a_password_is_encrypted() -> None:
    manifest = '<manifest:manifest xmlns:manifest="m"><manifest:encryption-data/></manifest:manifest>'
    with raises_with(ParseError, kind="encrypted"):
        parse(builders.make_odt("<office:text/>", manifest=manifest), "a.odt")


@pytest.mark.parametrize(
    ("rtf", "text"),
    [
        (rb"{\rtf1\ansi\ansicpg1252 caf\'e9 \u8364?5\par next}", "café €5\n\nnext"),
        (rb"{\rtf1\ansi{\fonttbl{\f0\fcharset204 A;}{\f1\fcharset238 B;}}\f0\'c4\'e0 \f1\'e8}", "Да č"),
        (rb"{\rtf1{\stylesheet{\s1 heading 1;}}\pard\s1 Top\par\pard body\par}", "Top\n\nbody"),
        (rb"{\rtf1\trowd\intbl a\cell b\cell\row\pard after}", "a\n\nb\n\nafter"),
        (rb"{\rtf1{\pict 0102abcd}{\*\unknown hidden}seen {\footnote a note}}", "seen [^1]\n\n[^1]: a note"),
        (
            rb"{\rtf1 40 euros{\super\chftn{\footnote\pard\plain{\super\chftn} Half.\par\bin3 }}{ for pupils}}"
            rb" per year{\*\footnote\ftnalt\pard At {\deleted the }the end}.\par Next{\footnote b}.\par}\n\x00junk",
            "40 euros[^1] per year[^e1].\n\nNext[^2].\n\n[^1]: Half.\n\nfor pupils\n\n[^2]: b\n\n[^e1]: At the end",
        ),
        (
            rb"{\rtf1 A {\*\atrfstart 1}fee{\*\atrfend 1}{\*\atnid A}{\*\atnauthor Ann}\chatn"
            rb"{\*\annotation{\*\atnref 1}\pard\plain {\chatn}Too high}{\*\annotation Why} due.}",
            "A fee due.\n\nComment by Ann: Too high\n\nComment: Why",
        ),
        (
            rb"{\rtf1 a {\deleted\revauthdel1 gone {\b too}\bin2 }}{\footnote no}}b \deleted gone\deleted0 c"
            rb" {\deleted0 d} \deleted gone\par\plain e {\footnote open",
            "a b c d e [^1]\n\n[^1]: open",
        ),
        (rb"{\rtf1{\upr{no}{\*\ud{yes}}} \bin4 }{\\{ok}", "yes ok"),
        (rb"{\rtf1{\field{\*\fldinst HYPERLINK x}{\fldrslt shown}}}", "shown"),
        (rb"{\rtf1 kept\par}\n\x00junk behind", "kept"),
        (rb"{\rtf1\uc2\u20013ab\u25991cd!}", "中文!"),
        (rb"{\rtf1\newword3{\newtable x}{\*\newer y} a\newsign5  word{\*\newdest gone}\par}", "a word"),
        (rb"{\rtf1{\fonttbl{\f0 A;}}{\upr{\stylesheet{\s1 B;}}{\*\ud{\stylesheet{\s1 B;}}}}{\b all} in}", "all in"),
    ],
)  # fmt: skip
def test_rtf(rtf: bytes, text: str) -> None:
    assert parse(rtf, "a.rtf").text == text


def test_rtf_that_never_closes_is_read_as_far_as_it_goes() -> None:
    assert parse(rb"{\rtf1 some {\b bold {\i text \par more", "a.rtf").text == "some bold text\n\nmore"


def test_rtf_of_a_word_processor() -> None:
    document = parse(builders.sample("tools.rtf"), "a.rtf")
    assert document.text == (
        "Garden club\n\nPrinted on paper\n\nBlades\n\nClean the blade after use. 𐌲𐌿\n\n"
        "- Sharpen it in spring.\n- Oil it in autumn.\n\nPrices\n\nTool\n\nPrice\n\nSpade\n\n12.50\n\n"
        "1. First, wash.\n2. Then, dry."
    )
    assert (document.title, document.metadata["author"]) == ("Care of garden tools", "Grüße")


def test_doc_keeps_headings_lists_tables_headers_and_footers() -> None:
    document = parse(builders.sample("tools.doc"), "a.doc")
    assert document.text == (
        "Garden club\n\n# Blades\n\nClean the blade after use. 𐌲𐌿\n\n- Sharpen it in spring.\n- Oil it in autumn.\n\n"
        "## Prices\n\n| Tool | Price |\n| --- | --- |\n| Spade | 12.50 |\n\n1. First, wash.\n2. Then, dry.\n\n"
        "Printed on paper"
    )
    assert (document.title, document.metadata["author"]) == ("Care of garden tools", "Grüße")
    assert document.metadata["created_at"].startswith("2013-12-23T")
    assert (document.media_type, document.warnings) == ("application/msword", ())


def test_ppt_maps_slides_and_keeps_notes_and_what_stands_on_the_master_once() -> None:
    document = parse(builders.sample("soil.ppt"), "a.ppt")
    assert labelled(document) == [
        ("slide 1", "Soil\n\n- Sand drains\n- but dries out"),
        ("slide 2", "Water\n\nNotes: Mention the rain barrel"),
    ]
    assert document.text.endswith("\n\nOn the slide master: Garden club 2024")
    assert document.text.count("Garden club") == 1


def test_the_same_document_gives_the_same_text_every_time() -> None:
    data = builders.sample("tools.doc")
    assert len({parse(data, "a.doc").text for _ in range(5)}) == 1


@pytest.mark.parametrize("name", ["tools.doc", "soil.ppt"])
def test_old_documents_cut_off_in_the_middle_are_broken(name: str) -> None:
    data = builders.sample(name)
    with pytest.raises(ParseError) as caught:
        parse(data[: len(data) // 8], name)
    assert caught.value.kind in ("broken", "unsupported")


@pytest.mark.parametrize("data", [builders.make_doc("x" * 50, encrypted=True), builders.make_ppt(encrypted=True)])
def test_a_locked_doc_or_ppt_is_encrypted(data: bytes) -> None:
    with raises_with(ParseError, kind="encrypted"):
        parse(data, "a.doc")


def test_xls_of_excel_4_is_read() -> None:
    document = parse(builders.make_biff4([["Tool", "Price"], ["Spade", 12.5]]), "a.xls")
    assert document.media_type == "application/vnd.ms-excel"
    assert [word for word in ("Tool", "Price", "Spade", "12.5") if word not in document.text] == []


def test_a_workbook_under_the_password_that_is_built_into_excel_is_read() -> None:
    document = parse(builders.sample("protected.xlsx"), "a.xlsx")
    assert labelled(document)[0] == (
        "sheet Prices",
        "# Prices\n\n| Tool | Price | Since |\n| --- | --- | --- |\n| Spade | 12.5 | 2024-03-01 |\n"
        "| Rake \\| wide B: Sold out | 9 |  |",
    )


def test_a_locked_office_document_is_encrypted() -> None:
    data = builders.make_ole({"EncryptionInfo": b"x", "EncryptedPackage": b"y"})
    with raises_with(ParseError, kind="encrypted") as caught:
        parse(data, "a.xlsx")
    assert "password" in caught.value.message


def test_outlook_message() -> None:
    data = builders.make_msg({"0037": "Grüße", "1000": "Hello\r\nthere", "0C1A": "Ann", "0E04": "Bob"})
    document = parse(data, "a.msg")
    assert document.text == "# Grüße\n\nFrom: Ann\nTo: Bob\n\nHello\nthere"
    assert (document.title, document.metadata["author"]) == ("Grüße", "Ann")


def test_word_2003_xml_and_flat_packages_are_read() -> None:
    body = "<w:body><w:p><w:r><w:t>old xml</w:t></w:r></w:p></w:body>"
    old = f'<?xml version="1.0"?><w:wordDocument xmlns:w="http://schemas.microsoft.com/office/word/2003/wordml">{body}</w:wordDocument>'
    assert parse(old.encode(), "a.xml").text == "old xml"
    flat = (
        '<?xml version="1.0"?><pkg:package xmlns:pkg="http://schemas.microsoft.com/office/2006/xmlPackage">'
        f'<pkg:part pkg:name="/word/document.xml"><pkg:xmlData><w:document {WORD}>{body}</w:document></pkg:xmlData>'
        "</pkg:part></pkg:package>"
    )
    assert parse(flat.encode(), "a.xml").text == "old xml"
