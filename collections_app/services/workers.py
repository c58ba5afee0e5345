"""Signs of life: a worker process says that it is there, and a run keeps its job's lease while it works."""

from __future__ import annotations

import logging
import os
import resource
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.utils import timezone

from collections_app.models import IngestJob, WorkerHeartbeat
from collections_app.services.interrupting import interrupt, watched

log = logging.getLogger(__name__)

BEAT_EVERY_S = 10.0
LOOK_EVERY_S = 1.0  # for whether a job was cancelled
FORGET_AFTER = timedelta(hours=1)
STATM = "/proc/self/statm"

_current: dict[str, uuid.UUID | None] = {"job": None}
_done = {"jobs": 0}
_ending = threading.Event()


def worker_name() -> str:
    """host:pid, which tells one worker process from another."""
    return f"{socket.gethostname()}:{os.getpid()}"


@contextmanager
def hold_lease(job: IngestJob) -> Iterator[None]:
    """Extend the job's lease from a thread of its own for as long as the block runs, however long one step takes.

    The thread also sees when the job is no longer this run's, and interrupts the run.
    """
    stop = threading.Event()
    keeper = threading.Thread(
        target=_keep, args=(job, stop, threading.current_thread()), daemon=True, name="ragd-lease"
    )
    keeper.start()
    _current["job"] = job.pk
    try:
        with watched():
            yield
    finally:
        _current["job"] = None
        _done["jobs"] += 1
        stop.set()
        keeper.join()


def _keep(job: IngestJob, stop: threading.Event, run: threading.Thread) -> None:
    extend_every_s = max(0.5, settings.RAGD_JOB_LEASE_S / 4)
    extended_at = time.monotonic()
    was_seen = False
    mine = IngestJob.objects.filter(pk=job.pk, state=IngestJob.State.RUNNING, attempts=job.attempts)
    while not stop.wait(min(LOOK_EVERY_S, extend_every_s)):
        try:
            if mine.exists():
                was_seen = True
            elif was_seen or IngestJob.objects.filter(pk=job.pk).exists():
                if not stop.is_set():
                    interrupt(run)
                break
            if time.monotonic() - extended_at >= extend_every_s:
                extended_at, now = time.monotonic(), timezone.now()
                mine.update(heartbeat_at=now, lease_until=now + timedelta(seconds=settings.RAGD_JOB_LEASE_S))
        except (DatabaseError, InterfaceError) as error:
            log.warning("the lease of job %s could not be extended: %s", job.pk, error)
            connection.close()
    connection.close()


def start_pulse() -> None:
    """Begin to write this process's row in worker_heartbeats, every ten seconds until it ends."""
    _ending.clear()
    threading.Thread(target=_pulse, daemon=True, name="ragd-pulse").start()


def end_pulse() -> None:
    """This process ends as it should: take its row away."""
    _ending.set()
    WorkerHeartbeat.objects.filter(name=worker_name()).delete()


def _pulse() -> None:
    started_at = timezone.now()
    while not _ending.is_set():
        try:
            beat(started_at)
        except (DatabaseError, InterfaceError) as error:
            log.warning("this worker's heartbeat could not be written: %s", error)
        finally:
            connection.close()
        _ending.wait(BEAT_EVERY_S)


def beat(started_at: datetime) -> None:
    """Write the row of this process."""
    WorkerHeartbeat.objects.update_or_create(
        name=worker_name(),
        defaults={
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "job": _current["job"],
            "jobs_done": _done["jobs"],
            "memory_mb": memory_mb(),
            "started_at": started_at,
            "beat_at": timezone.now(),
        },
    )


def memory_mb() -> int:
    """Resident memory of this process, MB; the peak where the present value cannot be read."""
    try:
        with open(STATM, encoding="ascii") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize() // 1_000_000
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // 1_000_000


def forget_workers(now: datetime) -> int:
    """Remove the rows of processes that ended more than an hour ago."""
    gone, _ = WorkerHeartbeat.objects.filter(beat_at__lt=now - FORGET_AFTER).delete()
    return gone
