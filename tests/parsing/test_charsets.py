"""Charsets with control characters in the text: declared, undeclared, wrongly declared; the text and the count.
Data that a format keeps in an unusual way: repeated keys, names of code page 437, folded lines."""

from __future__ import annotations

import zipfile

import pytest

from ragd.readers.archives import member_name
from ragd.readers.assembly import read_document
from ragd.readers.text.charsets import decode, known_charset
from ragd.readers.types import ParsedDocument, ParseLimits, Source

TEXTS = {
    "big5": "中文字訊息，這是一封測試郵件",
    "gbk": "中华人民共和国位于亚洲东部",
    "shift_jis": "日本国憲法は、日本の現行の憲法",
    "iso2022_jp": "日本国憲法は、日本の現行の憲法",
    "iso2022_kr": "대한민국은 민주공화국이다",
    "euc_kr": "대한민국은 민주공화국이다",
    "iso-8859-1": "Straße",
    "windows-1250": "Žluťoučký kůň",
    "windows-1251": "Однажды в студёную зимнюю пору",
    "windows-1253": "Η ελληνική γλώσσα γράφεται",
    "windows-1255": "שלום עולם זהו טקסט",
    "windows-1256": "مرحبا بالعالم هذا نص",
    "utf-16": "Grüße und mehr Wörter",
    "utf-16-le": "Однажды в студёную",
    "utf-16-be": "中华人民共和国位于亚洲东部",
    "utf-32-le": "Grüße aus Köln",
    "utf-7": "Grüße aus Köln",
    "hz": "中华人民共和国",
}
PLACES = {"start": "{0}{1}{2}", "middle": "{1}{0}{2}", "end": "{1}{2}{0}", "all": "{0}{1}{0}{2}{0}"}


def read(data: bytes, name: str) -> ParsedDocument:
    return read_document(Source(data, name, "", ParseLimits()))


@pytest.mark.fault("N-02")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("charset", TEXTS)
def test_a_declared_charset_is_kept_with_control_characters(charset: str, place: str) -> None:
    text = TEXTS[charset]
    for control in ("\x00", "\x01\x0b"):
        written = PLACES[place].format(control, text[:5], text[5:])
        assert decode(written.encode(charset), charset).text == written


@pytest.mark.fault("N-02")
@pytest.mark.parametrize("charset", ["big5", "gbk", "shift_jis", "iso-8859-1", "windows-1251", "utf-8"])
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.html", '<html><head><meta charset="{charset}"></head><body><p>{text}</p></body></html>'),
        ("a.xml", '<?xml version="1.0" encoding="{charset}"?><r>{text}</r>'),
        ("a.eml", "From: a@b.c\nSubject: x\nContent-Type: text/plain; charset={charset}\n\n{text}\n"),
        ("b.eml", "From: a@b.c\nSubject: x\nContent-Type: text/html; charset={charset}\n\n<p>{text}</p>\n"),
        (
            "a.mbox",
            "From a@b.c Mon Jan  1 10:00:00 2024\nFrom: a@b.c\nContent-Type: text/plain; charset={charset}\n\n{text}\n",
        ),
    ],
)
def test_files_of_a_declared_charset_are_read_and_their_nul_counted(charset: str, name: str, form: str) -> None:
    text = TEXTS.get(charset, "Straße und 中文")
    for place in PLACES.values():
        written = form.format(charset=charset, text=place.format("\x00", text[:4], text[4:]))
        document = read(written.encode(charset), name)
        assert text in document.text
        assert any(f"({written.count(chr(0))})" in warning for warning in document.warnings)


@pytest.mark.fault("N-03")
@pytest.mark.parametrize("zeros", [1, 2, 3, 9])
def test_single_bytes_with_a_nul_are_no_utf_16(zeros: int) -> None:
    data = '<?xml version="1.0" encoding="ISO-8859-1"?><r>Straße</r>'.encode("latin-1") + bytes(zeros)
    assert read(data, "a.xml").text == "r: Straße"
    for text in ("中文字訊息，這是一封測試郵件", "日本国憲法は、日本の現行の憲法である。これは文章です。"):
        charset = "big5" if "訊" in text else "cp932"
        assert decode(b"\x00" * zeros + text.encode(charset)).text.strip("\x00") == text


