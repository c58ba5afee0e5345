"""Iterators of bytes: as something to read from, and written into new files."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from ragd_site.backup.storage.errors import BackupError


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
