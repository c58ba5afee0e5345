"""Leases: work is claimed by one process at a time, held by heartbeats, and released, cancelled or taken over.

Every write of an attempt says which attempt it belongs to; one that finds the work cancelled, taken over or gone
changes nothing and raises LeaseLostError. A thread beside the attempt notices the loss (`Lease.hold`) and signals the
main thread, where the handler raises LeaseLostError if the attempt has said that it may be interrupted there: while it
waits for a parser, an endpoint, a pause. Elsewhere, such as in a transaction, nothing is raised: the attempt's next
write finds out by itself.

Messages to workers by the registered name of a task, how often work is tried, and what is sent again.

A broker that is down only delays the work, and so does a process that dies with it: maintenance sends it again.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import FrameType
from typing import Any, Generic, TypeVar

from celery import Task, current_app
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, models, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from collections_app.domain.rows import prepared, reader_of
from ragd.store.store import execute

log = logging.getLogger(__name__)

SIGNAL = signal.SIGUSR2
LOOK_EVERY_S = 1.0  # for whether the work was cancelled
WRITE_EVERY_S = 0.5

# One statement, so that of two processes one gets it; who finds the row held by another transaction takes nothing.
# Run for every job; a QuerySet would compile its SQL each time.
CLAIM = """
UPDATE {table} r
SET attempts = attempts + 1, worker = %(owner)s, {heartbeat} = statement_timestamp(),
    lease_until = statement_timestamp() + %(lease)s{assignments}
WHERE {pk} = (
    SELECT {pk} FROM {table}
    WHERE {pk} = %(pk)s AND (lease_until IS NULL OR lease_until < statement_timestamp()) AND {condition}
    FOR NO KEY UPDATE SKIP LOCKED
) RETURNING {columns}
"""
BEAT = "UPDATE {table} r SET {values} WHERE {pk} = %(of)s AND attempts = %(attempt)s AND lease_until IS NOT NULL"


class LeasedWork(models.Model):
    """Work whose whole state is its row. The broker carries the row's id and may lose or repeat it.

    worker: host:pid of the process that claimed it last, "" when it was given back. attempts: how often it was claimed;
    the number fences the writes of an attempt. attempts_forgiven: those that do not count against the limit, because
    progress was stored for good after them or because the work is not to blame for their end. sent_at: when its message
    was last sent, or the moment before which it is not to be sent. lease_until: null while nobody holds it.
    """

    worker = models.TextField(default="", blank=True)
    attempts = models.IntegerField(default=0)
    attempts_forgiven = models.IntegerField(default=0)
    sent_at = models.DateTimeField(default=timezone.now, editable=False)
    lease_until = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    @property
    def tries(self) -> int:
        """The attempts that count against the limit."""
        return self.attempts - self.attempts_forgiven


W = TypeVar("W", bound=LeasedWork)


class LeaseLostError(Exception):
    """This attempt no longer holds its work: that was cancelled, superseded, taken over or deleted."""


_run = {"is_lost": False, "may_raise": False}


@contextmanager
def watched() -> Iterator[None]:
    """Around an attempt, which begins with nothing lost. The signal does nothing outside of the main thread."""
    _run.update(is_lost=False, may_raise=False)
    if threading.current_thread() is threading.main_thread():
        # never taken back: a signal that comes a moment after the run would otherwise end the process
        signal.signal(SIGNAL, _on_signal)
    try:
        yield
    finally:
        _run.update(is_lost=False)  # what comes after it in this process has lost nothing


@contextmanager
def interruptible() -> Iterator[None]:
    """Around what may take long and holds nothing: the loss of the lease raises LeaseLostError in it, at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _run["may_raise"] = True
    try:
        if _run["is_lost"]:
            raise LeaseLostError
        yield
    finally:
        _run["may_raise"] = False


def interrupt(run: threading.Thread) -> None:
    """From another thread: the lease of the attempt in this thread is lost."""
    if run is threading.main_thread() and run.ident is not None:
        _run["is_lost"] = True
        signal.pthread_kill(run.ident, SIGNAL)


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    if _run["may_raise"]:
        _run["may_raise"] = False  # once: what cleans up is left in peace
        raise LeaseLostError


def worker_name() -> str:
    """host:pid, which tells one worker process from another."""
    return f"{socket.gethostname()}:{os.getpid()}"


