"""PDF: text and page map, properties, locked, scanned, cut off, hostile.
What stands on a PDF page beside its text: form fields, files, addresses of links.
Text of a PDF that nobody sees is left out with a warning; text that shows, or that a scan needs, stays."""

from __future__ import annotations

import re
import zlib

import pytest

from ragd.readers import ParseError, ParseLimits, parse
from ragd.readers.arrangement.shapes import PlacedWord
from ragd.readers.assembly import read_document
from ragd.readers.pdf import glyphs as pieces
from ragd.readers.pdf.glyphs import PageWords
from ragd.readers.pdf.reader import _render, _turn_phrases
from ragd.readers.types import ParsedDocument, Source
from tests.parsing.builders import _Pdf, deflated_zeros, make_pdf, sample
from tests.refusals import raises_with


def test_each_page_is_a_slice_with_its_label() -> None:
    document = parse(make_pdf(["First page (one)", "Second page\nwith two lines"], title="A Title"), "a.pdf")
    assert not document.is_partial
    assert document.text == "First page (one)\n\nSecond page\nwith two lines"
    assert [(document.text[start:end], label) for start, end, label in document.page_map] == [
        ("First page (one)", "page 1"),
        ("Second page\nwith two lines", "page 2"),
    ]
    assert document.title == "A Title"
    assert document.metadata["pages"] == 2
    assert document.warnings == ()


@pytest.mark.parametrize(
    ("stated", "title"),
    [
        ("Microsoft Word - Report 7.doc", "Report 7"),
        ("Microsoft Word - annual_report.docx", ""),
        ("pdf-form-with-signature-field", ""),
        ("SCAN_0001.PDF", ""),
        ("Untitled", ""),
        ("Page 1", ""),
        ("Slide 1", ""),
        ("about:blank", ""),  # of a browser that printed a page without an address
        ("Presentation2", ""),
        ("E-Mail", "E-Mail"),
        ("Follow-up of the X-ray-free year", "Follow-up of the X-ray-free year"),
        ("Node.js", "Node.js"),
        ("Grüße", "Grüße"),
    ],
)
def test_a_title_that_says_nothing_gives_way_to_the_name(stated: str, title: str) -> None:
    assert parse(make_pdf(["x"], title=stated), "a.pdf").title == title


def test_a_heading_that_looks_like_a_name_is_a_title() -> None:
    assert parse(b"# my-own-little-package\n\nIt parses.", "readme.md").title == "my-own-little-package"


def test_a_password_is_named_as_the_reason() -> None:
    with raises_with(ParseError, kind="encrypted", media_type="application/pdf") as caught:
        parse(make_pdf(["secret"], password="open sesame"), "a.pdf")
    assert "password" in caught.value.message


def test_an_owner_password_alone_does_not_lock() -> None:
    data = make_pdf(["open to all"], password="")
    document = parse(data, "a.pdf")
    assert document.text == "open to all"


def test_scanned_pages_are_reported() -> None:
    document = parse(make_pdf(["words", "", "more"], image_pages=[2]), "a.pdf")
    assert document.text == "words\n\nmore"
    assert [label for _, _, label in document.page_map] == ["page 1", "page 3"]
    assert document.metadata["scanned_pages"] == [2]
    assert document.is_partial
    assert document.warnings == (
        "Page 2 of 3 holds only pictures and gave no text. Text recognition (OCR) would add it.",
    )


def test_several_scanned_pages_are_named_and_so_is_a_picture_with_a_stamp() -> None:
    pages = ["words " * 12, "", "Scanned by X", ""]
    document = parse(make_pdf(pages, image_pages=[2, 4], pictured_pages=[3]), "a.pdf")
    assert document.metadata["scanned_pages"] == [2, 4]
    assert document.metadata["pictured_pages"] == [3]
    assert [warning.split(" of ")[0] for warning in document.warnings] == ["Pages 2, 4", "Page 3"]
    assert "Scanned by X" in document.text


