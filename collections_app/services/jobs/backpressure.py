"""How much work waits, how fast it is done, and when no more is taken."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection
from django.utils import timezone

from collections_app.domain.units import MEGABYTE
from collections_app.errors import ServiceError

RATE_WINDOW = timedelta(minutes=5)
WAIT_MIN_S = 5.0
WAIT_MAX_S = 3600.0
WAIT_UNKNOWN_S = 60.0  # nothing was finished lately

DEPTH = """
SELECT count(*) FILTER (WHERE j.state = 'queued'), count(*) FILTER (WHERE j.state = 'running'),
       min(j.created_at) FILTER (WHERE j.state = 'queued'),
       coalesce(sum(u.size_bytes) FILTER (WHERE j.state = 'queued'), 0)::bigint
FROM ingest_jobs j LEFT JOIN uploads u ON u.id = j.upload_id
WHERE j.state IN ('queued', 'running')
"""

# Of a burst that began within the window only its own time counts.
DONE_LATELY = """
SELECT count(*), extract(epoch FROM %(now)s - greatest(min(started_at), %(since)s))
FROM ingest_jobs WHERE finished_at >= %(since)s AND started_at IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class QueueState:
    """waiting, running: jobs. waiting_bytes: of their files. per_minute: jobs that ended lately, None without any.

    remaining_s: seconds until what waits is done at that rate; None when that is not known.
    """

    waiting: int
    running: int
    waiting_bytes: int
    oldest_s: float | None
    per_minute: float | None
    remaining_s: float | None
    max_jobs: int
    max_bytes: int


def queue_state() -> QueueState:
    """The whole queue as it is now, in two queries."""
    now = timezone.now()
    waiting, running, oldest, waiting_bytes = _depth()
    rate = _jobs_per_s(now)
    return QueueState(
        waiting=waiting,
        running=running,
        waiting_bytes=waiting_bytes,
        oldest_s=(now - oldest).total_seconds() if oldest else None,
        per_minute=round(rate * 60, 1) if rate else None,
        remaining_s=round((waiting + running) / rate, 1) if rate else None,
        max_jobs=settings.RAGD_QUEUE_MAX_JOBS,
        max_bytes=settings.RAGD_QUEUE_MAX_MB * MEGABYTE,
    )


def check_queue(extra: int, extra_bytes: int = 0) -> None:
    """Refuse work that would make the queue too deep.

    extra, extra_bytes: jobs and bytes of files that are to be added. Raises ServiceError 429 "queue_full" whose
    retry_after_s is about how long the queue takes to make room. Two that ask at once may both be let in.
    """
    max_jobs, max_bytes = settings.RAGD_QUEUE_MAX_JOBS, settings.RAGD_QUEUE_MAX_MB * MEGABYTE
    if not extra or not (max_jobs or max_bytes):
        return
    waiting, _, _, waiting_bytes = _depth()
    over = waiting + extra - max_jobs if max_jobs else 0
    over_bytes = waiting_bytes + extra_bytes - max_bytes if max_bytes else 0
    if over <= 0 and over_bytes <= 0:
        return
    if over > 0:
        limit = f"{waiting:,} jobs wait already and {extra:,} more would pass {max_jobs:,} (RAGD_QUEUE_MAX_JOBS)"
    else:
        limit = (
            f"files of {waiting_bytes / MEGABYTE:,.0f} MB wait already and {extra_bytes / MEGABYTE:,.1f} MB more would"
            f" pass {settings.RAGD_QUEUE_MAX_MB:,} MB (RAGD_QUEUE_MAX_MB)"
        )
        over = max(1, round(waiting * over_bytes / max(waiting_bytes, 1)))
    wait_s = _wait(over)
    raise ServiceError(
        f"the queue is full: {limit}. Nothing was taken; send it again in about {_in_words(wait_s)}, or send less",
        type="queue_full",
        status=429,
        retry_after_s=wait_s,
    )


def _depth() -> tuple[int, int, datetime | None, int]:
    """(waiting, running, since when the oldest waits, bytes of the waiting files)."""
    with connection.cursor() as cursor:
        cursor.execute(DEPTH)
        waiting, running, oldest, waiting_bytes = cursor.fetchone()
    return waiting, running, oldest, waiting_bytes


def _jobs_per_s(now: datetime) -> float | None:
    with connection.cursor() as cursor:
        cursor.execute(DONE_LATELY, {"now": now, "since": now - RATE_WINDOW})
        done, seconds = cursor.fetchone()
    return done / max(float(seconds), 1.0) if done else None


def _wait(jobs: int) -> float:
    """Seconds until so many jobs are done, at the present rate."""
    rate = _jobs_per_s(timezone.now())
    return WAIT_UNKNOWN_S if rate is None else min(max(jobs / rate, WAIT_MIN_S), WAIT_MAX_S)


def _in_words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
