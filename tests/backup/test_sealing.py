"""Sealed files: what was written comes back, and nothing else does."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from ragd_site.backup.storage.errors import BackupError, DamagedError
from ragd_site.backup.storage.sealing import MAGIC, PART_BYTES, SALT_BYTES, Key

HEAD = len(MAGIC) + SALT_BYTES
KEY = Key.derive("sixteen characters and more", b"s" * SALT_BYTES)


def pieces(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


def seal(content: bytes, name: str = "base", key: Key = KEY) -> bytes:
    return b"".join(key.seal(name, pieces(content, 70_001)))


def unseal(sealed: bytes, name: str = "base", key: Key = KEY) -> bytes:
    return b"".join(key.unseal(name, pieces(sealed, 65_537)))


@pytest.mark.parametrize("size", [0, 1, 1000, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES + 5])
@pytest.mark.parametrize("shrinks", [True, False])
def test_content_of_any_length_comes_back(size: int, shrinks: bool) -> None:
    content = b"wal\0" * (size // 4) + b"x" * (size % 4) if shrinks else os.urandom(size)
    sealed = seal(content)
    assert unseal(sealed) == content
    if size > 1000:
        assert (len(sealed) < len(content) / 10) is shrinks


def test_two_files_of_the_same_content_have_nothing_in_common() -> None:
    content = b"the same text in both" * 1000
    first, second = seal(content), seal(content)
    assert first[HEAD:] != second[HEAD:]
    assert b"the same text" not in first


def test_every_altered_byte_is_found() -> None:
    sealed = bytearray(seal(os.urandom(2 * PART_BYTES + 100)))
    places = [*range(HEAD + 8), *random.Random(1).sample(range(HEAD + 8, len(sealed)), 30), len(sealed) - 1]
    for at in places:
        sealed[at] ^= 1
        with pytest.raises(DamagedError):
            unseal(bytes(sealed))
        sealed[at] ^= 1
    unseal(bytes(sealed))


@pytest.mark.parametrize("parts", [0, 1, 2])
@pytest.mark.parametrize("more", [0, 1, 3, 5000])
def test_what_is_cut_off_is_refused(parts: int, more: int) -> None:
    """Also where a part ends: only the last part is a last part."""
    content = os.urandom(2 * PART_BYTES + 10_000)
    sealed_part = 4 + 1 + PART_BYTES + 16
    with pytest.raises(DamagedError, match=r"cut off|altered"):
        unseal(seal(content)[: HEAD + parts * sealed_part + more])


def test_parts_cannot_be_left_out_moved_or_added() -> None:
    sealed, part = seal(os.urandom(3 * PART_BYTES)), 4 + 1 + PART_BYTES + 16
    head, first, second, third = sealed[:HEAD], *(sealed[HEAD + n * part : HEAD + (n + 1) * part] for n in range(3))
    assert head + first + second + third == sealed
    for wrong in (head + second + third, head + first + third, head + second + first + third, sealed + third, head):
        with pytest.raises(DamagedError):
            unseal(wrong)


def test_a_file_under_another_name_or_key_is_refused() -> None:
    sealed = seal(b"content")
    with pytest.raises(DamagedError):
        unseal(sealed, name="files")
    with pytest.raises(DamagedError):
        unseal(sealed, key=Key.derive("sixteen characters and others", b"s" * SALT_BYTES))
    with pytest.raises(DamagedError):
        unseal(b"PK\x03\x04" + bytes(100))


def test_a_short_secret_is_no_key() -> None:
    with pytest.raises(BackupError):
        Key.derive("fifteen letters", b"s" * SALT_BYTES)
    assert "sixteen" not in repr(KEY)
    assert repr(KEY.value) not in repr(KEY)
