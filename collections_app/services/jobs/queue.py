"""Background work whose whole state is its row. The broker carries the id and may lose or repeat it.

A job runs under its attempt number: every write of a run says which attempt it belongs to, and one that finds the job
cancelled, taken over or gone changes nothing and stops.

The queue has lanes, and a worker takes from them in turn: what came with many others waits in the bulk lane, so that a
single file, a retry or a probe is not behind ten thousand files that somebody sent before. What lost its worker has a
lane of its own, which is nearly always empty.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from django.db import connection, transaction

from collections_app.models import Collection, IngestJob
from collections_app.work.leases import cancel
from collections_app.work.sending import enqueue_each
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
    found = Collection.objects.live().filter(pk=job.collection_id).first()
    if found is None:
        raise UnknownCollection("the collection was deleted")
    return found