def lease_length() -> timedelta:
    return timedelta(seconds=settings.RAGD_JOB_LEASE_S)


def database_now() -> datetime:
    """The time by the clock that leases go by."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def claimable() -> Q:
    """Held by nobody, or by a process whose lease has expired."""
    return Q(lease_until=None) | Q(lease_until__lt=Now())


def claim(
    model: type[W], pk: object, owner: str, condition: str, assignments: str = "", **params: Any
) -> Lease[W] | None:
    """Take the work of this id, if it is claimable and meets the condition; None when it is not.

    condition: SQL over the row. assignments: SQL of what is set with it. Both may use the params.
    """
    table, reader = model._meta, reader_of(model)
    statement = CLAIM.format(
        table=table.db_table,
        pk=table.pk.column,
        heartbeat=reader.named["heartbeat_at"].column,
        condition=condition,
        assignments=f", {assignments}" if assignments else "",
        columns=reader.columns,
    )
    work = reader.first(statement, params | {"pk": pk, "owner": owner, "lease": lease_length()})
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
        table, reader = self.work._meta, reader_of(type(self.work))
        text, params = reader.assign(values)
        sets = [f"{reader.named['heartbeat_at'].column} = statement_timestamp()", *([text] if text else [])]
        if "lease_until" not in values:
            sets.append("lease_until = statement_timestamp() + %(lease)s")
        statement = BEAT.format(table=table.db_table, pk=table.pk.column, values=", ".join(sets))
        params |= {"of": self.work.pk, "attempt": self.attempt, "lease": lease_length()}
        if not execute(prepared, statement, params):
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
        that says that it may be interrupted (`interruptible`).
        """
        ended, lost = threading.Event(), threading.Event()
        run = threading.current_thread() if interrupts else None
        args = (self._keep, ended, lost, run)  # in a copy of the context: it may do what this thread may
        keeper = threading.Thread(target=copy_context().run, args=args, daemon=True, name="ragd-lease")
        with watched():
            keeper.start()
            try:
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
                    extended_at = time.monotonic()
                    self.mine.update(heartbeat_at=Now(), lease_until=Now() + lease_length())
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


def release_dead(rows: QuerySet[Any], host: str) -> int:
    """End the leases of processes of this host, the caller's, that are gone: nobody has to wait for them. The number.

    The attempts of that work count: it may be to blame.
    """
    held = rows.filter(lease_until__gt=Now(), worker__startswith=f"{host}:")
    workers = held.order_by().values_list("worker", flat=True).distinct()
    gone = [worker for worker in workers if not _is_process(worker.rpartition(":")[2])]
    return held.filter(worker__in=gone).update(lease_until=Now()) if gone else 0


def _is_process(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError, OverflowError):
        return True
    return True


