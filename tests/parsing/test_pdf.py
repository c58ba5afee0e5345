"""PDF: text and page map, properties, locked, scanned, cut off, hostile."""

from __future__ import annotations

import zlib

import pytest

from ragd.readers import ParseError, ParseLimits, parse
from ragd.readers.arrangement.shapes import PlacedWord
from ragd.readers.pdf import glyphs as pieces
from ragd.readers.pdf.glyphs import PageWords
from ragd.readers.pdf.reader import _render
from tests.parsing.builders import deflated_zeros, make_pdf, sample


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
    with pytest.raises(ParseError) as caught:
        parse(make_pdf(["secret"], password="open sesame"), "a.pdf")
    assert (caught.value.kind, caught.value.media_type) == ("encrypted", "application/pdf")
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
    with pytest.raises(ParseError) as caught:
        parse(make_pdf(["", ""], image_pages=[1, 2]), "a.pdf")
    assert caught.value.kind == "scanned"
    assert caught.value.pages == (1, 2)


def test_blank_pages_are_empty_not_scanned() -> None:
    with pytest.raises(ParseError) as caught:
        parse(make_pdf(["", ""]), "a.pdf")
    assert caught.value.kind == "empty"


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
