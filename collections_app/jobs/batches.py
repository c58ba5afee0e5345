"""How far the work is that was asked for in one go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from django.db import connection
from django.utils import timezone

from collections_app.jobs.models import IngestJobQuerySet
from collections_app.jobs.recovery import lasting_errors
from collections_app.models import Collection, IngestBatch, IngestJob, Status

BatchStatus = Literal["waiting", "running", "interrupted", "completed", "completed_with_errors", "cancelled", "empty"]

RATE_WINDOW = timedelta(minutes=1)
ALIVE_WITHIN = timedelta(minutes=1)

# Files are all jobs but those that unpacked others. Rates are of the last minute while there is work.
PROGRESS = """
SELECT batch_id,
       count(*) FILTER (WHERE kind <> 'archive' OR state <> 'succeeded') AS documents,
       count(*) FILTER (WHERE state = 'queued') AS queued,
       count(*) FILTER (WHERE state = 'running') AS running,
       count(*) FILTER (WHERE state = 'succeeded' AND kind <> 'archive') AS succeeded,
       count(*) FILTER (WHERE state = 'failed') AS failed,
       count(*) FILTER (WHERE state = 'failed' AND error_type <> ALL(%(lasting)s)) AS retryable,
       count(*) FILTER (WHERE state = 'cancelled') AS cancelled,
       count(*) FILTER (WHERE state = 'quarantined') AS quarantined,
       count(*) FILTER (WHERE state = 'succeeded' AND unchanged) AS unchanged,
       count(*) FILTER (WHERE state = 'queued' AND error_type = 'waiting_for_endpoint') AS endpoint_waits,
       count(*) FILTER (WHERE state = 'running' AND lease_until >= %(now)s) AS held,
       coalesce(sum(chunks_done), 0)::bigint AS chunks,
       min(started_at) AS started_at, max(finished_at) AS finished_at,
       count(*) FILTER (WHERE finished_at >= %(lately)s) AS done_lately,
       coalesce(sum(chunks_done) FILTER (WHERE finished_at >= %(lately)s), 0)::bigint AS chunks_lately
FROM ingest_jobs WHERE batch_id = ANY(%(ids)s) GROUP BY batch_id
"""


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One batch as it is now.

    documents: with jobs, archives only until they are unpacked; done: of them ended, one way or another. retryable: of
    those that failed, what another attempt may help. documents_per_minute, chunks_per_s: of the last
    minute while there is work, of the whole afterwards; None where nothing was measured. remaining_s: at that rate.
    interrupted: there is work and no worker. took_s: from the first start to the last end, or until now.
    """

    batch: IngestBatch
    status: BatchStatus
    documents: int
    done: int
    queued: int
    running: int
    succeeded: int
    failed: int
    retryable: int
    cancelled: int
    quarantined: int
    unchanged: int
    endpoint_waits: int
    chunks: int
    documents_per_minute: float | None
    chunks_per_s: float | None
    remaining_s: float | None
    started_at: datetime | None
    finished_at: datetime | None
    took_s: float | None

    @property
    def is_active(self) -> bool:
        return bool(self.queued or self.running) or self.batch.open

    @property
    def errors(self) -> int:
        """Documents that failed, were quarantined, or were refused before they had a job."""
        return self.failed + self.quarantined + self.batch.rejected

    @property
    def pending(self) -> int:
        return self.queued + self.running

    @property
    def ready(self) -> int:
        """Files whose text can be asked: they succeeded, or were stored like that before."""
        return self.succeeded + self.batch.unchanged

    @property
    def left_out(self) -> int:
        """Files that were cancelled or skipped."""
        return self.cancelled + self.batch.skipped

    @property
    def passed_over(self) -> int:
        """Cancelled, or needed no job because they were stored like that or were to be skipped."""
        return self.cancelled + self.batch.skipped + self.batch.unchanged

    @property
    def total(self) -> int:
        """All files: those that succeeded, the errors, and what is pending or passed over."""
        return self.succeeded + self.errors + self.pending + self.passed_over

    @property
    def percent(self) -> int:
        return 100 * self.done // self.documents if self.documents else 100


def batch_progress(batches: Sequence[IngestBatch]) -> list[BatchProgress]:
    """The progress of each, in order: one query for all of them, and one for the workers where something waits."""
    if not batches:
        return []
    now = timezone.now()
    params: dict[str, Any] = {"ids": [batch.pk for batch in batches], "now": now, "lately": now - RATE_WINDOW}
    params["lasting"] = lasting_errors()
    with connection.cursor() as cursor:
        cursor.execute(PROGRESS, params)
        names = [column.name for column in cursor.description or ()]
        rows = {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}
    waits = any(row["queued"] or row["running"] for row in rows.values())
    has_worker = not waits or Status.objects.alive(ALIVE_WITHIN).exists()
    return [_progress(batch, rows.get(batch.pk), now, has_worker=has_worker) for batch in batches]


def find_batches(collection: Collection) -> Any:
    """Newest first."""
    return IngestBatch.objects.filter(collection=collection).order_by("-created_at", "-id")


def batch_jobs(batch: IngestBatch) -> IngestJobQuerySet:
    """What failed first, then what runs and waits, then the rest; within these by doc_id."""
    return IngestJob.objects.filter(batch=batch).listed().troubled_first()


def _progress(batch: IngestBatch, row: dict[str, Any] | None, now: datetime, *, has_worker: bool) -> BatchProgress:
    names = (
        "documents", "queued", "running", "succeeded", "failed", "retryable", "cancelled", "quarantined", "unchanged",
        "endpoint_waits", "chunks",
    )  # fmt: skip
    counts = {name: row[name] if row else 0 for name in names}
    active = counts["queued"] + counts["running"]
    ended = sum(counts[name] for name in ("succeeded", "failed", "cancelled", "quarantined"))
    done = min(ended, counts["documents"])
    started_at = row["started_at"] if row else None
    finished_at = row["finished_at"] if row and not active else None
    took_s = max(((finished_at or now) - started_at).total_seconds(), 0.001) if started_at else None
    per_s, chunks_per_s = _rates(row, active, done, took_s)
    return BatchProgress(
        batch=batch,
        status=_status(batch, row, active, has_worker=has_worker),
        done=done,
        documents_per_minute=None if per_s is None else round(per_s * 60, 1),
        chunks_per_s=None if chunks_per_s is None else round(chunks_per_s, 2),
        remaining_s=round(active / per_s, 1) if active and per_s else None,
        started_at=started_at,
        finished_at=finished_at,
        took_s=None if took_s is None else round(took_s, 1),
        **counts,
    )


def _rates(
    row: dict[str, Any] | None, active: int, done: int, took_s: float | None
) -> tuple[float | None, float | None]:
    """(documents per second, chunks per second)."""
    if row is None or not took_s or not done:
        return None, None
    if not active:
        return done / took_s, row["chunks"] / took_s
    seconds = min(took_s, RATE_WINDOW.total_seconds())
    return (row["done_lately"] / seconds or None), (row["chunks_lately"] / seconds or None)


def _status(batch: IngestBatch, row: dict[str, Any] | None, active: int, *, has_worker: bool) -> BatchStatus:
    if row is None:
        if batch.open:
            return "waiting"
        return (
            "completed_with_errors" if batch.rejected else "completed" if batch.submitted or batch.deleted else "empty"
        )
    if active:
        if not has_worker and not row["held"]:
            return "interrupted"
        return "running" if row["started_at"] else "waiting"
    if batch.open:
        return "running"
    if row["failed"] or row["quarantined"] or batch.rejected:
        return "completed_with_errors"
    return "cancelled" if row["cancelled"] else "completed"
