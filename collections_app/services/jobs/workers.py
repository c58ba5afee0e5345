"""Signs of life: a worker process says that it is there, and what it works on."""

from __future__ import annotations

import logging
import os
import resource
import socket
import threading
from datetime import datetime, timedelta

from django.db import DatabaseError, InterfaceError, connection
from django.utils import timezone

from collections_app.models import WorkerHeartbeat
from collections_app.services.jobs.attempts import running
from collections_app.work.leases import worker_name

log = logging.getLogger(__name__)

BEAT_EVERY_S = 10.0
FORGET_AFTER = timedelta(hours=1)
STATM = "/proc/self/statm"

_ending = threading.Event()


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
            **running,
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