class Progress(Generic[W]):
    """Writes through the lease: every write says which attempt it belongs to, and extends the lease."""

    def __init__(self, lease: Lease[W]) -> None:
        self.lease = lease
        self.written_at = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the last write is half a second ago. What changes quickly is written only then."""
        return time.monotonic() - self.written_at >= WRITE_EVERY_S

    def write(self, **values: Any) -> None:
        """Set these columns of the row and of `lease.work`. Raises LeaseLostError; the row is then as it was."""
        self.lease.heartbeat(**values)
        self.written_at = time.monotonic()
        for name, value in values.items():
            setattr(self.lease.work, name, value)


RESEND_AFTER = timedelta(minutes=1)
SENT_AT_ONCE = 1000
AHEAD = timedelta(minutes=5)  # beyond the longest lease and the longest pause before another try


def enqueue(task_name: str, *args: str, queue: str | None = None, delay_s: float = 0) -> None:
    """Send one message once the transaction has committed. queue: None for the default one."""
    enqueue_each(task_name, [args], queue=queue, delay_s=delay_s)


def enqueue_each(
    task_name: str, calls: Iterable[Sequence[str]], *, queue: str | None = None, delay_s: float = 0
) -> None:
    """Send one message per list of arguments once the transaction has committed."""
    messages = list(calls)
    transaction.on_commit(lambda: send(task_name, messages, queue=queue, delay_s=delay_s))


def send(task_name: str, calls: Sequence[Sequence[str]], *, queue: str | None = None, delay_s: float = 0) -> None:
    """Send them now; what the broker does not take is logged. Raises KeyError for a task that is not registered."""
    task, sent = _find_task(task_name), 0
    try:
        with current_app.producer_or_acquire() as producer:  # one for all: whether the broker is there is asked once
            for args in calls:
                task.apply_async(args, countdown=delay_s or None, queue=queue, producer=producer)
                sent += 1
    except Exception:  # every transport has errors of its own
        left = len(calls) - sent
        log.exception("%d of %d messages of %s were not sent; maintenance sends them", left, len(calls), task_name)


def _find_task(task_name: str) -> Task:
    if task_name not in current_app.tasks:  # a process that is no worker loads them with the first message
        current_app.loader.import_default_modules()
    return current_app.tasks[task_name]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off: first_delay_s after the first try, doubled after each further one up to max_delay_s.

    jitter: the greatest share of the delay that is added by chance, so that many do not come back at one moment.
    """

    max_attempts: int
    first_delay_s: float = 5.0
    max_delay_s: float = 60.0
    jitter: float = 0.25

    def allows(self, tries: int) -> bool:
        """Whether there may be another try after so many."""
        return tries < self.max_attempts

    def delay_s(self, tries: int, requested_s: float | None = None) -> float:
        """Seconds to wait after so many tries, 1 or more.

        requested_s: the least that the other side asked for; it counts up to twice max_delay_s.
        """
        delay_s: float = max(min(self.first_delay_s * 2 ** (tries - 1), self.max_delay_s), requested_s or 0)
        return min(delay_s, 2 * self.max_delay_s) * (1 + random.uniform(0, self.jitter))  # noqa: S311


def job_retry_policy() -> RetryPolicy:
    """The one of RAGD_JOB_MAX_ATTEMPTS."""
    return RetryPolicy(settings.RAGD_JOB_MAX_ATTEMPTS)


@dataclass(frozen=True)
class Recovered(Generic[W]):
    """expired: held by a process that is gone. unsent: their message was lost. given_up: tried too often."""

    expired: list[W]
    unsent: list[W]
    given_up: list[W]


def overdue(now: datetime, unsent_before: datetime, *, ahead: timedelta = AHEAD) -> Q:
    """With an expired lease, or held by nobody and last sent before `unsent_before`.

    So is what was written by a clock that was ahead, by more than `ahead`, and is right again.
    """
    expired = Q(lease_until__lt=now) | Q(lease_until__gt=now + lease_length() + AHEAD)
    return expired | Q(lease_until=None) & (Q(sent_at__lt=unsent_before) | Q(sent_at__gt=now + ahead))


def recover(
    rows: QuerySet[W], policy: RetryPolicy, give_up: Callable[[W], object], now: datetime, **values: Any
) -> Recovered[W]:
    """Take back these overdue rows, those that were sent first before others, at most 1,000.

    In the caller's transaction, which sends what is expired or unsent. Rows that somebody works on are passed over.
    values: columns to set on what is sent again. give_up: ends a row that was tried as often as it may be.
    """
    recovered = Recovered[W]([], [], [])
    for work in rows.select_for_update(skip_locked=True, of=("self",)).order_by("sent_at")[:SENT_AT_ONCE]:
        if not policy.allows(work.tries):
            give_up(work)
            recovered.given_up.append(work)
        else:
            (recovered.unsent if work.lease_until is None else recovered.expired).append(work)
    again = [work.pk for work in (*recovered.expired, *recovered.unsent)]
    rows.model._default_manager.filter(pk__in=again).update(sent_at=now, lease_until=None, worker="", **values)
    return recovered


def requeue(
    rows: QuerySet[W],
    task_name: str,
    policy: RetryPolicy,
    give_up: Callable[[W], object],
    now: datetime,
    *,
    ahead: timedelta = AHEAD,
    **values: Any,
) -> int:
    """Send what is overdue of these rows, which have not ended; returns how many were sent."""
    with transaction.atomic():
        recovered = recover(rows.filter(overdue(now, now - RESEND_AFTER, ahead=ahead)), policy, give_up, now, **values)
        again = [*recovered.expired, *recovered.unsent]
        if again:
            enqueue_each(task_name, [(str(work.pk),) for work in again])
    return len(again)
