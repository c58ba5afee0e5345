"""Archives: members in order, nested, in other charsets; limits, lies, paths, passwords and damage."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile

import pytest

from collections_app.parsing import ParseError, ParseLimits, expand_archive, parse
from tests.parsing import builders


def members(data: bytes, **limits: int) -> list[tuple[str, bytes]]:
    return [(member.name, member.data) for member in expand_archive(data, ParseLimits(**limits))]  # type: ignore[arg-type]


def kind_of(data: bytes, **limits: int) -> str:
    with pytest.raises(ParseError) as caught:
        members(data, **limits)
    return caught.value.kind


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


@pytest.mark.parametrize("name", ["../up.txt", "a/../../up.txt", "/etc/passwd", "C:\\x.txt", "..\\up.txt"])
def test_paths_that_leave_the_archive_are_refused(name: str) -> None:
    assert kind_of(builders.make_zip({name: "x"})) == "bomb"


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
    with pytest.raises(ParseError) as caught:
        parse(builders.make_bomb_docx(300 * 1024 * 1024), "a.docx")
    assert caught.value.kind == "bomb"


def test_a_locked_or_damaged_member_comes_with_its_reason() -> None:
    data = bytearray(builders.make_zip({"a.txt": "first", "b.txt": "second"}, compression=zipfile.ZIP_STORED))
    data[data.index(b"second")] ^= 0xFF
    first, second = expand_archive(bytes(data), ParseLimits())
    assert (first.data, first.error) == (b"first", None)
    assert (second.data, second.error and second.error.kind) == (b"", "broken")
    locked = bytearray(builders.make_zip({"a.txt": "x"}))
    locked[6] |= 1
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    [member] = expand_archive(bytes(locked), ParseLimits())
    assert member.error is not None and member.error.kind == "encrypted"


def test_names_in_another_charset_are_read() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("X" * 16), "x")
    raw = "审计压缩文件检索".encode("gb18030")
    assert members(buffer.getvalue().replace(b"X" * 16, raw)) == [(raw.decode("gb18030"), b"x")]


@pytest.mark.parametrize("data", [b"PK\x03\x04 cut off", gzip.compress(b"x" * 1000)[:20]])
def test_a_damaged_container_is_broken(data: bytes) -> None:
    assert kind_of(data) == "broken"


def test_a_gzip_bomb_is_refused() -> None:
    with pytest.raises(ParseError) as caught:
        parse(gzip.compress(bytes(5 * 1024 * 1024)), "a.gz", limits=ParseLimits(max_unpacked_mb=2))
    assert caught.value.kind == "bomb"
