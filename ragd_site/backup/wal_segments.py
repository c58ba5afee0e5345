"""Files of PostgreSQL's write-ahead log (WAL), 16 MB each, by their names."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from ragd_site.backup.errors import DamagedError

SEGMENT_BYTES = 16 << 20
SEGMENT = re.compile(r"[0-9A-F]{24}")
READ_SEGMENT = "SELECT pg_read_binary_file('pg_wal/' || %s, 0, %s)"
PLACE = slice(8, 16)  # in the header of a segment: where in the log it begins, in bytes
SYSTEM = slice(24, 32)  # the identifier of the server that wrote it


def segment_number(segment: str) -> int:
    """Its place in the log. Raises ValueError for a name that is none."""
    if not SEGMENT.fullmatch(segment):
        raise ValueError(segment)
    return (int(segment[8:16], 16) << 8) + int(segment[16:], 16)


def segment_of(name: str) -> str:
    """The segment that a file of an archive holds."""
    return name.rpartition("/")[2].partition(".")[0]


def segments(first: str, last: str) -> Iterator[str]:
    """Names from one to another of the same timeline, both included; none when `last` is earlier."""
    for number in range(segment_number(first), segment_number(last) + 1):
        yield f"{first[:8]}{number >> 8:08X}{number & 0xFF:08X}"


def read_segment(connection: psycopg.Connection[Any], segment: str, length: int = SEGMENT_BYTES) -> bytes:
    """The first bytes of a segment that the server still has."""
    with connection.cursor(binary=True) as cursor:
        row = cursor.execute(READ_SEGMENT, [segment, length]).fetchone()
    return bytes(row[0]) if row else b""


def write_segment(name: str, content: Iterable[bytes], folder: Path, system: str) -> None:
    """Write a file of an archive as a segment, with zeros after a beginning.

    system: the identifier of the server that it must be of. Raises DamagedError for another segment.
    """
    segment = segment_of(name)
    with (folder / segment).open("w+b") as file:
        for piece in content:
            file.write(piece)
        file.truncate(SEGMENT_BYTES)
        file.seek(0)
        header = file.read(SYSTEM.stop)
    place, writer = (int.from_bytes(header[part], sys.byteorder) for part in (PLACE, SYSTEM))
    if (place, str(writer)) != (segment_number(segment) * SEGMENT_BYTES, system):
        raise DamagedError(f"{name} holds another part of a write-ahead log; take another backup")


def fetch_value(connection: psycopg.Connection[Any], statement: str, *values: object) -> Any:
    """The first column of the first row; None when there is none."""
    row = connection.execute(statement, values).fetchone()
    return row[0] if row else None
