"""Files of PostgreSQL's write-ahead log (WAL), 16 MB each, by their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg

SEGMENT_BYTES = 16 << 20
SEGMENT = re.compile(r"[0-9A-F]{24}")
READ_SEGMENT = "SELECT pg_read_binary_file('pg_wal/' || %s, 0, %s)"


def segment_number(segment: str) -> int:
    """Its place in the log. Raises ValueError for a name that is none."""
    if not SEGMENT.fullmatch(segment):
        raise ValueError(segment)
    return (int(segment[8:16], 16) << 8) + int(segment[16:], 16)


def segments(first: str, last: str) -> Iterator[str]:
    """Names from one to another of the same timeline, both included; none when `last` is earlier."""
    for number in range(segment_number(first), segment_number(last) + 1):
        yield f"{first[:8]}{number >> 8:08X}{number & 0xFF:08X}"


def next_segment(segment: str) -> str:
    """The name after it."""
    number = segment_number(segment) + 1
    return f"{segment[:8]}{number >> 8:08X}{number & 0xFF:08X}"


def read_segment(connection: psycopg.Connection[Any], segment: str, length: int = SEGMENT_BYTES) -> Iterator[bytes]:
    """The first bytes of a segment that the server still has."""
    with connection.cursor(binary=True) as cursor:
        row = cursor.execute(READ_SEGMENT, [segment, length]).fetchone()
    yield bytes(row[0]) if row else b""


def fetch_value(connection: psycopg.Connection[Any], statement: str, *values: object) -> Any:
    """The first column of the first row; None when there is none."""
    row = connection.execute(statement, values).fetchone()
    return row[0] if row else None
