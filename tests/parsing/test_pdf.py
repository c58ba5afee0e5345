"""PDF: text and page map, properties, locked, scanned, cut off, hostile."""

from __future__ import annotations

import zlib

import pytest

from collections_app.parsing import ParseError, ParseLimits, parse
from collections_app.parsing.pdf import glyphs
from tests.parsing.builders import deflated_zeros, make_pdf


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
    pages = ["words " * 40, "", "Scanned by X", ""]
    document = parse(make_pdf(pages, image_pages=[2, 4], pictured_pages=[3]), "a.pdf")
    assert document.metadata["scanned_pages"] == [2, 4]
    assert document.metadata["pictured_pages"] == [3]
    assert [warning.split(" of ")[0] for warning in document.warnings] == ["Pages 2, 4", "Page 3"]
    assert "Scanned by X" in document.text


def test_a_word_that_goes_on_in_the_next_line_is_joined() -> None:
    document = parse(make_pdf(["A long line about the inven-\ntion of the wheel in 12-\n13 days"]), "a.pdf")
    assert document.text == "A long line about the invention of the wheel in 12-\n13 days"


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("e\u21b5orts o\u21b5-the-shelf \u21b5", "efforts off-the-shelf \u21b5"),
        ("press \u21b5\n to go on", "press \u21b5\n to go on"),
    ],
)
def test_ligatures_with_a_wrong_name_are_corrected(shown: str, text: str) -> None:
    class Page:
        pass

    assert "".join(glyphs.name_glyphs(Page(), shown) or shown) == text  # type: ignore[arg-type]


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
