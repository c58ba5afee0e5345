"""Every advisory lock that ragd takes in PostgreSQL: the numbers, and the statements that take and release them.

PostgreSQL keeps two kinds of keys apart: one of 64 bits, and a pair of 32 bits. A number of `LockSpace` is a key of 64
bits, or the seed from which names are hashed to one. Numbers never change: while a new version is rolled out, the
processes of both have to exclude each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Any

from django.db import connection as default


@unique
class LockSpace(IntEnum):
    """What is locked as a whole, or (HOST, PAST_INDEX, JUDGE_FIT) by name."""

    FIRST_KEY = 0x7261676401
    MAINTENANCE = 0x7261676402
    SPAN_PARTITIONS = 0x7261676405
    EVALUATION_CLAIM = 0x7261676406
    PAST_INDEX = 0x7261676407
    ADMINISTRATORS = 0x7261676408
    ALERTS = 0x7261676409
    PREPARATION = 0x726167640A
    JUDGE_FIT = 0x726167640B
    SPAN_ROLLUP = 7_201_954
    HOST = 0x72616764


@dataclass(frozen=True, slots=True)
class LockKey:
    """The arguments of PostgreSQL's lock functions: SQL, and the parameters in it."""

    sql: str
    params: Mapping[str, Any]


HASHED = "hashtextextended(%(name)s, %(seed)s)"
LOCK_NAME = f"SELECT pg_advisory_xact_lock({HASHED})"
LOCK_NAMES = (
    "SELECT pg_advisory_xact_lock(hashtextextended(name, %(seed)s)) FROM unnest(%(names)s::text[]) AS wanted (name)"
)


def whole(space: LockSpace) -> LockKey:
    return LockKey("%(space)s::bigint", {"space": int(space)})


def named(seed: int, name: str) -> LockKey:
    """A name in a space, or among what `document_seed` and `submission_seed` keep apart."""
    return LockKey(HASHED, {"name": name, "seed": int(seed)})


def index_version(collection_id: int, number: int) -> LockKey:
    """A pair of 32 bits, used for the build of an index version's vector index alone."""
    pair = "%(collection_id)s::integer, %(index_version)s::integer"
    return LockKey(pair, {"collection_id": collection_id, "index_version": number})


def document_seed(collection_id: int) -> int:
    """Of the documents of a collection, which are locked by who stores them."""
    return collection_id


def submission_seed(collection_id: int) -> int:
    """Of the same documents, locked by who submits them: nobody who submits waits for the worker that stores."""
    return -1 - collection_id


def lock(key: LockKey) -> None:
    """Wait for the lock; it is held until the transaction ends."""
    _run(default, f"SELECT pg_advisory_xact_lock({key.sql})", key.params)


def lock_names(seed: int, names: Iterable[str]) -> None:
    """`lock` for many names, in their order, so that two who lock the same ones do not block each other."""
    _run(default, LOCK_NAMES, {"names": sorted(set(names)), "seed": int(seed)})


def try_lock(key: LockKey) -> bool:
    """Whether the lock was free; then it is held until the transaction ends."""
    return bool(_run(default, f"SELECT pg_try_advisory_xact_lock({key.sql})", key.params))


def try_session_lock(key: LockKey, connection: Any = default) -> bool:
    """Whether the lock was free; then it is held until `release_session_lock`, or until the session ends."""
    return bool(_run(connection, f"SELECT pg_try_advisory_lock({key.sql})", key.params))


def release_session_lock(key: LockKey, connection: Any = default) -> None:
    _run(connection, f"SELECT pg_advisory_unlock({key.sql})", key.params)


@contextmanager
def session_lock(key: LockKey) -> Iterator[bool]:
    """Whether the lock was free; then it is held inside of the block."""
    is_held = try_session_lock(key)
    try:
        yield is_held
    finally:
        if is_held:
            release_session_lock(key)


def _run(connection: Any, statement: str, params: Mapping[str, Any]) -> Any:
    """The first column of the first row; None without a row."""
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        row = cursor.fetchone()
    return None if row is None else row[0]
