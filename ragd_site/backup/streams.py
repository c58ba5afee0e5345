"""Iterators of bytes: compressed, as tar, as something to read from, and written into new files."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from ragd_site.backup.programs import BackupError

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
