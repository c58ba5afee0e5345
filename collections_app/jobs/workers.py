"""Signs of life: a worker process says that it is there, and what it works on.

What is known of the last backup, the last drill and the archive of the write-ahead log, for pages and metrics.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, connection
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from collections_app.jobs.attempts import running
from collections_app.jobs.leases import worker_name
from collections_app.models import Status

log = logging.getLogger(__name__)

BEAT_EVERY_S = 10.0
FORGET_AFTER = timedelta(hours=1)
STATM = "/proc/self/statm"

_ending = threading.Event()


def start_pulse() -> None:
    """Begin to write the status of this process, every ten seconds until it ends."""
    _ending.clear()
    threading.Thread(target=_pulse, daemon=True, name="ragd-pulse").start()


def end_pulse() -> None:
    """This process ends as it should: take its row away."""
    _ending.set()
    Status.objects.workers().filter(name=worker_name()).delete()


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
    """Write the status of this process."""
    values = {
        "host": socket.gethostname(), "pid": os.getpid(), **running, "memory_mb": memory_mb(),
        "started_at": started_at.isoformat(),
    }  # fmt: skip
    Status.objects.keep(Status.Kind.WORKER, worker_name(), values)


def memory_mb() -> int:
    """Resident memory of this process, MB; the peak where the present value cannot be read."""
    try:
        with open(STATM, encoding="ascii") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize() // 1_000_000
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // 1_000_000


def forget_workers(now: datetime) -> int:
    """Forget processes that ended more than an hour ago; returns how many."""
    return Status.objects.forget(Status.Kind.WORKER, now - FORGET_AFTER)


BACKUP, ARCHIVE, DRILL = "backup", "backup_archive", "backup_drill"
LATE_AFTER = timedelta(hours=26)  # a backup a day, with some time to take it


@dataclass(frozen=True, slots=True)
class BackupState:
    """The last of each; None where there was none. archive_until: up to when a restore can go.

    drill_passed_at: of the last drill that found the backup equal, which an earlier one than `drill` may have been.
    """

    backup: Status | None
    archive: Status | None
    drill: Status | None
    archive_until: datetime | None
    drill_passed_at: datetime | None

    @property
    def is_late(self) -> bool:
        """Whether the last backup is older than a day and two hours."""
        return self.backup is not None and self.backup.made_at < timezone.now() - LATE_AFTER

    def ages_s(self) -> dict[str, float]:
        """Seconds since what is known to be good, by "backup", "archive" and "drill"; without what never was."""
        now = timezone.now()
        times = {
            "backup": self.backup.made_at if self.backup else None,
            "archive": self.archive_until,
            "drill": self.drill_passed_at,
        }
        return {name: (now - at).total_seconds() for name, at in times.items() if at is not None}


def backup_state() -> BackupState:
    """One query."""
    found = {row.name: row for row in Status.objects.results().filter(name__in=(BACKUP, ARCHIVE, DRILL))}
    archive, drill = found.get(ARCHIVE), found.get(DRILL)
    return BackupState(
        found.get(BACKUP),
        archive,
        drill,
        parse_datetime(archive.values.get("until") or "") if archive else None,
        parse_datetime(drill.values["passed_at"]) if drill and drill.values.get("passed_at") else None,
    )


def record_backup(values: dict[str, Any]) -> None:
    Status.objects.keep(Status.Kind.RESULT, BACKUP, values)


def record_archive(values: dict[str, Any]) -> None:
    """values: with "until", ISO 8601."""
    Status.objects.keep(Status.Kind.RESULT, ARCHIVE, values)


def forget_archive() -> None:
    """Nothing is archived any more."""
    Status.objects.results().filter(name=ARCHIVE).delete()


def record_drill(values: dict[str, Any], *, passed: bool) -> None:
    """A failed one keeps in mind when one passed last."""
    before = Status.objects.results().filter(name=DRILL).first()
    passed_at = timezone.now().isoformat() if passed else before.values.get("passed_at", "") if before else ""
    Status.objects.keep(Status.Kind.RESULT, DRILL, values | {"passed": passed, "passed_at": passed_at})
