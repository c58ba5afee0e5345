"""The type comes from the content; a name only decides between texts that look alike."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from ragd.readers import ParseError, parse, sniff
from ragd.readers import signatures as types
from tests.parsing import builders


def tar_of(name: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"", types.EMPTY),
        (b" \r\n", types.EMPTY),
        (builders.make_pdf(["x"]), types.PDF),
        (b"\n\njunk before %PDF-1.4 ...", types.PDF),
        (builders.make_docx(), types.DOCX),
        (builders.make_pptx(), types.PPTX),
        (builders.make_xlsx(), types.XLSX),
        (builders.make_odt(""), types.ODT),
        (builders.make_epub([]), types.EPUB),
        (builders.make_zip({"a.txt": "x"}), types.ZIP),
        (builders.make_doc("text"), types.DOC),
        (builders.make_biff4([["text"]]), types.XLS),
        (builders.make_ppt(), types.PPT),
        (builders.make_msg({"0037": "s"}), types.MSG),
        (builders.make_ole({"Workbook": b""}), types.XLS),
        (builders.make_ole({"EncryptedPackage": b""}), types.OOXML_ENCRYPTED),
        (builders.make_ole({"Other": b""}), types.OLE),
        (rb"  {\rtf1 x}", types.RTF),
        (tar_of("a"), types.TAR),
        (gzip.compress(b"x", mtime=0), types.GZIP),
        (b"<!DOCTYPE html><p>x", types.HTML),
        (b"<!-- c --><HTML>", types.HTML),
        (b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"/>', types.HTML),
        (b'<?xml version="1.0"?><note/>', types.XML),
        ('<?xml version="1.0" encoding="utf-16"?><note/>'.encode("utf-16"), types.XML),
        (b'{"a": 1}', types.JSON),
        (b"[1] Smith, A. (1999): a reference", types.JSON),
        (b'{"a": 1}\n{"a": 2}\n', types.JSONL),
        (b"From: a@b.c\nSubject: x\n\nbody", types.EML),
        (b"From a@b.c Mon Jan  1 10:00:00 2024\nFrom: a\n\nx", types.MBOX),
        (b"WEBVTT\n\n00:01.000 --> 00:02.000\nx", types.VTT),
        (b"1\n00:00:01,000 --> 00:00:02,000\nx", types.SRT),
        (b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"\x7fELF\x02\x01", "application/x-elf"),
        (b"MZ\x90\x00\x03\x00\x00\x00\x04", "application/x-dosexec"),
        (b"MZ is how this sentence starts, and it is text.", types.TEXT),
        (bytes(range(256)) * 4, types.UNKNOWN),
        (b"Note: this is text\nwith a colon", types.TEXT),
        (b"plain", types.TEXT),
    ],
)
def test_by_content_alone(data: bytes, media_type: str) -> None:
    assert sniff(data, "") == media_type


@pytest.mark.parametrize(
    ("data", "name", "media_type"),
    [
        (b"a,b\n1,2", "a.csv", types.CSV),
        (b"a\tb", "A.TSV", types.TSV),
        (b"# x", "dir/a.md", types.MARKDOWN),
        (b"<p align=center>logo</p>\n\n# x", "README.md", types.MARKDOWN),
        (b"x\n=", "a.rst", types.RST),
        (b"plain", "a.pdf", types.TEXT),
        (b"plain", "a.docx", types.TEXT),
        (b"%PDF-1.4", "a.txt", types.PDF),
        (b"<!doctype html><p>x", "a.md", types.HTML),
        (b"<p>fragment", "a.html", types.HTML),
        (b"no mail at all", "a.eml", types.TEXT),
        (b"Subject: only one header\n\nbody", "a.eml", types.EML),
        (b"{not json", "a.json", types.JSON),
        (b"[Section]\nkey=1", "a.txt", types.TEXT),
    ],
)
def test_a_name_decides_between_texts_only(data: bytes, name: str, media_type: str) -> None:
    assert sniff(data, name) == media_type


def test_a_file_that_lies_is_read_as_what_it_is_with_a_warning() -> None:
    document = parse(builders.make_docx(), "report.pdf")
    assert document.media_type == types.DOCX
    assert document.text.startswith("# Care of garden tools")
    assert document.warnings == ("The name ends in .pdf, but the content is a Word document; it was read as that.",)


@pytest.mark.parametrize(
    ("data", "name", "word"),
    [
        (b"GIF89a" + bytes(50), "photo.docx", "an image (image/gif)"),
        (b"\x7fELF" + bytes(50), "paper.pdf", "an executable program"),
        (bytes(range(256)) * 20, "data.txt", "binary data of no known format"),
        (builders.make_zip({"a.txt": "x"}), "a.docx", "a ZIP archive"),
    ],
)
def test_what_cannot_be_read_is_named(data: bytes, name: str, word: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(data, name)
    assert caught.value.kind == "unsupported"
    assert word in caught.value.message


def test_a_container_that_ends_too_early_is_broken_and_no_archive() -> None:
    with pytest.raises(ParseError) as caught:
        parse(builders.make_docx()[:200], "report.docx")
    assert caught.value.kind == "broken"
    assert "damaged" in caught.value.message
