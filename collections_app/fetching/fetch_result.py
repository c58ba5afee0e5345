"""What a source gave."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The bytes under a file's name, and what the server said of their state.

    content None: nothing changed since the bytes with that sha256 (hex) came; else sha256 is "". final_address: where
    redirects led to.
    """

    name: str
    content: bytes | None
    sha256: str = ""
    etag: str = ""
    last_modified: str = ""
    final_address: str = ""
