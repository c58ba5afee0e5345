"""Leases: work is claimed by one process at a time, held by heartbeats, and released, cancelled or taken over.

Every write of an attempt says which attempt it belongs to; one that finds the work cancelled, taken over or gone
changes nothing and raises LeaseLostError.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from collections_app.work.interrupting import LeaseLostError, interrupt, watched
from collections_app.work.leased_work import LeasedWork

log = logging.getLogger(__name__)

W = TypeVar("W", bound=LeasedWork)

LOOK_EVERY_S = 1.0  # for whether the work was cancelled


def worker_name() -> str:
    """host:pid, which tells one worker process from another."""
    return f"{socket.gethostname()}:{os.getpid()}"


def lease_length() -> timedelta:
    return timedelta(seconds=settings.RAGD_JOB_LEASE_S)


def claimable(now: datetime) -> Q:
    """Held by nobody, or by a process whose lease has expired."""
    return Q(lease_until=None) | Q(lease_until__lt=now)


def claim(rows: QuerySet[W], pk: object, owner: str, **values: Any) -> Lease[W] | None:
    """Take the work of this id, if it is one of `rows` and claimable; None when it is not.

    One conditional update, so that of two processes one gets it. values: further columns to set with it.
    """
    now = timezone.now()
    holding = {"worker": owner, "heartbeat_at": now, "lease_until": now + lease_length(), "attempts": F("attempts") + 1}
    if not rows.filter(claimable(now), pk=pk).update(**holding | values):
        return None
    work = rows.model._default_manager.filter(pk=pk).first()
    return None if work is None else Lease(work, work.attempts)


@dataclass(frozen=True)
class Lease(Generic[W]):
    """The hold of one attempt on one piece of work."""

    work: W
    attempt: int

    @property
    def mine(self) -> QuerySet[W]:
        """The row, as long as this attempt holds it; else no row."""
        rows: QuerySet[W] = type(self.work)._default_manager.all()
        return rows.filter(pk=self.work.pk, attempts=self.attempt, lease_until__isnull=False)

    def heartbeat(self, **values: Any) -> None:
        """Extend the lease and set these columns. Raises LeaseLostError."""
        now = timezone.now()
        if not self.mine.update(**{"heartbeat_at": now, "lease_until": now + lease_length(), **values}):
            raise LeaseLostError

    def check(self) -> None:
        """Raise LeaseLostError when it is lost. Nothing is written, so nobody waits for it."""
        if not self.mine.exists():
            raise LeaseLostError

    def release(self, **values: Any) -> bool:
        """Give it back and set these columns; False when it was lost before."""
        return bool(self.mine.update(**{"lease_until": None, "worker": "", **values}))

    @contextmanager
    def hold(self, *, interrupts: bool = False) -> Iterator[threading.Event]:
        """Extend the lease from a thread of its own while the block runs, however long one step of it takes.

        The event is set when the lease is lost. interrupts: the loss also raises LeaseLostError in the block, where
        that says that it may be interrupted (`interrupting.interruptible`).
        """
        ended, lost = threading.Event(), threading.Event()
        run = threading.current_thread() if interrupts else None
        keeper = threading.Thread(target=self._keep, args=(ended, lost, run), daemon=True, name="ragd-lease")
        keeper.start()
        try:
            with watched():
                yield lost
        finally:
            ended.set()
            keeper.join()

    def _keep(self, ended: threading.Event, lost: threading.Event, run: threading.Thread | None) -> None:
        extend_every_s = max(0.5, settings.RAGD_JOB_LEASE_S / 4)
        extended_at, was_seen = time.monotonic(), False
        while not lost.is_set() and not ended.wait(min(LOOK_EVERY_S, extend_every_s)):
            try:
                if self.mine.exists():
                    was_seen = True
                elif was_seen or type(self.work)._default_manager.filter(pk=self.work.pk).exists():
                    lost.set()
                    if run is not None and not ended.is_set():
                        interrupt(run)
                if not lost.is_set() and time.monotonic() - extended_at >= extend_every_s:
                    extended_at, now = time.monotonic(), timezone.now()
                    self.mine.update(heartbeat_at=now, lease_until=now + lease_length())
            except (DatabaseError, InterfaceError) as error:
                log.warning(
                    "the lease of %s %s could not be extended: %s", type(self.work).__name__, self.work.pk, error
                )
                connection.close()
        connection.close()


def cancel(rows: QuerySet[Any], reason: str) -> int:
    """End what waits or runs, whoever holds it; returns how many. An attempt that runs notices within seconds."""
    ended = {"state": "cancelled", "finished_at": timezone.now(), "lease_until": None}
    return rows.update(**ended, error_type="", error=reason)


def forgive_host(rows: QuerySet[Any], host: str, *, but: Iterable[int] = ()) -> int:
    """The workers of a host are to stop: no work is to blame for being cut off. Returns how much they hold.

    but: as `held_by_host`.
    """
    return held_by_host(rows, host, but=but).update(attempts_forgiven=F("attempts"))


def held_by_host(rows: QuerySet[Any], host: str, *, but: Iterable[int] = ()) -> QuerySet[Any]:
    """What the workers of a host hold. but: processes that died by themselves, whose work may be to blame."""
    blamed = [f"{host}:{pid}" for pid in but]
    return rows.filter(lease_until__isnull=False, worker__startswith=f"{host}:").exclude(worker__in=blamed)
