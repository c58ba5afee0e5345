"""The members of an archive, unpacked in the parser's child process and handed over one at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from collections_app.parsing.assembly import READER_MODULES
from collections_app.parsing.process import process
from collections_app.parsing.signatures import IMAGES
from collections_app.parsing.sniffing import ARCHIVE_TYPES
from collections_app.parsing.types import Member, ParseError, ParseLimits


def iter_members(data: bytes, *, limits: ParseLimits | None = None, keep_bytes: bool = True) -> Iterator[Member]:
    """The files of a ZIP or TAR, in the archive's order, those of archives inside it in their place.

    The child unpacks the next one when this one has been taken, so that the caller holds `data` and one member. Without
    keep_bytes the members come without data. A member that cannot be taken comes with its error; ParseError is raised
    for an archive that cannot be read on (broken, bomb, unsupported, timeout, memory, crashed), perhaps after members
    of it have come. To leave the loop early ends the child.
    """
    limits = limits or ParseLimits()
    process.check_size(data, limits.max_archive_mb)
    for attempt in range(process.START_ATTEMPTS):
        taken = 0
        try:
            for member in _members_once(data, limits, keep_bytes, fresh=attempt > 0):
                taken += 1
                yield member
            return
        except process.DisconnectedError:
            if taken:
                break
    raise process.ended_twice()


def list_members(data: bytes, *, limits: ParseLimits | None = None) -> list[Member]:
    """All members without their bytes, after the whole archive was unpacked once. Raises ParseError as iter_members."""
    return list(iter_members(data, limits=limits, keep_bytes=False))


def is_readable(media_type: str) -> bool:
    """Whether there is a reader for the media type, or it is an archive whose files can be read."""
    return media_type in READER_MODULES or media_type in ARCHIVE_TYPES


def is_image(media_type: str) -> bool:
    """Whether it is read by text recognition alone."""
    return media_type in IMAGES


def _members_once(data: bytes, limits: ParseLimits, keep_bytes: bool, *, fresh: bool) -> Iterator[Member]:
    wall_s, started = limits.archive_timeout_s, time.monotonic()
    try:
        with process.submit(data, {"members": keep_bytes}, limits, wall_s=wall_s, fresh=fresh) as connection:
            while "end" not in (head := process.receive(connection, limits)):
                yield _member(head, b"".join(process.receive_pieces(connection, head["sizes"][0])))
    except (ParseError, process.DisconnectedError) as error:
        if time.monotonic() - started >= wall_s:
            raise _timeout(limits) from error
        raise


def _member(head: dict[str, Any], data: bytes) -> Member:
    return Member(
        name=head["name"].encode("utf-8", "replace").decode(),
        data=data,
        error=ParseError(*head["refused"]) if "refused" in head else None,
        size_bytes=head["size_bytes"],
        sha256=head["sha256"],
        media_type=head["media_type"],
    )


def _timeout(limits: ParseLimits) -> ParseError:
    return ParseError(
        "timeout",
        f"Unpacking the archive and taking in its files took longer than {limits.archive_timeout_s:g} s and was"
        " stopped. Split the archive.",
    )
