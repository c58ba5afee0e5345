"""An iterator of bytes as something to read from."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import BinaryIO, cast


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
