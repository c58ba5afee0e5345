"""A copy of a document without its password, made in the parser's child process from the password that opens it."""

from __future__ import annotations

from typing import IO

from collections_app.parsing.process import process
from collections_app.parsing.types import ParseLimits


def unlock(data: bytes | IO[bytes], name: str, password: str, *, limits: ParseLimits) -> bytes:
    """The same PDF, Word, Excel or PowerPoint document without protection.

    The password is sent to the child and kept nowhere. Raises ParseError: "encrypted" for a wrong password,
    "unsupported" for a format whose protection is not read, and what else a child may end with.
    """
    request = {"name": name[-process.NAME_CHARS :], "unlock": password}
    for _ in range(process.START_ATTEMPTS):
        try:
            with process.submit(data, request, limits, wall_s=limits.timeout_s, fresh=True) as connection:
                head = process.receive(connection, limits)
                return b"".join(process.receive_pieces(connection, head["sizes"][0]))
        except process.DisconnectedError:
            continue
    raise process.ended_twice()
