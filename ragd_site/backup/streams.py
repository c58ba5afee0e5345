"""Iterators of bytes: compressed, as tar, as something to read from, and written into new files.

Content under age (https://age-encryption.org/v1), which `age -d -i KEY_FILE` and `rage` read as well.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import SimpleNamespace
from typing import Any, BinaryIO, cast

from pyrage import DecryptError, IdentityError, decrypt_io, encrypt_io, x25519

from ragd_site.backup.programs import BackupError, DamagedError

PIECE_BYTES = 1 << 20
GZIP = 31  # zlib's name of the format
TAR_END = bytes(2 * tarfile.BLOCKSIZE)


class PieceReader(io.RawIOBase):
    """`read(count)` gives as many bytes as it is asked for, until the pieces end."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self._waiting = iter(pieces), bytearray()

    def readable(self) -> bool:
        return True

    def read(self, count: int = -1, /) -> bytes:
        while (count < 0 or len(self._waiting) < count) and (piece := next(self._pieces, None)) is not None:
            self._waiting += piece
        end = len(self._waiting) if count < 0 else count
        result = bytes(self._waiting[:end])
        del self._waiting[:end]
        return result

    def exhaust(self) -> None:
        """Pass over what is left, so that its end is proven too."""
        self._waiting.clear()
        for _ in self._pieces:
            pass


def as_file(pieces: Iterable[bytes]) -> BinaryIO:
    """The same for what asks for a file."""
    return cast(BinaryIO, PieceReader(pieces))


def compress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """As gzip."""
    compressor = zlib.compressobj(1, wbits=GZIP)
    yield from map(compressor.compress, pieces)
    yield compressor.flush()


def decompress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Of gzip, in pieces of 1 MB at most: one of zeros becomes a thousand times as long."""
    decompressor = zlib.decompressobj(wbits=GZIP)
    for piece in pieces:
        while piece:
            yield decompressor.decompress(piece, PIECE_BYTES)
            piece = decompressor.unconsumed_tail
    yield decompressor.flush()


def open_tar(tar: Iterable[bytes]) -> Iterator[bytes]:
    """A tar without its end, so that `tar_member` and TAR_END can follow."""
    end = b""
    for piece in tar:
        end += piece
        yield end[: -len(TAR_END)]
        end = end[-len(TAR_END) :]
    if end != TAR_END:
        yield end


def tar_member(name: str, content: bytes) -> Iterator[bytes]:
    """A file for its owner alone, as part of a tar."""
    header = tarfile.TarInfo(name)
    header.size, header.mode = len(content), 0o600
    yield header.tobuf()
    yield content
    yield bytes(-len(content) % tarfile.BLOCKSIZE)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A draft beside a file, which appears when the block ends. Raises BackupError for one that is there."""
    refusal = BackupError(f"{path} is there already, and nothing is written over; name another", type="file_exists")
    if path.exists():
        raise refusal
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(descriptor)
    draft = Path(name)
    try:
        yield draft
        os.link(draft, path)  # never in place of a file that has come meanwhile
    except FileExistsError:
        raise refusal from None
    finally:
        draft.unlink()


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Into a file, so that they outlast a crash of the machine."""
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


PREFIX = "AGE-SECRET-KEY-"
NO_KEY = "No matching keys found"


class WrongKeyError(DamagedError):
    """The content is under another key, or the lines that say which were altered."""


class Key:
    """An age identity (X25519). Content is encrypted to its own recipient, which is stored nowhere."""

    def __init__(self, text: str) -> None:
        """text: of a key file, as `age-keygen` writes it. Raises BackupError for one without a key."""
        line = next((line.strip() for line in text.splitlines() if line.strip().startswith(PREFIX)), "")
        try:
            self._identity = x25519.Identity.from_str(line)
        except IdentityError:
            raise BackupError(
                f"the backup key must be an age key, a line that begins with {PREFIX}; `manage.py ragd backup key FILE`"
                " makes one, and so does `age-keygen`"
            ) from None

    @staticmethod
    def generate() -> str:
        """The text of a new key file."""
        identity = x25519.Identity.generate()
        return f"# public key: {identity.to_public()}\n{identity}\n"

    def encrypt(self, content: Iterable[bytes]) -> Iterator[bytes]:
        """The age file of content of any length, cut anyhow."""
        recipient = self._identity.to_public()
        return transform(lambda source, target: encrypt_io(source, target, [recipient]), content)

    def decrypt(self, name: str, content: Iterable[bytes]) -> Iterator[bytes]:
        """The content of an age file, each part proven before it is given out.

        name: of the file, for messages. Raises DamagedError: what came before the damage is good, but the content is
        whole only when the iterator ends without one.
        """
        try:
            yield from transform(lambda source, target: decrypt_io(source, target, [self._identity]), content)
        except DecryptError as error:
            kind = WrongKeyError if NO_KEY in str(error) else DamagedError
            raise kind(f"{name} was altered at its beginning: {error}; take another backup") from None
        except OSError as error:
            raise DamagedError(f"{name} was altered, or its end is missing: {error}; take another backup") from None


def transform(program: Callable[[Any, Any], object], content: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what a function writes into its second file while it reads the content from its first.

    The function runs in a thread, the content is iterated in the caller's: each waits for the other, so that no more
    than a piece of either stands in memory. An error of either ends both.
    """
    pieces = filter(None, content)
    asked_for: SimpleQueue[bytes | None] = SimpleQueue()
    events: SimpleQueue[bytes | BaseException | None] = SimpleQueue()  # written; the end; None where more is needed

    def ask() -> bytes:
        events.put(None)
        piece = asked_for.get()
        if piece is None:
            raise BrokenPipeError
        return piece

    def write(data: bytes) -> int:
        events.put(bytes(data))
        return len(data)

    def work() -> None:
        try:
            program(as_file(iter(ask, b"")), SimpleNamespace(write=write, flush=lambda: None))
            events.put(StopIteration())
        except BaseException as error:
            events.put(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        while not isinstance(event := events.get(), StopIteration):
            if isinstance(event, BaseException):
                raise event
            if event is None:
                asked_for.put(next(pieces, b""))
            else:
                yield event
    finally:
        asked_for.put(None)
        thread.join()
