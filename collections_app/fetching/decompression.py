"""A body that was compressed on the way, unpacked under a limit."""

from __future__ import annotations

import zlib

from collections_app.fetching.errors import FetchError

GZIP_OR_ZLIB = 47  # zlib's window bits that tell the two by their header
RAW_DEFLATE = -15
CODINGS = ("", "identity", "gzip", "x-gzip", "deflate")


class Inflater:
    """Takes the parts of a body as they come, gives what they unpack to, and never holds more than `limit` bytes."""

    def __init__(self, coding: str, limit: int) -> None:
        """coding: the Content-Encoding header. Raises FetchError for one that is not understood."""
        self.coding = coding.strip().lower()
        if self.coding not in CODINGS:
            raise FetchError(
                "unknown_encoding",
                f"the server packed the body as {coding[:60]!r} although only gzip was asked for; download it yourself "
                "and upload the file",
            )
        self.limit = limit
        self.size = 0
        self._unpack = zlib.decompressobj(GZIP_OR_ZLIB) if self.coding not in ("", "identity") else None
        self._begun = False

    def feed(self, part: bytes) -> bytes:
        """The unpacked bytes of one part. Raises FetchError "too_large" or "broken_body"."""
        if self._unpack is None:
            return self._count(part)
        out = bytearray()
        while part:
            out += self._step(part)
            part = self._unpack.unconsumed_tail or self._next_member()
        return bytes(out)

    def _step(self, part: bytes) -> bytes:
        assert self._unpack is not None
        room = self.limit - self.size + 1
        try:
            out = self._unpack.decompress(part, room)
        except zlib.error:
            if self.coding != "deflate" or self._begun:
                raise _broken() from None
            self._unpack = zlib.decompressobj(RAW_DEFLATE)  # some servers leave the header out
            self._begun = True
            return self._step(part)
        self._begun = True
        return self._count(out)

    def _next_member(self) -> bytes:
        """What follows the end of one gzip stream is another."""
        assert self._unpack is not None
        rest = self._unpack.unused_data
        if self._unpack.eof and rest.strip(b"\0"):
            self._unpack = zlib.decompressobj(GZIP_OR_ZLIB)
            return rest
        return b""

    def _count(self, out: bytes) -> bytes:
        self.size += len(out)
        if self.size > self.limit:
            raise too_large(self.limit)
        return out

    def finish(self) -> None:
        """The body is over. Raises FetchError when the packed stream is not."""
        if self._unpack is not None and self._begun and not self._unpack.eof:
            raise _broken()


def too_large(limit: int) -> FetchError:
    return FetchError(
        "too_large",
        f"it has more than {limit / 1_000_000:g} MB; at most that is taken. Raise RAGD_MAX_DOCUMENT_MB, or take a part",
    )


def _broken() -> FetchError:
    return FetchError("broken_body", "the packed body broke off or is damaged; it may work later", retryable=True)
