"""Packed bytes are no text: pictures in base64, pointers of Git LFS."""

from __future__ import annotations

import base64
import json
import random

import pytest

from ragd.readers import ParseError
from ragd.readers.assembly import read_document
from ragd.readers.text.markup import drop_packed
from ragd.readers.types import ParsedDocument, ParseLimits, Source

PICTURE = base64.b64encode(random.Random(5).randbytes(900)).decode()
WRAPPED = base64.encodebytes(random.Random(6).randbytes(900)).decode()


def read(text: str, name: str) -> ParsedDocument:
    return read_document(Source(text.encode(), name, "", ParseLimits()))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", f"# T\n\nBefore ![a cat](data:image/png;base64,{PICTURE}) after.\n"),
        ("a.md", f"# T\n\nBefore ![a cat][1] after.\n\n[1]: <data:image/png;charset=utf-8;base64,{PICTURE}>\n"),
        (
            "a.html",
            f'<h1>T</h1><p>Before <img src="data:image/png;base64,{PICTURE}"> data:a/b;base64,{PICTURE} after</p>',
        ),
        ("a.txt", f"T\n\nBefore\n\n{WRAPPED}\nafter.\n"),
        ("a.txt", f"T\n\nBefore\n\n{PICTURE}\nafter.\n"),
        ("a.eml", f"From: a@b.c\nSubject: T\n\nBefore\n\n{WRAPPED}\nafter.\n"),
        ("a.csv", f"k,v\nBefore,data:image/png;base64,{PICTURE}\nT,after\n"),
        ("a.json", json.dumps({"T": "Before", "image/png": PICTURE, "b": WRAPPED, "then": "after"})),
    ],
)
def test_pictures_in_base64_are_left_out_with_a_warning(name: str, text: str) -> None:
    document = read(text, name)
    assert "Before" in document.text and "after" in document.text and "T" in document.text
    assert PICTURE[40:80] not in document.text and WRAPPED[10:50] not in document.text
    assert len(document.text) < 120
    assert any("base64" in warning for warning in document.warnings)


@pytest.mark.parametrize(
    "text",
    [
        "ACGTTGCA" * 100,
        "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVV" * 12,
        "0123456789abcdef" * 60,
        PICTURE[:200],
        "https://example.org/" + "path/to/Some/Place1/" * 40,
        "one word after another " * 40,
    ],
)
def test_long_runs_that_people_look_for_stay(text: str) -> None:
    assert drop_packed(text) == (text, 0)


def test_only_packed_data_is_a_refusal_that_says_so() -> None:
    with pytest.raises(ParseError, match="base64") as caught:
        read(WRAPPED, "a.txt")
    assert caught.value.kind == "empty"


@pytest.mark.fault("SYN-06")
@pytest.mark.parametrize("name", ["report.pdf", "a.md", "a.csv", ""])
def test_pointers_are_refused_by_name(name: str) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "4d" * 32 + "\nsize 12345\n"
    with pytest.raises(ParseError, match="Git LFS") as caught:
        read(pointer, name)
    assert caught.value.kind == "unsupported"
    assert read(f"# How a pointer looks\n\n{pointer}", "a.md").text
