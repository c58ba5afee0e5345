"""Mail as programs really write it: headers in raw bytes, encoded words, packed bodies with a footer, mailboxes."""

from __future__ import annotations

import base64
import quopri

import pytest

from ragd.readers.assembly import read_document
from ragd.readers.mail import decode_words
from ragd.readers.types import ParsedDocument, ParseLimits, Source

RUSSIAN = "Однажды в студёную зимнюю пору я из лесу вышел"
KEEP = ParseLimits(keep_attachments=True)


def read(data: bytes, name: str = "a.eml") -> ParsedDocument:
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
    document = read(data)
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
        assert [file.name for file in read(data.encode(charset)).attachments] == ["Übersicht.pdf"]


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
        said = read((head.format(name) + body + footer).encode()).text
        assert said.count("This is the cello text, and it goes on for some lines so that it is wrapped.") == 4
        assert said.endswith(footer.strip())


@pytest.mark.fault("N-34")
def test_a_packed_body_with_a_stray_sign_is_decoded_whole() -> None:
    head = "From: a@b.c\nSubject: q\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\n"
    assert "This is the cello text" in read(f"{head}VGhpcyBpcyB0aGUg\n*Y2VsbG8gdGV4dA==\n--\n".encode()).text


@pytest.mark.fault("N-32")
def test_lines_that_a_mailbox_quotes_are_unquoted() -> None:
    data = b"From a@b.c Mon Jan  1 10:00:00 2024\nFrom: a@b.c\n\nx\n>From here\n>>From there\n> From you\n"
    assert read(data, "a.mbox").text.endswith("x\nFrom here\n>From there\n> From you")
