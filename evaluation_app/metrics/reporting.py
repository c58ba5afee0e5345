"""What every process has counted, written into one table, so that any of them can tell the sum of all.

A process writes its counts as they stand, so a write that is lost costs nothing and one that is repeated changes
nothing. Rows of processes that are gone are folded into one row per service: a counter never falls when one ends.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from evaluation_app.metrics.registry import Data, Registry, add_up, take_away

UPDATE_ROW = "UPDATE metric_snapshots SET data = %(data)s, updated_at = now() WHERE name = %(name)s"
INSERT_ROW = """
INSERT INTO metric_snapshots (name, service, data, updated_at) VALUES (%(name)s, %(service)s, %(data)s, now())
"""
TOUCH_ROW = "UPDATE metric_snapshots SET updated_at = now() WHERE name = %(name)s"
TRY_FOLD_LOCK = "SELECT pg_try_advisory_xact_lock(%(lock)s)"
TAKE_GONE = """
SELECT name, service, data FROM metric_snapshots
WHERE service <> '' AND updated_at < now() - make_interval(secs => %(gone_s)s)
ORDER BY name LIMIT %(most)s FOR UPDATE SKIP LOCKED
"""
READ_SUM = "SELECT data FROM metric_snapshots WHERE name = %(name)s"
WRITE_SUM = """
INSERT INTO metric_snapshots (name, service, data, updated_at) VALUES (%(name)s, '', %(data)s, now())
ON CONFLICT (name) DO UPDATE SET data = excluded.data, updated_at = now()
"""
DROP_ROWS = "DELETE FROM metric_snapshots WHERE name = ANY(%(names)s)"
FOLD_LOCK = 0x7261676402  # one number for "rows of processes that are gone are being added up"

COUNT_EVERY_S = 0.5
WRITE_EVERY_S = 10.0
ALIVE_EVERY_S = 60.0  # a process without news says that it lives
GONE_AFTER_S = 600.0
FOLD_EVERY_S = 300.0
FOLDED_AT_ONCE = 500
SUM_PREFIX = "sum:"

Connect = Callable[[], psycopg.Connection[Any]]
log = logging.getLogger(__name__)


class Reporter:
    """Writes the registry of this process every WRITE_EVERY_S, in a thread that begins with the first `wake`.

    connect: an autocommit connection with short timeouts; one is opened for each write. A forked child has a name of
    its own and begins anew.
    """

    def __init__(self, registry: Registry, connect: Connect, service: str) -> None:
        self.registry, self.connect, self.service = registry, connect, service
        self._begin()
        begin = weakref.WeakMethod(self._begin)
        os.register_at_fork(after_in_child=lambda: (anew := begin()) and anew())

    def _begin(self) -> None:
        self.name = f"{self.service}@{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._written: Sequence[Data] | None = None  # None: this process has no row
        self._folded: Sequence[Data] = []  # what of this process' counts stands in a sum already
        self._alive_at = 0.0

    def wake(self) -> None:
        """See that the thread runs. Cheap: called whenever something was counted."""
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._stop.is_set():
                    self._thread = threading.Thread(target=self._run, name="ragd-metrics", daemon=True)
                    self._thread.start()

    def stop(self) -> None:
        """Write once more and end; never raises."""
        self._stop.set()
        if self._thread is not None:
            self.try_write()

    def try_write(self) -> bool:
        """`write`, and whether it succeeded: a database that is away costs nothing but time."""
        try:
            self.write()
        except (psycopg.Error, OSError) as error:
            log.info("the metrics of this process could not be written; the next write holds them too: %s", error)
            return False
        return True

    def write(self) -> None:
        """Bring this process' row up to date; nothing is written when nothing was counted. Raises psycopg.Error."""
        with self._lock:
            current = take_away(self.registry.snapshot(), self._folded) if self._folded else self.registry.snapshot()
            is_news = current != (self._written or [])
            if not is_news and (self._written is None or time.monotonic() - self._alive_at < ALIVE_EVERY_S):
                return
            with closing(self.connect()) as connection:
                self._put(connection, current, is_news=is_news)
            self._alive_at = time.monotonic()

    def _put(self, connection: psycopg.Connection[Any], current: Sequence[Data], *, is_news: bool) -> None:
        if self._written is not None:
            statement = UPDATE_ROW if is_news else TOUCH_ROW
            if connection.execute(statement, {"name": self.name, "data": json.dumps(current)}).rowcount:
                self._written = current
                return
            # the row was taken for that of a process which is gone: what stood in it is in the sum for good
            self._folded = add_up([self._folded, self._written])
            current = take_away(current, self._written)
            self._written = None
        values = {"name": self.name, "service": self.service, "data": json.dumps(current)}
        connection.execute(INSERT_ROW, values)
        self._written = current

    def _run(self) -> None:
        write_at = time.monotonic() + WRITE_EVERY_S
        fold_at = time.monotonic() + FOLD_EVERY_S
        while not self._stop.wait(COUNT_EVERY_S):
            self.registry.count_waiting()
            if time.monotonic() < write_at:
                continue
            write_at = time.monotonic() + WRITE_EVERY_S
            if self.try_write() and time.monotonic() >= fold_at:
                fold_at = time.monotonic() + FOLD_EVERY_S
                self._try_fold()

    def _try_fold(self) -> None:
        try:
            with closing(self.connect()) as connection:
                fold_gone(connection)
        except (psycopg.Error, OSError) as error:
            log.info("the metrics of processes that ended could not be added up now: %s", error)


_own: Reporter | None = None


def use_reporter(reporter: Reporter) -> None:
    """Name the reporter of this process, for `write_own`."""
    global _own
    _own = reporter


def write_own() -> None:
    """Bring this process' row up to date, so that who reads the sums never lags behind itself. Never raises."""
    if _own is not None:
        _own.try_write()


@contextmanager
def closing(connection: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """The connection, closed at the end; unlike its own block it begins no transaction."""
    try:
        yield connection
    finally:
        connection.close()


def fold_gone(connection: psycopg.Connection[Any], *, gone_s: float = GONE_AFTER_S) -> int:
    """Add the rows of processes that were not heard of for gone_s to the sums of their services; how many went.

    One caller at a time: another finds nothing to do. Whoever reads meanwhile sees all of it or nothing.
    """
    with connection.transaction():
        if not _first(connection.execute(TRY_FOLD_LOCK, {"lock": FOLD_LOCK}))[0]:
            return 0
        rows = connection.execute(TAKE_GONE, {"gone_s": gone_s, "most": FOLDED_AT_ONCE}).fetchall()
        for service in sorted({service for _, service, _ in rows}):
            name = f"{SUM_PREFIX}{service}"
            before = connection.execute(READ_SUM, {"name": name}).fetchone()
            parts = [before[0] if before else [], *(data for _, whose, data in rows if whose == service)]
            connection.execute(WRITE_SUM, {"name": name, "data": json.dumps(add_up(parts))})
        connection.execute(DROP_ROWS, {"names": [name for name, _, _ in rows]})
    return len(rows)


def _first(cursor: psycopg.Cursor[Any]) -> Any:
    row = cursor.fetchone()
    assert row is not None
    return row