@pytest.mark.fault("N-02")
@pytest.mark.parametrize("label", ["", "x-unknown", "unknown-8bit", "idna", "punycode", "utf-16", "base64", "\x00"])
def test_a_label_that_names_no_charset_of_the_bytes_is_passed_over(label: str) -> None:
    assert decode("Grüße \x00 中文".encode(), label).text == "Grüße \x00 中文"
    assert known_charset("idna") == ""


@pytest.mark.fault("N-02")
@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.txt", "a.md", "a.jsonl"])
def test_nul_in_data_is_counted_and_its_structure_kept(name: str) -> None:
    forms = {
        "a.json": '{{"k": "Stra{0}ße"}}{0}',
        "a.jsonl": '{{"k": "Stra{0}ße"}}\n{{"k": 2}}{0}',
        "a.csv": "k,v\nStra{0}ße,2\n{0}",
    }
    document = read(forms.get(name, "k: Stra{0}ße\n{0}").format("\x00").encode(), name)
    assert "Straße" in document.text and "{" not in document.text
    assert any("(2)" in warning for warning in document.warnings)


def text_of(data: bytes, name: str) -> str:
    return read_document(Source(data, name, "", ParseLimits())).text


@pytest.mark.fault("N-21")
def test_every_value_of_a_repeated_key_is_kept() -> None:
    data = b'{"a": "first", "b": {"c": 1, "c": [2, 3], "c": null, "c": 4}, "a": "second", "a": "third"}'
    assert text_of(data, "a.json") == "a: first\na: second\na: third\nb:\n  c: 1\n  c:\n    - 2\n    - 3\n  c: 4"
    assert text_of(b'{"a": 1, "a": 2}\n{"a": 3}\n', "a.jsonl") == "a: 1\na: 2\n\na: 3"


@pytest.mark.fault("N-27")
@pytest.mark.parametrize(
    ("name", "charset"),
    [
        ("Übersicht_über_Köln.txt", "cp437"),
        ("Grün.txt", "cp437"),
        ("décembre/été à Nîmes.pdf", "cp437"),
        ("Übersicht_über_Köln.txt", "cp850"),
        ("Übersicht über die Straßen von Köln.txt", "utf-8"),
        ("日本国憲法の文章です.txt", "shift_jis"),
        ("中华人民共和国位于亚洲东部.txt", "gbk"),
    ],
)
def test_names_in_an_archive_keep_their_letters(name: str, charset: str) -> None:
    entry = zipfile.ZipInfo(name.encode(charset).decode("cp437"))
    assert member_name(entry) == name


@pytest.mark.fault("N-31")
def test_folded_lines_and_quoted_values_of_cards_are_undone() -> None:
    card = (
        "BEGIN:VCARD\r\nVERSION:2.1\r\nFN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:J=C3=BCrgen zi=\r\nther\r\n"
        "N;QUOTED-PRINTABLE;CHARSET=iso-8859-1:M=FCller\r\nNOTE:one\r\n  two\\, three\r\nEND:VCARD\r\n"
    )
    lines = text_of(card.encode(), "a.vcf").split("\n")
    assert lines[2:5] == ["FN:Jürgen zither", "N:Müller", "NOTE:one two, three"]
    calendar = "BEGIN:VCALENDAR\nDESCRIPTION:long li\n ne folded\\, with\\ncomma\nEND:VCALENDAR\n"
    assert "DESCRIPTION:long line folded, with comma" in text_of(calendar.encode(), "a.ics")
    assert text_of(b"A text\n with indents\\, kept", "a.txt") == "A text\n with indents\\, kept"
