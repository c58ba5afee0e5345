"""Files inside office documents: attachments, out of the containers in which programs embed them."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
import xlsxwriter

from ragd.readers.assembly import read_document
from ragd.readers.office.embedded import chart_texts
from ragd.readers.types import ParsedDocument, ParseError, ParseLimits, Source
from tests.parsing import builders

KEEP = ParseLimits(keep_attachments=True)
PDF = b"%PDF-1.4\n%%EOF\n".ljust(5000, b" ")
WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def native(name: bytes, content: bytes) -> bytes:
    """An OLE 1 package: flags, label, path, temporary path, bytes."""
    temporary = b"C:\\t\\" + name + b"\0"
    body = b"\2\0" + name + b"\0C:\\a\\" + name + b"\0\0\0\3\0" + struct.pack("<I", len(temporary)) + temporary
    body += struct.pack("<I", len(content)) + content
    return struct.pack("<I", len(body)) + body.ljust(5000, b"\0")


def word(text: str, files: dict[str, bytes], more: dict[str, bytes | str] | None = None) -> bytes:
    body = f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"
    members: dict[str, Any] = {
        "[Content_Types].xml": "<Types/>",
        "word/document.xml": f"<w:document {WORD}><w:body>{body}</w:body></w:document>",
        **{f"word/embeddings/{name}": data for name, data in files.items()},
        **(more or {}),
    }
    return builders.make_zip(members)


def read(data: bytes, name: str, limits: ParseLimits = KEEP) -> ParsedDocument:
    return read_document(Source(data, name, "", limits))


@pytest.mark.fault("N-19")
def test_files_inside_a_word_document_are_attached_as_what_they_are() -> None:
    inner = builders.make_docx()
    parsed = read(
        word(
            "outer words",
            {
                "oleObject1.bin": builders.make_ole({"\x01Ole10Native": native(b"notes.txt", b"plain words in here")}),
                "oleObject2.bin": builders.make_ole({"CONTENTS": PDF}),
                "oleObject3.bin": builders.make_ole({"Package": inner}),
                "oleObject4.bin": builders.make_ole({"Equation Native": b"x" * 5000}),
                "Microsoft_Word_Document1.docx": inner,
                "oleObject5.bin": builders.make_ole({"Odd": b"\x00\x01" * 3000}),
            },
        ),
        "a.docx",
    )
    expected = {
        "notes.txt": b"plain words in here",
        "oleObject2.pdf": PDF,
        "oleObject3.docx": inner,
        "oleObject5.bin": b"\xd0\xcf\x11\xe0",
        "Microsoft_Word_Document1.docx": inner,
    }
    assert {each.name: each.data[: len(expected[each.name])] for each in parsed.attachments} == expected
    assert parsed.text == "outer words"
    assert parsed.is_partial and "oleObject5.bin" in parsed.warnings[0]


@pytest.mark.fault("N-19")
def test_a_document_of_nothing_but_files_names_them() -> None:
    data = word("", {"letter.docx": builders.make_docx()})
    assert read(data, "a.docx").text == "Files inside:\n- letter.docx"
    with pytest.raises(ParseError) as caught:
        read(data, "a.docx", ParseLimits())
    assert caught.value.kind == "empty"


def test_the_workbook_of_a_chart_is_no_file_inside() -> None:
    relations = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="r1" Target="../embeddings/a.xlsx"'
        ' Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/package"/>'
        "</Relationships>"
    )
    more: dict[str, bytes | str] = {"word/charts/chart1.xml": "<c/>", "word/charts/_rels/chart1.xml.rels": relations}
    parsed = read(word("words", {"a.xlsx": builders.make_xlsx()}, more), "a.docx")
    assert parsed.attachments == () and not parsed.warnings


@pytest.mark.fault("N-19")
def test_files_inside_a_workbook_are_attached() -> None:
    buffer = io.BytesIO()
    book = xlsxwriter.Workbook(buffer, {"in_memory": True})
    book.add_worksheet("S").write("A1", "words")
    book.close()
    inner = builders.make_docx()
    parsed = read(builders.with_member(buffer.getvalue(), "xl/embeddings/a.docx", inner), "a.xlsx")
    assert [(each.name, each.data) for each in parsed.attachments] == [("a.docx", inner)]


def test_damaged_objects_cost_only_themselves() -> None:
    broken = builders.make_ole({"CONTENTS": PDF})[:600]
    parsed = read(word("words", {"oleObject1.bin": broken}), "a.docx")
    assert parsed.text == "words" and parsed.is_partial


def test_the_words_of_charts_of_an_old_workbook_are_read() -> None:
    def record(kind: int, content: bytes) -> bytes:
        return struct.pack("<HH", kind, len(content)) + content

    stream = (
        record(0x0809, b"\0" * 16)
        + record(0x100D, b"\0\0\x05\0Sales")
        + record(0x100D, b"\0\0\x04\x01" + "Ümsa".encode("utf-16-le"))
        + record(0x100D, b"\0\0\x05\0Sales")
        + b"\x0d\x10\xff"
    )
    assert chart_texts(stream) == ["Sales", "Ümsa"]