def test_a_word_that_goes_on_in_the_next_line_is_joined() -> None:
    document = parse(make_pdf(["A long line about the inven-\ntion of the wheel in 12-\n13 days"]), "a.pdf")
    assert document.text == "A long line about the invention of the wheel in 12-13 days"


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("e\u21b5orts o\u21b5-the-shelf \u21b5", "efforts off-the-shelf \u21b5"),
        ("press \u21b5\n to go on", "press \u21b5\n to go on"),
    ],
)
def test_ligatures_with_a_wrong_name_are_corrected(shown: str, text: str) -> None:
    read = list(shown)
    pieces.name_glyphs(None, shown, read, int)  # type: ignore[arg-type]
    assert "".join(read) == text


@pytest.mark.fault("N-06")
@pytest.mark.parametrize(
    ("before", "after", "read"),
    [
        ("COVID", "19", "COVID-19"),
        ("Baden", "Württemberg", "Baden-Württemberg"),
        ("state-of-the", "art", "state-of-the-art"),
        ("e", "mail", "e-mail"),
        ("inven", "tion", "invention"),
        ("INVEN", "TION", "INVENTION"),
        ("as well-known, a well", "known man", "as well-known, a well-known man"),
    ],
)
def test_a_hyphen_at_a_line_end_stays_where_the_word_has_it(before: str, after: str, read: str) -> None:
    document = parse(make_pdf([f"A long line about the thing {before}-\n{after} and more words in it"]), "a.pdf")
    assert document.text == f"A long line about the thing {read} and more words in it"


@pytest.mark.parametrize(
    ("shown", "read"),
    [
        ("Die Dampf~\nschifffahrtsgesell~\nschaft steigt", "Die Dampfschifffahrtsgesellschaft steigt"),
        ("a well~known man, as well~\nknown as", "a well\u2010known man, as well-known as"),
        ("von Baden~\nBaden nach Rhein~Main", "von Baden-Baden nach Rhein\u2010Main"),
        ("from 2019~\n2020 ~\nand on", "from 2019\u2010\n2020 \u2010\nand on"),
    ],
)
def test_a_word_divided_at_a_soft_hyphen_is_joined(shown: str, read: str) -> None:
    assert parse(make_pdf([shown], reads={"~": "\u2010"}), "a.pdf").text == read


def test_letters_drawn_one_by_one_are_words_beside_an_empty_strip() -> None:
    drawn = []
    for row, cells in enumerate([("Sum up", "12"), ("been", "31"), ("seen so", "24"), ("deep", "15")]):
        for x, text in zip((60, 300), cells, strict=True):
            for place, letter in enumerate(text):
                drawn.append(f"BT /F 12 Tf {x + 7 * place} {700 - 12 * row} Td ({letter}) Tj ET" * (letter != " "))
    document = parse(make_pdf([""], content=zlib.compress(zlib.compress("\n".join(drawn).encode()))), "a.pdf")
    assert document.text == "| Sum up | 12 |\n| --- | --- |\n| been | 31 |\n| seen so | 24 |\n| deep | 15 |"
    shown = [document.text[word.start : word.end] for word in document.layout[0].words]
    assert shown == ["Sum", "up", "12", "been", "31", "seen", "so", "24", "deep", "15"]


def spelled(line: str, x: int, step: int) -> bytes:
    """A page with a line whose letters stand each behind the one before, named as Chromium names shaped ones."""
    drawn = [f"BT /F 12 Tf {x} 700 Td"]
    for letter in line:
        shown = (
            f"({letter}) Tj" if letter.isascii() else f"/Span <</ActualText <FEFF{ord(letter):04X}>>> BDC (a) Tj EMC"
        )
        drawn.append(f"{shown} {step} 0 Td")
    return make_pdf([""], content=zlib.compress(zlib.compress("\n".join([*drawn, "ET"]).encode())))


@pytest.mark.parametrize("read", ["مرحبا", "مرحبا 25 بكم", "مرحبا، ٦٧ بكم"])
def test_letters_drawn_from_the_left_are_read_from_the_right(read: str) -> None:
    numbers = re.sub(r"\d+", lambda match: match.group()[::-1], read)
    assert parse(spelled(numbers[::-1], 60, 7), "a.pdf").text == read


