"""Streams under AES-256-GCM, part by part, so that an altered, shortened or exchanged file is found while it is read.

A sealed file is MAGIC, a salt of 32 bytes, and parts: 4 bytes of length, then the ciphertext of at most 1 MiB of
content. Each file has a key of its own, HKDF-SHA256 of the repository's key and the salt. The nonce of a part is its
number and whether it is the last; its associated data are MAGIC, the salt and the file's name. So no part can be
changed, moved, left out or taken from another file, and a file without its last part is known to be cut off.
"""

from __future__ import annotations

import hmac
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from ragd_site.backup.storage.errors import BackupError, DamagedError

MAGIC = b"ragd sealed 1\n"
SALT_BYTES = 32
PART_BYTES = 1 << 20
LENGTH_BYTES = 4
PART_MAX_BYTES = PART_BYTES + 1024  # of a ciphertext: what compression and the tag may add
KEY_MIN_CHARS = 16
STORED, DEFLATED = b"\0", b"\1"
SAMPLE_BYTES = 16_384
WORTH_IT = 0.8  # a part whose beginning does not shrink to this share is stored as it is: vectors do not shrink
PURPOSE = b"ragd backup file"
CHECKED = b"ragd backup repository"


@dataclass(frozen=True, slots=True)
class Key:
    """A repository's key: scrypt of what the operator keeps, with the repository's salt."""

    value: bytes = field(repr=False)

    @classmethod
    def derive(cls, secret: str, salt: bytes) -> Key:
        """Raises BackupError for a secret of less than 16 characters."""
        if len(secret) < KEY_MIN_CHARS:
            raise BackupError(
                f"the backup key must have at least {KEY_MIN_CHARS} characters, and it has {len(secret)}; "
                "`manage.py ragd backup key FILE` makes one"
            )
        return cls(Scrypt(salt=salt, length=32, n=2**15, r=8, p=1).derive(secret.encode()))

    def check_value(self) -> str:
        """What tells the right key from another, and nothing else of it."""
        return hmac.digest(self.value, CHECKED, "sha256").hex()

    def _cipher(self, salt: bytes) -> AESGCM:
        return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=salt, info=PURPOSE).derive(self.value))

    def seal(self, name: str, content: Iterable[bytes]) -> Iterator[bytes]:
        """The sealed file of this content, of any length and cut anyhow. name: what it is read by again."""
        salt = os.urandom(SALT_BYTES)
        cipher, head = self._cipher(salt), MAGIC + salt
        yield head
        parts = cut(content)
        number, waiting = 0, next(parts, b"")
        for part in parts:
            yield _encrypt(cipher, number, waiting, False, head, name)
            number, waiting = number + 1, part
        yield _encrypt(cipher, number, waiting, True, head, name)

    def unseal(self, name: str, sealed: Iterable[bytes]) -> Iterator[bytes]:
        """The content, part by part, each proven before it is given out. Raises DamagedError; what came before the
        damage is good, but the content is whole only when the iterator ends without one."""
        reader = _Reader(name, sealed)
        head = reader.take(len(MAGIC) + SALT_BYTES)
        if not head.startswith(MAGIC):
            raise DamagedError(f"{name} is not a file of a ragd backup, or its beginning was altered")
        cipher = self._cipher(head[len(MAGIC) :])
        number = 0
        while True:
            length = int.from_bytes(reader.take(LENGTH_BYTES), "big")
            if length > PART_MAX_BYTES:
                raise _altered(name, number)
            part = reader.take(length)
            is_last = reader.is_at_end()
            yield _decrypt(cipher, number, part, is_last, head, name)
            if is_last:
                return
            number += 1


def cut(content: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in parts of PART_BYTES, the last one shorter; none for nothing."""
    waiting = bytearray()
    for piece in content:
        waiting += piece
        while len(waiting) >= PART_BYTES:
            yield bytes(waiting[:PART_BYTES])
            del waiting[:PART_BYTES]
    if waiting:
        yield bytes(waiting)


def _encrypt(cipher: AESGCM, number: int, part: bytes, is_last: bool, head: bytes, name: str) -> bytes:
    sample = part[:SAMPLE_BYTES]
    shrinks = len(zlib.compress(sample, 1)) < WORTH_IT * len(sample)
    packed = DEFLATED + zlib.compress(part, 1) if shrinks else STORED + part
    sealed = cipher.encrypt(_nonce(number, is_last), packed, head + name.encode())
    return len(sealed).to_bytes(LENGTH_BYTES, "big") + sealed


def _decrypt(cipher: AESGCM, number: int, part: bytes, is_last: bool, head: bytes, name: str) -> bytes:
    try:
        packed = cipher.decrypt(_nonce(number, is_last), part, head + name.encode())
    except (InvalidTag, ValueError):
        if is_last and _opens(cipher, number, part, head, name):
            raise DamagedError(f"{name} is cut off after {number + 1} parts: its end is missing") from None
        raise _altered(name, number) from None
    return zlib.decompress(packed[1:]) if packed[:1] == DEFLATED else packed[1:]


def _opens(cipher: AESGCM, number: int, part: bytes, head: bytes, name: str) -> bool:
    """Whether it is a good part, but not a last one."""
    try:
        cipher.decrypt(_nonce(number, False), part, head + name.encode())
    except (InvalidTag, ValueError):
        return False
    return True


def _nonce(number: int, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])


def _altered(name: str, number: int) -> DamagedError:
    return DamagedError(
        f"{name} was altered in part {number} (bytes from {number * PART_BYTES:,}), or is another file of this name; "
        "take another backup"
    )


class _Reader:
    """Exactly so many bytes at a time of an iterator of pieces."""

    def __init__(self, name: str, pieces: Iterable[bytes]) -> None:
        self.name, self._pieces, self._waiting = name, iter(pieces), bytearray()

    def take(self, count: int) -> bytes:
        """Raises DamagedError when there are fewer."""
        self._fill(count)
        if len(self._waiting) < count:
            raise DamagedError(f"{self.name} is cut off: its end is missing")
        result = bytes(self._waiting[:count])
        del self._waiting[:count]
        return result

    def is_at_end(self) -> bool:
        self._fill(1)
        return not self._waiting

    def _fill(self, count: int) -> None:
        while len(self._waiting) < count and (piece := next(self._pieces, None)) is not None:
            self._waiting += piece
