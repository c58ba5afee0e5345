"""Any bytes, and any damage to a good document: a document or a ParseError, within the time, and the parser lives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collections_app.parsing import ERROR_KINDS, ParseError, ParseLimits, archive_type, iter_members, parse
from ragd.normalization import normalize
from tests.parsing import builders

LIMITS = ParseLimits(timeout_s=15, memory_mb=800, use_office=False)
BUILDERS: dict[str, Callable[[], bytes]] = {
    "a.pdf": lambda: builders.make_pdf(["First page", "Second"], title="T"),
    "a.docx": builders.make_docx,
    "a.pptx": builders.make_pptx,
    "a.xlsx": builders.make_xlsx,
    "a.odt": lambda: builders.make_odt("<office:text><text:h>T</text:h><text:p>text</text:p></office:text>"),
    "a.epub": lambda: builders.make_epub([("1.xhtml", "<p>one</p>")]),
    "a.doc": lambda: builders.make_doc("First\rSecond\x07"),
    "a.ppt": lambda: builders.make_ppt(["One", "Two"]),
    "a.msg": lambda: builders.make_msg({"0037": "Subject", "1000": "Body"}),
    "a.rtf": lambda: rb"{\rtf1{\fonttbl{\f0\fcharset204 A;}}\trowd a\cell\row\u8364?\'e4{\footnote n}\par}",
    "a.eml": lambda: b"From: a@b.c\nTo: b@b.c\nContent-Type: multipart/mixed; boundary=B\n\n--B\n\nx\n--B--",
    "a.html": lambda: b"<html><table><tr><td>a<ul><li>b</table><pre>c</pre>",
    "a.xml": lambda: b'<?xml version="1.0"?><a><b c="d">e</b>f<g/></a>',
    "a.json": lambda: b'{"a": [1, {"b": "c"}], "d": null}',
    "a.vtt": lambda: b"WEBVTT\n\n00:01.000 --> 00:02.000\nx\n",
}  # fmt: skip
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


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
@settings(max_examples=60, deadline=None, suppress_health_check=QUIET)
def test_any_bytes(data: bytes, name: str) -> None:
    check(data, name)


@given(
    st.text(max_size=500),
    st.sampled_from(["a.txt", "a.md", "a.csv", "a.json", "a.html", "a.xml", "a.rst", "a.vtt", "a.eml"]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=QUIET)
def test_any_text(text: str, suffix: str) -> None:
    check(text.encode("utf-8", "surrogatepass"), f"a.{suffix}")


@pytest.mark.parametrize("name", BUILDERS)
@given(data=st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=QUIET)
def test_a_damaged_document(name: str, data: st.DataObject) -> None:
    content = bytearray(BUILDERS[name]())
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        content = content or bytearray(b"x")
    check(bytes(content[: data.draw(st.integers(1, len(content)))] if data.draw(st.booleans()) else content), name)


@given(st.binary(max_size=400), st.integers(0, 3))
@settings(max_examples=60, deadline=None, suppress_health_check=QUIET)
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