@pytest.mark.parametrize(
    ("drawn", "read"),
    [
        ("open and مكب 25 ابحرم done on and on", "open and مرحبا 25 بكم done on and on"),
        ("open and ابحرم done", "open and مرحبا done"),
    ],
)
def test_phrases_from_right_to_left_are_read_so_in_lines_of_other_scripts(drawn: str, read: str) -> None:
    assert parse(spelled(drawn, 60, 7), "a.pdf").text == read


def test_words_that_step_back_in_a_line_from_right_to_left_are_turned_round() -> None:
    places = [("שלום", 500), ("morning", 456), ("good", 420), ("עולם", 380)]
    words = [PlacedWord(text, x, 40, x + 36, 52, " " if text != "שלום" else "\n") for text, x in places]
    turned = _turn_phrases(PageWords("", words, 0, {}, 600, 800))
    assert turned.text == "שלום good morning עולם"
    assert [word.x0 for word in turned.words] == [500, 420, 456, 380]


@pytest.mark.parametrize("read", ["مرحبا", "مرحبا بكم"])
def test_letters_drawn_from_the_right_keep_their_order(read: str) -> None:
    assert parse(spelled(read, 400, -7), "a.pdf").text == read


def test_words_from_right_to_left_beside_turned_ones_stay_in_one_line() -> None:
    line = [PlacedWord(f"word{n}", 60 + 30 * n, 40, 88 + 30 * n, 50, " ") for n in range(9)]
    for number, text in enumerate(["שלום", "2026", "עולם"]):
        x, inset = 200 - 30 * number, 3 * (number % 2)
        line.append(PlacedWord(text, x, 60 + inset, x + 27, 70 - inset, " " if number else "\n"))
    line.append(PlacedWord("sideways", 500, 60, 510, 110, " "))
    shown = _render(PageWords("", line, 0, {12: 1}, 600, 800), []).text
    assert "\nשלום 2026 עולם\n" in shown


@pytest.mark.fault("N-05")
@pytest.mark.parametrize(
    ("base", "raised", "rest", "read"),
    [
        ("of 10", "3", " litres", "of 10³ litres"),
        ("of 10", "-6", " litres", "of 10-⁶ litres"),
        ("area 12 m", "2", ", about", "area 12 m², about"),
        ("in 2025", "12", " by five", "in 2025 12 by five"),
        ("in 2010", "3", ", by five", "in 2010 3, by five"),
        ("some words", "7", " follow", "some words 7 follow"),
        ("some words.", "7", " Then", "some words.7 Then"),
    ],
)
def test_superscripts_are_no_part_of_a_number(base: str, raised: str, rest: str, read: str) -> None:
    drawn = f"BT /F 11 Tf 60 700 Td ({base}) Tj /F 7 Tf 4 Ts ({raised}) Tj 0 Ts /F 11 Tf ({rest}) Tj ET".encode()
    document = parse(make_pdf([""], content=zlib.compress(zlib.compress(drawn))), "a.pdf")
    assert document.text == read.replace("10-⁶", "10⁻⁶")
    assert [document.text[word.start : word.end] for page in document.layout for word in page.words]


@pytest.mark.fault("N-05")
def test_subscripts_and_plain_numbers_stay_as_they_are() -> None:
    drawn = b"BT /F 11 Tf 60 700 Td (H) Tj /F 7 Tf -3 Ts (2) Tj 0 Ts /F 11 Tf (O and 2025 and B12) Tj ET"
    assert parse(make_pdf([""], content=zlib.compress(zlib.compress(drawn))), "a.pdf").text == "H2O and 2025 and B12"


@pytest.mark.fault("PDF-04")
def test_columns_of_a_page_from_right_to_left_begin_at_the_right() -> None:
    lines = parse(sample("hebrew_interleaved.pdf"), "a.pdf").text.split("\n")
    assert [line.split()[0] for line in lines] == ["ימין"] * 12 + ["שמאל"] * 12


