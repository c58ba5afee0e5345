"""Encrypted files: what was written comes back, and nothing else does."""

from __future__ import annotations

import io
import os
import random
import threading
from collections.abc import Iterator

import pytest
from pyrage import decrypt, x25519

from ragd_site.backup.programs import BackupError, DamagedError
from ragd_site.backup.streams import Key, WrongKeyError, compress, decompress, transform

TEXT = Key.generate()
KEY = Key(TEXT)
PART_BYTES = 65_536 + 16  # of an age file


def pieces(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


def encrypt(content: bytes) -> bytes:
    return b"".join(KEY.encrypt(pieces(content, 70_001)))


def read(encrypted: bytes, key: Key = KEY) -> bytes:
    return b"".join(key.decrypt("base", pieces(encrypted, 65_537)))


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 3_000_005])
def test_content_of_any_length_comes_back(size: int) -> None:
    content = os.urandom(size)
    encrypted = encrypt(content)
    assert read(encrypted) == content
    identity = x25519.Identity.from_str(TEXT.splitlines()[-1])
    assert decrypt(encrypted, [identity]) == content, "as any program for age reads it"


def test_every_altered_byte_and_every_cut_is_found() -> None:
    encrypted = bytearray(encrypt(os.urandom(200_000)))
    places = [*range(30), *random.Random(1).sample(range(200, len(encrypted)), 30), len(encrypted) - 1]
    for at in places:
        encrypted[at] ^= 1
        with pytest.raises(DamagedError):
            read(bytes(encrypted))
        encrypted[at] ^= 1
    for end in (0, 100, len(encrypted) - 1, len(encrypted) - PART_BYTES, *random.Random(2).sample(range(200_000), 10)):
        with pytest.raises(DamagedError):
            read(bytes(encrypted[:end]))
    with pytest.raises(DamagedError):
        read(bytes(encrypted) + b"more")
    read(bytes(encrypted))


def test_another_key_is_told_from_damage() -> None:
    with pytest.raises(WrongKeyError):
        read(encrypt(b"content"), Key(Key.generate()))
    with pytest.raises(BackupError, match="age-keygen"):
        Key("sixteen characters and more")
    assert TEXT.splitlines()[-1] not in repr(KEY)


def test_an_error_of_either_side_ends_both() -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * 1000
        raise BackupError("pg_basebackup ended")

    with pytest.raises(BackupError, match="pg_basebackup ended"):
        list(KEY.encrypt(broken()))

    def refuse(source: io.RawIOBase, target: io.RawIOBase) -> None:
        target.write(source.read(10))
        raise ValueError("no more")

    passed = transform(refuse, [b"x" * 10])
    assert next(passed) == b"x" * 10
    with pytest.raises(ValueError, match="no more"):
        next(passed)
    threads = threading.active_count()
    halfway = KEY.encrypt(iter(lambda: bytes(1 << 20), None))
    next(halfway)
    assert threading.active_count() == threads + 1
    halfway.close()
    assert threading.active_count() == threads


def test_no_more_than_a_little_is_read_ahead() -> None:
    given = 0

    def endless() -> Iterator[bytes]:
        nonlocal given
        while True:
            given += 1 << 20
            yield bytes(1 << 20)

    taken = 0
    for part in KEY.decrypt("base", KEY.encrypt(endless())):
        taken += len(part)
        assert given - taken < 4 << 20
        if taken > 20 << 20:
            break


def test_compressed_zeros_come_back_in_pieces() -> None:
    zeros = bytes(20 << 20)
    parts = list(decompress(compress([zeros])))
    assert max(map(len, parts)) <= 1 << 20
    assert b"".join(parts) == zeros
