"""Files inside office documents: attachments, out of the containers in which programs embed them.
Files inside messages: their bytes when asked for, unique names, types by content, limits; what text loses.
Mail as programs really write it: headers in raw bytes, encoded words, packed bodies with a footer, mailboxes."""

from __future__ import annotations

import base64
import io
import quopri
import struct
from email.message import EmailMessage
from typing import Any

import pytest
import xlsxwriter

from ragd.readers import Attachment, ParseError, ParseLimits, parse
from ragd.readers.assembly import read_document
from ragd.readers.mail import decode_words
from ragd.readers.office.ooxml import chart_texts
from ragd.readers.types import ParsedDocument, Source
from tests.parsing import builders
from tests.refusals import raises_with

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
    with raises_with(ParseError, kind="empty"):
        read(data, "a.docx", ParseLimits())


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


RUSSIAN = "Однажды в студёную зимнюю пору я из лесу вышел"


def read_of_mail(data: bytes, name: str = "a.eml") -> ParsedDocument:
    return read_document(Source(data, name, "", KEEP))


@pytest.mark.parametrize(
    ("text", "charset", "declared"),
    [
        ("Grüße aus Köln", "utf-8", ""),
        ("Grüße aus Köln", "utf-8", "iso-8859-1"),
        ("Grüße aus Köln", "latin-1", "iso-8859-1"),
        ("Grüße aus Köln", "latin-1", ""),
        ("Grüße aus Köln", "latin-1", "us-ascii"),
        (RUSSIAN, "koi8-r", "koi8-r"),
        (RUSSIAN, "cp1251", ""),
        ("中文字訊息，這是一封測試郵件", "big5", "big5"),
        ("日本国憲法は、日本の現行の憲法", "iso2022_jp", ""),
        ("日本国憲法は、日本の現行の憲法", "cp932", "shift_jis"),
    ],
)
def test_headers_in_raw_bytes_are_text(text: str, charset: str, declared: str) -> None:
    kind = f"Content-Type: text/plain; charset={declared}\n" if declared else ""
    data = f"From: {text} <a@b.c>\nSubject: {text}\nTo: x@y.z\n{kind}\nbody\n".encode(charset)
    document = read_of_mail(data)
    assert document.title == text
    assert f"From: {text} <a@b.c>" in document.text
    document.text.encode()


def test_the_name_of_a_file_in_raw_bytes_is_text() -> None:
    data = (
        "From: a@b.c\nSubject: s\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B\n\nx\n"
        '--B\nContent-Type: application/pdf; name="Übersicht.pdf"\n'
        'Content-Disposition: attachment; filename="Übersicht.pdf"\n\nx1\n--B--\n'
    )
    for charset in ("utf-8", "latin-1"):
        assert [file.name for file in read_of_mail(data.encode(charset)).attachments] == ["Übersicht.pdf"]


def test_encoded_words_beside_raw_text_and_in_pieces() -> None:
    packed = base64.b64encode("日本国憲法".encode()).decode()
    assert decode_words(f"Ü \\users =?utf-8?B?{packed}?=") == "Ü \\users 日本国憲法"
    halves = [base64.b64encode(part).decode() for part in ("日本国".encode()[:4], "日本国".encode()[4:])]
    assert decode_words(" ".join(f"=?UTF-8?b?{half}?=" for half in halves)) == "日本国"
    assert decode_words("=?iso-8859-1*de?Q?Gr=FC=DFe_aus?= =?utf-8?q?_K=C3=B6ln?= !") == "Grüße aus Köln !"
    assert decode_words("=??Q?Gr=C3=BC=C3=9Fe?= =?x-unknown?Q?a?=") == "Grüßea"


@pytest.mark.fault("N-34")
@pytest.mark.parametrize(
    "footer", ["--\nUnsubscribe\n", "Unsubscribe here\n", "Regards\n", "https://lists.example.org/x\n"]
)
def test_a_packed_body_with_a_footer_is_decoded_whole(footer: str) -> None:
    text = "This is the cello text, and it goes on for some lines so that it is wrapped.\n" * 4
    head = "From: a@b.c\nSubject: q\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: {}\n\n"
    for name, body in (
        ("base64", base64.encodebytes(text.encode()).decode()),
        ("quoted-printable", quopri.encodestring(text.encode()).decode()),
    ):
        said = read_of_mail((head.format(name) + body + footer).encode()).text
        assert said.count("This is the cello text, and it goes on for some lines so that it is wrapped.") == 4
        assert said.endswith(footer.strip())


@pytest.mark.fault("N-34")
def test_a_packed_body_with_a_stray_sign_is_decoded_whole() -> None:
    head = "From: a@b.c\nSubject: q\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\n"
    assert "This is the cello text" in read_of_mail(f"{head}VGhpcyBpcyB0aGUg\n*Y2VsbG8gdGV4dA==\n--\n".encode()).text


@pytest.mark.fault("N-32")
def test_lines_that_a_mailbox_quotes_are_unquoted() -> None:
    data = b"From a@b.c Mon Jan  1 10:00:00 2024\nFrom: a@b.c\n\nx\n>From here\n>>From there\n> From you\n"
    assert read_of_mail(data, "a.mbox").text.endswith("x\nFrom here\n>From there\n> From you")