@pytest.mark.fault("PDF-04")
def test_the_right_column_comes_first_also_where_the_left_one_was_drawn_first() -> None:
    words = []
    for name, right in (("שמאל", 270), ("ימין", 540)):
        for row in range(12):
            for number, text in enumerate([name, "שלום", "עולם", "קצר", "לבדיקה"]):
                x = right - 34 * number
                words.append(PlacedWord(text, x - 30, 100 + 14 * row, x, 112 + 14 * row, " " if number else "\n"))
    shown = _render(PageWords("\n".join(word.text for word in words), words, False, {}, 600, 800), []).text
    assert [line.split()[0] for line in shown.split("\n") if line] == ["ימין"] * 12 + ["שמאל"] * 12


@pytest.mark.fault("PDF-04")
def test_a_table_of_a_page_from_right_to_left_has_its_first_column_at_the_right() -> None:
    words = []
    for row, cells in enumerate([("מוצר", "כמות", "מחיר"), *(("תפוח", f"{n}", f"{n}0") for n in range(3, 8))]):
        for column, text in enumerate(cells):
            right = 550 - 150 * column
            words.append(PlacedWord(text, right - 40, 100 + 20 * row, right, 112 + 20 * row, " " if column else "\n"))
    for order in (words, sorted(words, key=lambda word: -word.x1)):
        text = "\n".join(word.text for word in order)
        shown = _render(PageWords(text, [w._replace(gap="\n") for w in order], False, {}, 600, 800), []).text
        assert shown.startswith("| מוצר | כמות | מחיר |\n")
        assert "| תפוח | 3 | 30 |" in shown


@pytest.mark.fault("PDF-04")
def test_words_of_another_direction_keep_their_order_in_a_line_from_right_to_left() -> None:
    words = []
    for row in range(12):
        places = [("שלום", 500), ("plain", 380), ("english", 420), ("words", 460), ("עולם", 340)]
        for number, (text, left) in enumerate(places):
            words.append(PlacedWord(text, left, 100 + 20 * row, left + 36, 112 + 20 * row, " " if number else "\n"))
    text = "\n".join(["שלום plain english words עולם"] * 12)
    assert _render(PageWords(text, words, False, {}, 600, 800), []).text == text


@pytest.mark.fault("PDF-06")
def test_a_glyph_that_stands_for_nul_is_counted() -> None:
    document = parse(sample("nul_by_tounicode.pdf"), "a.pdf")
    assert document.text == "oe\nplain quixotic words"
    assert any("(1)" in warning for warning in document.warnings)


def test_only_scanned_pages_are_an_error() -> None:
    with raises_with(ParseError, kind="scanned") as caught:
        parse(make_pdf(["", ""], image_pages=[1, 2]), "a.pdf")
    assert caught.value.pages == (1, 2)


def test_blank_pages_are_empty_not_scanned() -> None:
    with raises_with(ParseError, kind="empty"):
        parse(make_pdf(["", ""]), "a.pdf")


@pytest.mark.parametrize("cut", [9, 200, 700])
def test_a_cut_off_file_is_broken(cut: int) -> None:
    with pytest.raises(ParseError) as caught:
        parse(make_pdf(["text"])[:cut], "a.pdf")
    assert caught.value.kind in ("broken", "empty")


def test_pages_that_point_at_themselves_end() -> None:
    data = make_pdf(["text"]).replace(b"/Kids [5 0 R]", b"/Kids [3 0 R]")
    with pytest.raises(ParseError) as caught:
        parse(data, "a.pdf")
    assert caught.value.kind in ("broken", "empty")


def test_a_flate_bomb_ends_the_child_only() -> None:
    bomb = make_pdf(["x", "y"], content=deflated_zeros(400 * 1024 * 1024))
    assert len(bomb) < 10_000
    with pytest.raises(ParseError) as caught:
        parse(bomb, "a.pdf", limits=ParseLimits(memory_mb=256, timeout_s=20))
    assert caught.value.kind in ("memory", "crashed", "timeout")
    assert parse(b"still here", "a.txt").text == "still here"


