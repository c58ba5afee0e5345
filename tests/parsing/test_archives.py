"""Archives: members in order, nested, in other charsets; limits, lies, paths, passwords, damage; early ends.
The type comes from the content; a name only decides between texts that look alike."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import os
import signal
import tarfile
import time
import zipfile

import pytest

from ragd.readers import ParseError, ParseLimits, archive_type, is_readable, iter_members, list_members, parse, sniff
from ragd.readers import signatures as types
from ragd.readers.process import process
from tests.parsing import builders
from tests.parsing.test_process import children_of, wait_until
from tests.refusals import raises_with


def members(data: bytes, **limits: int) -> list[tuple[str, bytes]]:
    found = list(iter_members(data, limits=ParseLimits(**limits)))  # type: ignore[arg-type]
    assert [member.error for member in found] == [None] * len(found)
    return [(member.name, member.data) for member in found]


def kind_of(data: bytes, **limits: int) -> str:
    with pytest.raises(ParseError) as caught:
        members(data, **limits)
    return caught.value.kind


def make_tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def test_members_come_in_order_without_folders_and_litter() -> None:
    data = builders.make_zip({"b/": "", "b/2.txt": "two", "__MACOSX/x": "no", "b/.DS_Store": "no", "a\\1.txt": "one"})
    assert members(data) == [("b/2.txt", b"two"), ("a/1.txt", b"one")]


def test_nested_archives_are_unpacked_and_office_documents_are_not() -> None:
    inner = builders.make_zip({"deep.txt": "deep"})
    found = members(builders.make_zip({"in.zip": inner, "doc.docx": builders.make_docx(), "last.txt": "last"}))
    assert [name for name, _ in found] == ["in.zip/deep.txt", "doc.docx", "last.txt"]


def test_tar_and_packed_tar() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("d/a.txt")
        entry.size = 3
        archive.addfile(entry, io.BytesIO(b"abc"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert members(buffer.getvalue()) == [("d/a.txt", b"abc")]
    assert members(gzip.compress(buffer.getvalue())) == [("d/a.txt", b"abc")]


@pytest.mark.parametrize("name", ["../up.txt", "a/../../up.txt", "/etc/passwd", "C:\\x.txt", "..\\up.txt", "x" * 1001])
def test_paths_that_leave_the_archive_are_refused_alone(name: str) -> None:
    bad, good = iter_members(builders.make_zip({name: "x", "good.txt": "y"}))
    assert bad.error is not None and bad.error.kind == "bomb"
    assert (bad.name, bad.data, bad.sha256) == (name[:1000], b"", "")
    assert (good.name, good.data) == ("good.txt", b"y")
    tar = make_tar({name: b"x", "good.txt": b"y"})
    assert [(member.data, member.error is None) for member in iter_members(tar)] == [(b"", False), (b"y", True)]


def test_a_path_that_comes_twice_and_a_file_that_is_too_large_are_refused_alone() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "first")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.txt", "second")
        archive.writestr("big.txt", b"x" * 1_100_000)
    first, second, big = iter_members(buffer.getvalue(), limits=ParseLimits(max_input_mb=1))
    assert first.data == b"first"
    assert second.error is not None and "more than once" in second.error.message
    assert big.error is not None and big.error.kind == "too_large" and big.data == b""


def test_the_list_has_sizes_hashes_and_types_and_no_bytes() -> None:
    docx = builders.make_docx()
    [text, document] = list_members(builders.make_zip({"a.txt": "abc", "looks.txt": docx}))
    assert (text.name, text.data, text.size_bytes) == ("a.txt", b"", 3)
    assert text.sha256 == hashlib.sha256(b"abc").hexdigest()
    assert text.media_type == "text/plain"
    assert document.media_type.endswith("wordprocessingml.document") and document.size_bytes == len(docx)


def test_an_archive_is_told_by_its_content() -> None:
    assert archive_type(builders.make_zip({"a.txt": "x"})) == "application/zip"
    tar = make_tar({"a.txt": b"x"})
    assert {archive_type(tar), archive_type(gzip.compress(tar)), archive_type(bz2.compress(tar))} == {
        "application/x-tar"
    }
    for document in (builders.make_docx(), gzip.compress(b"one file"), b"text", b"", b"PK", b"BZh", b"\x1f\x8b"):
        assert archive_type(document) == ""
    assert is_readable("application/zip") and is_readable("text/csv") and not is_readable("audio/mpeg")


def test_a_directory_too_long_for_a_document_is_an_archive_that_is_not_listed() -> None:
    data = bytearray(builders.make_zip({"word/document.xml": "x"}))
    place = data.index(b"PK\x05\x06") + 12
    data[place : place + 4] = (5_000_000).to_bytes(4, "little")
    assert archive_type(bytes(data)) == "application/zip"


def test_members_are_unpacked_one_at_a_time_and_leaving_early_ends_the_child() -> None:
    data = builders.make_zip({f"{n}.bin": os.urandom(2_000_000) for n in range(8)}, compression=zipfile.ZIP_STORED)
    found = iter_members(data)
    assert next(found).name == "0.bin"
    server = process.server_pid()
    assert server is not None and children_of(server)
    found.close()  # type: ignore[attr-defined]
    wait_until(lambda: not children_of(server))


def test_a_child_that_dies_in_an_archive_is_an_error_and_no_hang() -> None:
    data = builders.make_zip({f"{n}.bin": os.urandom(2_000_000) for n in range(8)}, compression=zipfile.ZIP_STORED)
    found = iter_members(data)
    next(found)
    server = process.server_pid()
    assert server is not None
    for child in children_of(server):
        os.kill(child, signal.SIGSEGV)
    with raises_with(ParseError, kind="crashed"):
        list(found)


def test_an_archive_that_takes_too_long_is_a_timeout_that_says_so() -> None:
    data = builders.make_zip({f"{n}.bin": os.urandom(2_000_000) for n in range(8)}, compression=zipfile.ZIP_STORED)
    with raises_with(ParseError, kind="timeout") as caught:
        for _ in iter_members(data, limits=ParseLimits(archive_timeout_s=0.4)):
            time.sleep(0.1)
    assert "archive" in caught.value.message


def test_a_nested_archive_that_is_damaged_is_one_members_error() -> None:
    inner = builders.make_zip({"a.txt": "x"})
    bad, good = iter_members(builders.make_zip({"in.zip": inner[: len(inner) - 25], "good.txt": "y"}))
    assert (bad.name, bad.error and bad.error.kind) == ("in.zip", "broken")
    assert good.data == b"y"


def test_too_many_members_too_many_bytes_too_high_a_ratio() -> None:
    assert kind_of(builders.make_zip({f"{number}.txt": "x" for number in range(11)}), max_members=10) == "bomb"
    stored = builders.make_zip({"a": b"x" * 3_000_000}, compression=zipfile.ZIP_STORED)
    assert kind_of(stored, max_unpacked_mb=2) == "bomb"
    assert kind_of(builders.make_zip({"a": bytes(20 * 1024 * 1024)}), max_ratio=100) == "bomb"


def test_limits_count_over_nested_archives() -> None:
    inner = builders.make_zip({"a": b"x" * 700_000}, compression=zipfile.ZIP_STORED)
    outer = builders.make_zip({"1.zip": inner, "2.zip": inner}, compression=zipfile.ZIP_STORED)
    assert len(members(outer, max_unpacked_mb=10)) == 2
    assert kind_of(outer, max_unpacked_mb=1) == "bomb"


def test_archives_nested_too_deeply_are_refused() -> None:
    data = builders.make_zip({"a.txt": "x"})
    for _ in range(4):
        data = builders.make_zip({"in.zip": data})
    assert kind_of(data, max_depth=3) == "bomb"


def test_a_directory_that_lies_about_sizes_is_caught_while_reading() -> None:
    data = builders.make_bomb_docx(30 * 1024 * 1024, lie=1000)
    with pytest.raises(ParseError) as caught:
        parse(data, "a.docx", limits=ParseLimits(max_unpacked_mb=20))
    assert caught.value.kind in ("bomb", "broken")


def test_a_docx_bomb_is_refused_before_it_unpacks() -> None:
    with raises_with(ParseError, kind="bomb"):
        parse(builders.make_bomb_docx(300 * 1024 * 1024), "a.docx")


def test_a_locked_or_damaged_member_comes_with_its_reason() -> None:
    data = bytearray(builders.make_zip({"a.txt": "first", "b.txt": "second"}, compression=zipfile.ZIP_STORED))
    data[data.index(b"second")] ^= 0xFF
    first, second = iter_members(bytes(data))
    assert (first.data, first.error) == (b"first", None)
    assert (second.data, second.error and second.error.kind) == (b"", "broken")
    locked = bytearray(builders.make_zip({"a.txt": "x"}))
    locked[6] |= 1
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    [member] = iter_members(bytes(locked))
    assert member.error is not None and member.error.kind == "encrypted"


def test_names_in_another_charset_are_read() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("X" * 16), "x")
    raw = "审计压缩文件检索".encode("gb18030")
    assert members(buffer.getvalue().replace(b"X" * 16, raw)) == [(raw.decode("gb18030"), b"x")]


@pytest.mark.parametrize("data", [b"PK\x03\x04 cut off", gzip.compress(b"x" * 1000, mtime=0)[:20]])
def test_a_damaged_container_is_broken(data: bytes) -> None:
    assert kind_of(data) == "broken"


def test_a_gzip_bomb_is_refused() -> None:
    with raises_with(ParseError, kind="bomb"):
        parse(gzip.compress(bytes(5 * 1024 * 1024)), "a.gz", limits=ParseLimits(max_unpacked_mb=2))


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
    with raises_with(ParseError, kind="unsupported") as caught:
        parse(data, name)
    assert word in caught.value.message


def test_a_container_that_ends_too_early_is_broken_and_no_archive() -> None:
    with raises_with(ParseError, kind="broken") as caught:
        parse(builders.make_docx()[:200], "report.docx")
    assert "damaged" in caught.value.message
