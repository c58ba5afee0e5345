"""Any bytes, and any damage to a good document: a document or a ParseError, within the time, and the parser lives."""

from __future__ import annotations

import functools
import gzip
import io
import os
import zipfile
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragd.normalization import normalize
from ragd.readers import ERROR_KINDS, ParseError, ParseLimits, archive_type, iter_members, parse
from tests.parsing import builders

LIMITS = ParseLimits(timeout_s=15, memory_mb=800)
BUILDERS: dict[str, Callable[[], bytes]] = {
    "a.pdf": lambda: builders.make_pdf(["First page", "Second"], title="T"),
    "a.docx": builders.make_docx,
    "a.pptx": builders.make_pptx,
    "a.xlsx": builders.make_xlsx,
    "a.odt": lambda: builders.make_odt("<office:text><text:h>T</text:h><text:p>text</text:p></office:text>"),
    "a.epub": lambda: builders.make_epub([("1.xhtml", "<p>one</p>")]),
    "a.doc": lambda: builders.sample("tools.doc"),
    "a.ppt": lambda: builders.sample("soil.ppt"),
    "a.msg": lambda: builders.make_msg({"0037": "Subject", "1000": "Body"}),
    "a.rtf": lambda: rb"{\rtf1{\fonttbl{\f0\fcharset204 A;}}\trowd a\cell\row\u8364?\'e4{\footnote n}\par}",
    "a.eml": lambda: b"From: a@b.c\nTo: b@b.c\nContent-Type: multipart/mixed; boundary=B\n\n--B\n\nx\n--B--",
    "a.html": lambda: b"<html><table><tr><td>a<ul><li>b</table><pre>c</pre>",
    "a.xml": lambda: b'<?xml version="1.0"?><a><b c="d">e</b>f<g/></a>',
    "a.json": lambda: b'{"a": [1, {"b": "c"}], "d": null}',
    "a.vtt": lambda: b"WEBVTT\n\n00:01.000 --> 00:02.000\nx\n",
    "a.srt": lambda: b"1\n00:00:01,000 --> 00:00:02,000\nx\n",
    "a.md": lambda: b"# T\n\n- a\n\n```\nx\n```\n",
    "a.rst": lambda: b"T\n=\n\n.. note:: x\n\n   ``y`` :ref:`z <a>`\n\n=== ===\na   b\n=== ===\n1   2\n=== ===\n",
    "a.csv": lambda: b'a;b\n1;"c\nd"\n',
    "a.jsonl": lambda: b'{"a": 1}\n{"a": [2]}\n',
    "a.mbox": lambda: b"From a@b.c Mon Jan 01 10:00:00 2024\nSubject: s\nFrom: a@b.c\n\nx\n\n",
    "a.gz": lambda: gzip.compress(b"some words in a file"),
    "a.fodt": lambda: b'<?xml version="1.0"?><office:document'
    b' xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
    b' xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:text><text:p>x</text:p>'
    b"</office:text></office:body></office:document>",
    "with files.msg": lambda: builders.make_msg({"0037": "S", "1000": "B"}, {"a": b"%PDF-", "b": {"0037": "I"}}),
}  # fmt: skip
PACKED = ("a.docx", "a.pptx", "a.xlsx", "a.odt", "a.epub")
# Damages of each format; more by hand: RAGD_FUZZ_ROUNDS=2000.
ROUNDS = int(os.environ.get("RAGD_FUZZ_ROUNDS", "8"))
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@functools.cache
def built(name: str) -> bytes:
    """The same bytes for every example, as some builders put the time into them."""
    return BUILDERS[name]()


def damage(content: bytes, random: Random) -> bytes:
    """The content cut off, with bits flipped, pieces taken out or doubled, or numbers made large: one to four times."""
    data = bytearray(content)
    for _ in range(random.randint(1, 4)):
        if not data:
            break
        place = random.randrange(len(data))
        piece = data[place : place + random.randint(1, 16)]
        kind = random.randrange(5)
        if kind == 0:
            del data[place:]
        elif kind == 1:
            data[place] ^= 1 << random.randrange(8)
        elif kind == 2:
            del data[place : place + len(piece)]
        elif kind == 3:
            data[place:place] = piece * random.choice((1, 2, 1000))
        else:
            data[place : place + 4] = random.choice((b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", b"9999", b"\x00"))
    return bytes(data)


def check(data: bytes, name: str) -> None:
    """A sound document or a sound error."""
    try:
        document = parse(data, name, limits=LIMITS)
    except ParseError as error:
        assert error.kind in ERROR_KINDS
        assert error.kind not in ("timeout", "memory"), error.message
        assert len(error.message) > 20
        return
    assert normalize(document.text) == document.text
    assert document.text.strip()
    place = 0
    for start, end, label in document.page_map:
        assert place <= start < end <= len(document.text)
        assert label
        place = end


@given(st.binary(max_size=2000), st.sampled_from(["", *BUILDERS]))
@settings(max_examples=25, deadline=None, suppress_health_check=QUIET)
def test_any_bytes(data: bytes, name: str) -> None:
    check(data, name)


@given(
    st.text(max_size=500),
    st.sampled_from(["a.txt", "a.md", "a.csv", "a.json", "a.html", "a.xml", "a.rst", "a.vtt", "a.eml"]),
)
@settings(max_examples=25, deadline=None, suppress_health_check=QUIET)
def test_any_text(text: str, suffix: str) -> None:
    check(text.encode("utf-8", "surrogatepass"), f"a.{suffix}")


@pytest.mark.parametrize("name", BUILDERS)
@given(data=st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=QUIET)
def test_a_damaged_document(name: str, data: st.DataObject) -> None:
    content = bytearray(built(name))
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        content = content or bytearray(b"x")
    check(bytes(content[: data.draw(st.integers(1, len(content)))] if data.draw(st.booleans()) else content), name)


@pytest.mark.parametrize("name", BUILDERS)
def test_a_document_damaged_in_many_ways(name: str) -> None:
    random = Random(f"whole {name}")
    for _ in range(ROUNDS):
        check(damage(built(name), random), name)


@pytest.mark.parametrize("name", PACKED)
def test_a_document_with_a_damaged_part(name: str) -> None:
    """The container stays whole, so that the damage reaches the reader of the part."""
    random = Random(f"part {name}")
    with zipfile.ZipFile(io.BytesIO(built(name))) as archive:
        parts = {entry.filename: archive.read(entry) for entry in archive.infolist() if not entry.is_dir()}
    for _ in range(ROUNDS):
        chosen = random.choice(sorted(parts))
        check(builders.make_zip({**parts, chosen: damage(parts[chosen], random)}), name)


@given(st.binary(max_size=400), st.integers(0, 3))
@settings(max_examples=25, deadline=None, suppress_health_check=QUIET)
def test_a_damaged_archive(noise: bytes, depth: int) -> None:
    data = noise
    for _ in range(depth):
        data = builders.make_zip({"a.zip": data, "b.txt": "x"})
    content = data + noise
    if archive_type(content):
        try:
            for member in iter_members(content, limits=LIMITS):
                assert member.name
                assert (member.error is None) == bool(member.sha256)
        except ParseError as error:
            assert error.kind in ERROR_KINDS