def test_text_outside_of_the_page_is_left_out() -> None:
    drawn = b"BT /F 12 Tf 50 720 Td (inside) Tj ET BT /F 12 Tf 900 720 Td (outside) Tj ET"
    content = zlib.compress(zlib.compress(drawn))
    assert parse(make_pdf(["x"], content=content), "a.pdf").text == "inside"


BOX = b"/Type /Annot /Subtype /Widget /F 4 /Rect [%d 600 %d 620]"


def make_annotated(content: bytes = b"BT /F 12 Tf 50 720 Td (Form) Tj ET") -> bytes:
    pdf = _Pdf(None)
    font = pdf.add(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    off = pdf.add_stream(b"<< /Type /XObject /Subtype /Form /BBox [0 0 20 20]", b"")
    states = b"/AP << /N << /Yes %d 0 R /Off %d 0 R >> >>" % (off, off)
    held = pdf.add_stream(b"<< /Type /EmbeddedFile", b"Words of the file inside.")
    spec = pdf.add(b"<< /Type /Filespec /F (notes.txt) /UF (notes.txt) /EF << /F %d 0 R >> >>" % held)
    fields = [
        pdf.add(b"<< %s /FT /Btn /T (Smoker) /V /Yes /AS /Yes %s >>" % (BOX % (10, 30), states)),
        pdf.add(b"<< %s /FT /Btn /T (Married) /V /Off /AS /Off %s >>" % (BOX % (40, 60), states)),
        pdf.add(b"<< %s /FT /Ch /Ff 131072 /T (Colour) /Opt [(Red) (Blue)] /V (Blue) >>" % (BOX % (70, 130))),
        pdf.add(b"<< %s /FT /Tx /T (n1) /TU (Your name) /V (Ada Lovelace) >>" % (BOX % (140, 200))),
        pdf.add(b"<< %s /FT /Tx /Ff 8192 /T (Secret) /V (hunter2) >>" % (BOX % (210, 260))),
    ]
    others = [
        pdf.add(b"<< /Type /Annot /Subtype /FileAttachment /Rect [10 500 30 520] /FS %d 0 R >>" % spec),
        pdf.add(
            b"<< /Type /Annot /Subtype /Link /Rect [10 400 30 420] /A << /S /URI /URI (https://example.org/a) >> >>"
        ),
    ]
    stream = pdf.add_stream(b"<<", content)
    tree = pdf.reserve()
    page = pdf.add(
        b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 612 792] /Contents %d 0 R /Annots [%s]"
        b" /Resources << /Font << /F %d 0 R >> >> >>"
        % (tree, stream, b" ".join(b"%d 0 R" % each for each in [*fields, *others]), font)
    )
    pdf.set(tree, b"<< /Type /Pages /Count 1 /Kids [%d 0 R] >>" % page)
    form = pdf.add(b"<< /Fields [%s] >>" % b" ".join(b"%d 0 R" % each for each in fields))
    root = pdf.add(b"<< /Type /Catalog /Pages %d 0 R /AcroForm %d 0 R >>" % (tree, form))
    return pdf.finish(root, pdf.add(b"<< >>"))


def read(data: bytes, *, keep: bool = True) -> ParsedDocument:
    return read_document(Source(data, "a.pdf", "", ParseLimits(keep_attachments=keep)))


@pytest.mark.fault("N-18")
def test_values_of_form_fields_are_read_whether_drawn_or_not() -> None:
    text = read(make_annotated()).text
    assert "☒ Smoker" in text and "☐ Married" in text
    assert "Blue" in text and "Ada Lovelace" in text
    assert "Red" not in text and "hunter2" not in text


@pytest.mark.fault("N-19")
def test_a_file_in_an_annotation_is_attached() -> None:
    (file,) = read(make_annotated()).attachments
    assert (file.name, file.data) == ("notes.txt", b"Words of the file inside.")


def test_addresses_of_links_are_read_once() -> None:
    shown = b"BT /F 12 Tf 50 720 Td (Form at https://example.org/a) Tj ET"
    assert "Links: https://example.org/a" in read(make_annotated()).text
    assert read(make_annotated(shown)).text.count("https://example.org/a") == 1


SHOWN = b"BT /F 12 Tf 0 g 50 720 Td (plainly shown) Tj ET "
PICTURE = b"q %d 0 0 %d %d %d cm /Im Do Q "