def make_message(subject: str, body: str, files: list[tuple[str, str, bytes]]) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@example.org", "b@example.org", subject
    message["Date"] = "Mon, 01 Jan 2024 10:00:00 +0000"
    message.set_content(body)
    for name, media_type, content in files:
        main, _, sub = media_type.partition("/")
        message.add_attachment(content, maintype=main, subtype=sub, filename=name)
    return message


def shape(attachments: tuple[Attachment, ...]) -> list[tuple[str, str, bytes]]:
    return [(each.name, each.media_type, each.data) for each in attachments]


def test_names_are_unique_plain_and_types_come_from_the_content() -> None:
    files = [
        ("a.bin", "application/octet-stream", b"%PDF-1.4 one"),
        ("a.bin", "application/octet-stream", b"plain words here"),
        ("../../etc/passwd", "text/x-odd", b"root words"),
        ("..", "application/x-odd", b"\x00\x01\x02\x03\x04\x05\x06\x07"),
    ]
    document = parse(make_message("S", "B", files).as_bytes(), "a.eml", limits=KEEP)
    assert shape(document.attachments) == [
        ("a.bin", "application/pdf", files[0][2]),
        ("a (2).bin", "text/plain", files[1][2]),
        ("passwd", "text/plain", files[2][2]),
        ("attachment-4", "application/x-odd", files[3][2]),
    ]
    assert document.metadata["attachments"][1] == {"name": "a (2).bin", "media_type": "text/plain", "size_bytes": 16}


def test_a_message_inside_is_text_and_its_files_are_the_parents() -> None:
    inner = make_message("Inner", "inner words", [("deep.csv", "text/csv", b"a,b\n1,2\n")])
    outer = make_message("Outer", "outer words", [])
    outer.add_attachment(inner)
    document = parse(outer.as_bytes(), "a.eml", limits=KEEP)
    assert "outer words" in document.text and "## Inner" in document.text and "inner words" in document.text
    assert shape(document.attachments) == [("deep.csv", "text/csv", b"a,b\n1,2\n")]


def test_a_mailbox_gives_the_files_of_all_its_messages() -> None:
    data = b""
    for number in (1, 2):
        message = make_message(f"M{number}", "words", [("x.txt", "text/plain", f"file {number}".encode())])
        data += b"From a@example.org Mon Jan 01 10:00:00 2024\n" + message.as_bytes() + b"\n"
    document = parse(data, "a.mbox", limits=KEEP)
    assert [(each.name, each.data) for each in document.attachments] == [("x.txt", b"file 1"), ("x (2).txt", b"file 2")]


def test_an_outlook_message_gives_its_files_and_those_of_the_message_inside() -> None:
    data = builders.make_msg(
        {"0037": "Outer", "1000": "outer words"},
        {"one.pdf": b"%PDF-1.4 one".ljust(5000, b" "), "inner": {"0037": "Inner", "1000": "inner words"}},
    )
    document = parse(data, "a.msg", limits=KEEP)
    assert document.text.startswith("# Outer") and "## Inner" in document.text and "inner words" in document.text
    [attachment] = document.attachments
    assert (attachment.name, attachment.media_type, attachment.data[:12]) == (
        "one.pdf",
        "application/pdf",
        b"%PDF-1.4 one",
    )
    [named] = parse(data, "a.msg").attachments
    assert named.data == b"" and named.size_bytes == attachment.size_bytes


def test_a_signature_is_no_file() -> None:
    message = make_message("S", "B", [("signature.asc", "application/pgp-signature", b"-----BEGIN PGP SIGNATURE-----")])
    assert parse(message.as_bytes(), "a.eml", limits=KEEP).attachments == ()


def test_limits_on_attachments_leave_out_and_say_so() -> None:
    message = make_message("S", "B", [(f"{n}.bin", "application/octet-stream", bytes(700_000)) for n in range(3)])
    few = parse(message.as_bytes(), "a.eml", limits=ParseLimits(keep_attachments=True, max_attachments=2))
    assert len(few.attachments) == 2
    assert few.is_partial
    assert "1 attached files were left out" in few.warnings[0]
    small = parse(message.as_bytes(), "a.eml", limits=ParseLimits(keep_attachments=True, max_attachments_mb=1))
    assert len(small.attachments) == 1
    assert "2 attached files were left out" in small.warnings[0]


def test_nul_and_halves_of_characters_are_warnings() -> None:
    document = parse(b"one\x00two\x00 and three", "a.txt")
    assert document.text == "onetwo and three"
    assert document.warnings == ("The text held NUL characters (2), which were removed.",)
    document = parse(b'{"half": "a \\ud800 b", "whole": "\\ud83d\\ude00"}', "a.json")
    assert document.text == "half: a \ufffd b\nwhole: \U0001f600"
    assert document.warnings == ("The text held halves of characters (lone surrogates, 1), which show as \ufffd.",)
    for name, data in (("a.csv", b"a,b\n1\x00,2\n"), ("a.html", b"<html><body><p>a\x00b</p>")):
        assert parse(data, name).warnings == ("The text held NUL characters (1), which were removed.",)
    assert parse("no such thing \U0001f600".encode(), "a.txt").warnings == ()
