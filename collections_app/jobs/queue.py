"""Background work whose whole state is its row. The broker carries the id and may lose or repeat it.

A job runs under its attempt number: every write of a run says which attempt it belongs to, and one that finds the job
cancelled, taken over or gone changes nothing and stops.

The queue has lanes, and a worker takes from them in turn: what came with many others waits in the bulk lane, so that a
single file, a retry or a probe is not behind ten thousand files that somebody sent before. What lost its worker has a
lane of its own, which is nearly always empty. When too much waits, no more is taken.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from collections_app.access.context import system_access
from collections_app.domain.formats import MEGABYTE
from collections_app.domain.rows import reader_of
from collections_app.errors import ServiceError
from collections_app.jobs.leases import cancel, enqueue_each
from collections_app.models import Collection, IngestJob
from ragd import telemetry
from ragd.errors import UnknownCollection

State, Kind = IngestJob.State, IngestJob.Kind

RUN_JOB = "collections.run_ingest_job"  # the task of one job, by its id
QUICK_LANE, BULK_LANE, FIRST_LANE = 0, 1, 2
BULK_QUEUE, FIRST_QUEUE = "ragd_bulk", "ragd_first"
QUEUES = {QUICK_LANE: None, BULK_LANE: BULK_QUEUE, FIRST_LANE: FIRST_QUEUE}
BULK_FROM = 20  # jobs of one batch, or sent at once, that make it one for the bulk lane

# Of each batch only as many rows are counted as decide. Returns those that are not in the quick lane.
CHOOSE_LANES = """
WITH moved AS (
    UPDATE ingest_jobs j SET lane = 1
    WHERE j.id = ANY(%(ids)s) AND j.lane = 0 AND (%(many)s OR j.batch_id IS NOT NULL AND (
        SELECT count(*) FROM (SELECT 1 FROM ingest_jobs o WHERE o.batch_id = j.batch_id LIMIT %(limit)s) AS first
    ) >= %(limit)s)
    RETURNING j.id
)
SELECT id::text, 1 FROM moved UNION SELECT id::text, lane FROM ingest_jobs WHERE id = ANY(%(ids)s) AND lane > 0
"""

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


def send_jobs(job_ids: Iterable[uuid.UUID], *, delay_s: float = 0, had_turn: bool = False) -> None:
    """Hand the jobs to the broker once the transaction has committed. A broker that is down only delays them.

    Their rows must be there. Jobs that are many, by themselves or with their batch, go to the bulk lane; those that
    had their turn and lost it through no fault of their own (had_turn) go to the first one, not behind all others.
    """
    ids = [str(job_id) for job_id in job_ids]
    if not ids:
        return
    if had_turn:
        IngestJob.objects.filter(pk__in=ids).update(lane=FIRST_LANE)
        enqueue_each(RUN_JOB, [(job_id,) for job_id in ids], queue=FIRST_QUEUE, delay_s=delay_s)
        return
    params: dict[str, Any] = {
        "ids": [uuid.UUID(job_id) for job_id in ids],
        "many": len(ids) > BULK_FROM,
        "limit": BULK_FROM + 1,
    }
    with connection.cursor() as cursor:
        cursor.execute(CHOOSE_LANES, params)
        lanes = dict(cursor.fetchall())
    for lane, queue in QUEUES.items():
        members = [(job_id,) for job_id in ids if lanes.get(job_id, QUICK_LANE) == lane]
        if members:
            enqueue_each(RUN_JOB, members, queue=queue, delay_s=delay_s)


def supersede_jobs(collection: Collection, doc_ids: Iterable[str], reason: str) -> int:
    """Cancel what is still under way for these documents, because something newer was asked for."""
    under_way = IngestJob.objects.active().filter(
        collection=collection, doc_id__in=list(doc_ids), kind__in=(Kind.FILE, Kind.FETCH, Kind.REINDEX)
    )
    return cancel(under_way, reason)


def submit_index_build(collection: Collection) -> IngestJob | None:
    """Queue the build of the vector index, unless one is under way."""
    job = IngestJob(
        collection=collection,
        kind=Kind.BUILD_INDEX,
        traceparent=telemetry.current_traceparent(),
        created_by="the system",
    )
    with transaction.atomic():
        IngestJob.objects.bulk_create([job], ignore_conflicts=True)
        if not IngestJob.objects.filter(pk=job.pk).exists():
            return None
        send_jobs([job.pk])
    return job


def jobs_ahead(job: IngestJob) -> int:
    """How many jobs of its lane were sent before a job that waits; 0 for any other."""
    if job.state != State.QUEUED:
        return 0
    return IngestJob.objects.filter(state=State.QUEUED, lane=job.lane, sent_at__lt=job.sent_at).count()


def require_collection(job: IngestJob) -> Collection:
    """The job's live collection. Raises UnknownCollection when it was deleted."""
    record = reader_of(Collection).find("r.id = %(id)s AND r.deleted_at IS NULL", {"id": job.collection_id})
    if record is None:
        raise UnknownCollection("the collection was deleted")
    return record


@dataclass(frozen=True, slots=True)
class QueueState:
    """waiting, running: jobs of the whole server. waiting_bytes: of their files. oldest_s: how long the oldest waits.

    per_minute: jobs that ended lately, None without any. remaining_s: seconds until what waits is done at that rate;
    None when that is not known. max_jobs, max_bytes: the limits of the queue, 0 for none.
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
    with system_access():  # of the whole server
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