def make(content: bytes, *, grey: int = 0x80, off: bool = True) -> bytes:
    """A page with a font F, a picture Im of one grey pixel, a layer L that is off, and a form X on that layer."""
    pdf = _Pdf(None)
    font = pdf.add(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    image = pdf.add_stream(
        b"<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8",
        bytes([grey]),
    )
    layer = pdf.add(b"<< /Type /OCG /Name (Notes) >>")
    fonts = b"/Font << /F %d 0 R >>" % font
    form = pdf.add_stream(
        b"<< /Type /XObject /Subtype /Form /OC %d 0 R /BBox [0 0 612 792] /Resources << %s >>" % (layer, fonts),
        b"BT /F 12 Tf 50 500 Td (secret) Tj ET",
    )
    plain = pdf.add_stream(
        b"<< /Type /XObject /Subtype /Form /BBox [0 0 300 300] /Resources << %s >>" % fonts,
        b"BT /F 12 Tf 1 g 10 10 Td (secret) Tj ET",
    )
    stream = pdf.add_stream(b"<< /Filter /FlateDecode", zlib.compress(content))
    tree = pdf.reserve()
    page = pdf.add(
        b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 612 792] /Contents %d 0 R /Resources << %s"
        b" /XObject << /Im %d 0 R /X %d 0 R /P %d 0 R >> /Properties << /L %d 0 R >>"
        b" /ExtGState << /Clear << /ca 0 >> /Faint << /ca 0.5 >> >> >> >>"
        % (tree, stream, fonts, image, form, plain, layer)
    )
    pdf.set(tree, b"<< /Type /Pages /Count 1 /Kids [%d 0 R] >>" % page)
    state = b"/OFF [%d 0 R]" % layer if off else b"/ON [%d 0 R]" % layer
    root = pdf.add(
        b"<< /Type /Catalog /Pages %d 0 R /OCProperties << /OCGs [%d 0 R] /D << %s >> >> >>" % (tree, layer, state)
    )
    return pdf.finish(root, pdf.add(b"<< >>"))


def read_of_pdf_hidden(data: bytes) -> ParsedDocument:
    return read_document(Source(data, "a.pdf", "", ParseLimits()))


def text(setup: bytes, *, at: bytes = b"60 400", word: bytes = b"secret") -> bytes:
    return b"q BT /F 12 Tf %s %s Td (%s) Tj ET Q " % (setup, at, word)


def hidden_chars(document: ParsedDocument) -> int:
    """As the warning counts them."""
    counts = [int(found.group(1)) for each in document.warnings if (found := re.search(r"\((\d+) characters", each))]
    return sum(counts)


