"""Data that a format keeps in an unusual way: repeated keys, names of code page 437, folded lines."""

from __future__ import annotations

import zipfile

import pytest

from ragd.readers.archives import member_name
from ragd.readers.assembly import read_document
from ragd.readers.types import ParseLimits, Source


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
