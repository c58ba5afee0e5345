"""Retrieval from a read-only copy of the database, where DATABASE_REPLICA_URL names one.

The primary takes over whenever the copy does not answer, lags too far behind, or does not know the collection yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from django.conf import settings
from django.db import (
    DEFAULT_DB_ALIAS,
    Error,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    connections,
)
from psycopg.errors import UndefinedTable

import ragd
from collections_app.models import Collection
from collections_app.stores import open_store, reading
from ragd.errors import GenerationChanged, UnknownCollection

log = logging.getLogger(__name__)

REPLICA = "replica"
CHECK_EVERY_S = 1.0
BACK_OFF_S = 10.0

# A standby that has replayed all that it received is level, but only while it receives.
LAG = """
SELECT pg_is_in_recovery(),
       CASE
           WHEN NOT pg_is_in_recovery() THEN 0
           WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() AND EXISTS (SELECT 1 FROM pg_stat_wal_receiver)
               THEN 0
           ELSE coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0)
       END::double precision
"""

Found = TypeVar("Found")


@dataclass
class _ReplicaHealth:
    """What this process knows of the replica: usable or not, and when to look again (time.monotonic)."""

    usable: bool = True
    reason: str = ""
    look_at: float = 0.0


_health = _ReplicaHealth()


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """lag_s: seconds behind the primary, None when it does not answer. reason: why it is not used; "" when it is."""

    state: Literal["ready", "behind", "silent"]
    lag_s: float | None
    reason: str


def has_replica() -> bool:
    return REPLICA in settings.DATABASES


def read_store(
    collection: Collection,
    read: Callable[[ragd.Store], Found],
    *,
    without: Callable[[str], object] = lambda reason: None,
) -> Found:
    """read(store) in a read transaction: over the replica when it can be used, else over the primary.

    `read` may run twice, so it must change nothing. Raises what `read` raises over the primary. without: told why a
    replica that there is does not answer.
    """
    if has_replica() and _is_usable():
        try:
            return _read(collection, read, REPLICA)
        except (OperationalError, InterfaceError) as error:
            _back_off(f"it failed: {error}", BACK_OFF_S)
        except UnknownCollection:
            log.info("the replica does not have collection %r yet; the primary answers", collection.name)
    if has_replica() and not _health.usable:
        without(_health.reason)
    return _read(collection, read, DEFAULT_DB_ALIAS)


def _read(collection: Collection, read: Callable[[ragd.Store], Found], alias: str) -> Found:
    """Once more when the generation that served at the beginning was swapped out and dropped before the end."""
    try:
        return _read_once(collection, read, alias)
    except (GenerationChanged, ProgrammingError) as error:
        if isinstance(error, ProgrammingError) and not isinstance(error.__cause__, UndefinedTable):
            raise
        return _read_once(collection, read, alias)


def _read_once(collection: Collection, read: Callable[[ragd.Store], Found], alias: str) -> Found:
    with reading(alias):
        return read(open_store(collection, using=alias))


def _is_usable() -> bool:
    """Looked up once a second, so that a lag ends soon; after a failure, once in ten."""
    now = time.monotonic()
    if now >= _health.look_at:
        state = replica_state()
        if state.reason:
            _back_off(state.reason, BACK_OFF_S if state.state == "silent" else CHECK_EVERY_S)
        else:
            _health.usable, _health.look_at = True, now + CHECK_EVERY_S
    return _health.usable


def _back_off(reason: str, seconds: float) -> None:
    if _health.usable:
        log.warning("the replica is left out, the primary answers: %s", reason)
    _health.usable, _health.look_at, _health.reason = False, time.monotonic() + seconds, reason
    connections[REPLICA].close_if_unusable_or_obsolete()


def replica_state() -> ReplicaState:
    """Asks the replica how far behind it is."""
    try:
        with connections[REPLICA].cursor() as cursor:
            cursor.execute(LAG)
            _, lag_s = cursor.fetchone()
    except Error as error:
        return ReplicaState("silent", None, f"it does not answer: {str(error).strip()}")
    if lag_s > settings.RAGD_REPLICA_MAX_LAG_S:
        reason = f"it is {lag_s:.1f} s behind, more than {settings.RAGD_REPLICA_MAX_LAG_S:g} (RAGD_REPLICA_MAX_LAG_S)"
        return ReplicaState("behind", lag_s, reason)
    return ReplicaState("ready", lag_s, "")