HIDDEN = {
    "white on white": text(b"1 g"),
    "nearly white": text(b"0.98 0.99 0.97 rg"),
    "white in a form moved over the page": b"q 1 0 0 1 50 300 cm /P Do Q ",
    "white on a white box on a dark one": b"0 g 0 300 612 200 re f 1 g 40 380 200 60 re f " + text(b"1 g"),
    "red on a red box": b"0.9 0.1 0.1 rg 40 380 200 60 re f " + text(b"0.91 0.1 0.12 rg"),
    "dark on a dark page": b"0.1 g 0 0 612 792 re f " + text(b"0.1 g") + text(b"1 g", at=b"60 200", word=b"light"),
    "white on a white picture": PICTURE % (400, 400, 50, 200) + text(b"1 g"),
    "not painted": text(b"3 Tr"),
    "not painted on a coloured box": b"0.8 0.9 1 rg 40 380 200 60 re f " + text(b"0 g 3 Tr"),
    "not painted beside a picture": PICTURE % (100, 100, 300, 100) + text(b"3 Tr"),
    "clipping nothing": text(b"7 Tr"),
    "white outline": text(b"1 Tr 1 G"),
    "transparent": text(b"/Clear gs"),
    "on a layer that is off": b"/OC /L BDC " + text(b"0 g") + b"EMC ",
    "in a form on a layer that is off": b"/X Do ",
    "on a layer over a picture": PICTURE % (400, 400, 50, 350) + b"/OC /L BDC " + text(b"0 g") + b"EMC ",
    "beyond the page": text(b"0 g", at=b"2000 400"),
    "without a size": text(b"0 g 0.01 0 0 0.01 60 400 cm", at=b"0 0"),
}
SEEN = {
    "recognized text over a scan": PICTURE % (612, 792, 0, 0) + text(b"3 Tr"),
    "recognized text over a strip of a scan": PICTURE % (400, 30, 50, 390) + text(b"3 Tr"),
    "recognized text under a scan": text(b"3 Tr") + PICTURE % (612, 792, 0, 0),
    "plain text under a scan": text(b"0 g") + PICTURE % (612, 792, 0, 0),
    "transparent text over a scan": PICTURE % (612, 792, 0, 0) + text(b"/Clear gs"),
    "unpainted over letters drawn as paths": b"0 g 60 400 8 9 re 72 400 6 9 re 82 400 8 9 re f " + text(b"3 Tr"),
    "white on a dark box": b"0 0 0.4 rg 40 380 200 60 re f " + text(b"1 g"),
    "white on a dark shape": b"0 0 0.4 rg 40 380 m 240 380 l 260 410 l 240 440 l 40 440 l 20 410 l f " + text(b"1 g"),
    "white on a header bar of another colour": b"0.9 0.5 0.1 rg 0 380 612 40 re f " + text(b"1 g"),
    "white on a thick line": b"0 G 30 w 40 404 m 240 404 l S " + text(b"1 g"),
    "white on a dark picture": PICTURE % (612, 792, 0, 0) + text(b"1 g"),
    "light on a dark page": b"0.1 g 0 0 612 792 re f " + text(b"1 g"),
    "black on a white box on a black one": b"0 g 0 300 612 200 re f 1 g 40 380 200 60 re f " + text(b"0 g"),
    "black beside a black box": b"0 g 300 380 200 60 re f " + text(b"0 g"),
    "light grey": text(b"0.85 g"),
    "half transparent": text(b"/Faint gs"),
    "clip of a picture": b"q BT /F 12 Tf 7 Tr 60 400 Td (secret) Tj ET " + PICTURE % (612, 792, 0, 0) + b"Q ",
    "white with a black outline": text(b"2 Tr 1 g 0 G"),
    "outline alone": text(b"1 Tr 1 g 0 G"),
    "small": text(b"0 g 0.2 0 0 0.2 60 400 cm", at=b"0 0"),
}  # fmt: skip


@pytest.mark.fault("N-09")
@pytest.mark.parametrize("kind", HIDDEN)
def test_what_nobody_sees_is_left_out_with_a_warning(kind: str) -> None:
    grey = 255 if kind == "white on a white picture" else 128
    document = read_of_pdf_hidden(make(SHOWN + HIDDEN[kind], grey=grey))
    assert "secret" not in document.text
    assert "plainly shown" in document.text or kind.startswith("dark on")
    assert "light" in document.text or not kind.startswith("dark on")
    assert hidden_chars(document) == 6
    assert not document.is_partial


@pytest.mark.parametrize("kind", SEEN)
def test_what_shows_or_stands_for_a_picture_stays(kind: str) -> None:
    grey = 0 if kind == "white on a dark picture" else 128
    content = SEEN[kind]
    document = read_of_pdf_hidden(make(content if kind == "light on a dark page" else SHOWN + content, grey=grey))
    assert "secret" in document.text
    assert hidden_chars(document) == 0


@pytest.mark.parametrize("content", [b"/OC /L BDC " + text(b"0 g") + b"EMC ", b"/X Do "])
def test_text_on_a_layer_that_is_on_stays(content: bytes) -> None:
    document = read_of_pdf_hidden(make(SHOWN + content, off=False))
    assert "secret" in document.text
    assert hidden_chars(document) == 0


def test_a_page_of_nothing_but_hidden_text_is_empty() -> None:
    with raises_with(ParseError, kind="empty"):
        read_of_pdf_hidden(make(text(b"1 g")))
