"""Files inside messages: their bytes when asked for, unique names, types by content, limits; what text loses."""

from __future__ import annotations

from email.message import EmailMessage

from ragd.readers import Attachment, ParseLimits, parse
from tests.parsing import builders

KEEP = ParseLimits(keep_attachments=True)


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
