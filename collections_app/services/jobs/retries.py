"""Putting jobs into the queue again: one, or all that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef
from django.utils import timezone

from collections_app.access_context import require
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models import Collection, Generation, IngestBatch, IngestJob
from collections_app.models.jobs import LASTING_ERRORS, SCANNED, IngestJobQuerySet
from collections_app.parsing.scans.engines import find_engine
from collections_app.services.governance import audit
from collections_app.services.jobs.queue import QUICK_LANE, check_queue, send_jobs, supersede_jobs
from ragd import telemetry

State, Stage, Kind = IngestJob.State, IngestJob.Stage, IngestJob.Kind

RETRIED_STATES = (State.FAILED, State.CANCELLED, State.QUARANTINED)
RETRIED_AT_ONCE = 1000
READ_AGAIN = (Kind.FILE, Kind.FETCH, Kind.REINDEX)


def retry_job(job: IngestJob, *, actor: audit.Actor = None) -> IngestJob:
    """Queue a failed, cancelled or quarantined job again, with all its attempts.

    Else, or when its file is gone, 409; 429 when the queue is full.
    """
    require(Permission.WRITE, job.collection_id)
    check_queue(1)
    with transaction.atomic():
        current = IngestJob.objects.select_for_update().filter(pk=job.pk).first()
        if current is None or current.state not in RETRIED_STATES:
            state = current.state if current else "deleted"
            raise ServiceError(
                f"the job is {state}; only a failed, cancelled or quarantined one can be retried",
                type="conflict",
                status=409,
            )
        if current.kind in (Kind.FILE, Kind.ARCHIVE) and current.upload_id is None:
            raise ServiceError("the file of this job is gone; upload it again", type="conflict", status=409)
        if current.doc_id and current.kind in READ_AGAIN:
            supersede_jobs(current.collection, [current.doc_id], "superseded by the retry of another job")
        if current.generation is not None:
            reopen_generation(current.generation)
        queue_again([current])
        audit.record(actor, [current], audit.CHANGE, "retried")
    current.refresh_from_db()
    return current


def retry_batch(batch: IngestBatch, *, actor: audit.Actor = None) -> int:
    """Queue again what failed of a batch, and nothing else; returns how many. ServiceError 429 when that is too many.

    What failed for good (`can_succeed`), was quarantined or cancelled, or whose document is under way by another job,
    stays as it is.
    """
    require(Permission.WRITE, batch.collection_id)
    retried = _retry_failed(IngestJob.objects.filter(batch=batch))
    if retried:
        audit.record(actor, [batch], audit.CHANGE, f"retried {retried} failed jobs")
    return retried


def retry_collection_jobs(collection: Collection, *, actor: audit.Actor = None) -> int:
    """The same for all documents of a collection."""
    require(Permission.WRITE, collection.pk)
    retried = _retry_failed(IngestJob.objects.filter(collection=collection))
    if retried:
        audit.record(actor, [collection], audit.CHANGE, f"retried {retried} failed jobs")
    return retried


def _retry_failed(jobs: IngestJobQuerySet) -> int:
    """Newest first, one per document: an older failure of a document that came again says nothing any more."""
    failed = can_succeed(jobs).filter(kind__in=(*READ_AGAIN, Kind.ARCHIVE))
    check_queue(failed.count())
    seen: set[tuple[int, str]] = set()
    retried = 0
    before = timezone.now()
    while True:
        with transaction.atomic():
            rows = list(_told_newer(failed.filter(created_at__lt=before)).newest()[:RETRIED_AT_ONCE])
            chosen = _worth_retrying(rows, seen)
            queue_again(chosen)
            retried += len(chosen)
        if len(rows) < RETRIED_AT_ONCE:
            return retried
        before = rows[-1].created_at


def can_succeed(jobs: IngestJobQuerySet) -> IngestJobQuerySet:
    """Those that failed and may end differently in another attempt."""
    return jobs.failed().exclude(error_type__in=lasting_errors())


def lasting_errors() -> list[str]:
    """Types of errors that another attempt here would meet again."""
    return [*LASTING_ERRORS, *([] if find_engine(settings.RAGD_OCR) else [SCANNED])]


def _told_newer(jobs: IngestJobQuerySet) -> Any:
    """The rows, held, each with has_newer: whether another job brought its document since, or is about to."""
    newer = IngestJob.objects.filter(
        collection_id=OuterRef("collection_id"),
        doc_id=OuterRef("doc_id"),
        created_at__gt=OuterRef("created_at"),
        kind__in=READ_AGAIN,
    )
    return jobs.annotate(has_newer=Exists(newer.exclude(state__in=RETRIED_STATES))).select_for_update(of=("self",))


def _worth_retrying(rows: Sequence[Any], seen: set[tuple[int, str]]) -> list[IngestJob]:
    """Of what `_told_newer` gave those whose file is there and whose document has no newer job."""
    chosen = []
    for job in rows:
        key = (job.collection_id, job.doc_id)
        is_gone = job.kind in (Kind.FILE, Kind.ARCHIVE) and job.upload_id is None
        if key in seen or is_gone:
            continue
        seen.add(key)
        if job.kind == Kind.ARCHIVE or not job.has_newer:
            chosen.append(job)
    return chosen


def queue_again(jobs: Sequence[IngestJob]) -> None:
    """With all attempts that a job may have; those before still count among its attempts. What was fetched is fetched
    again. The caller holds the rows."""
    fetched = [job.pk for job in jobs if job.kind == Kind.FETCH]
    IngestJob.objects.filter(pk__in=fetched, kind=Kind.FETCH).update(upload=None)
    ids = [job.pk for job in jobs]
    IngestJob.objects.filter(pk__in=ids).update(
        state=State.QUEUED,
        stage=Stage.QUEUED,
        attempts_forgiven=F("attempts"),
        error="",
        error_type="",
        stages=[],
        worker="",
        lane=QUICK_LANE,
        sent_at=timezone.now(),
        finished_at=None,
        started_at=None,
        traceparent=telemetry.current_traceparent(),
    )
    send_jobs(ids)


def reopen_generation(generation: Generation) -> None:
    """Let the retried job of a generation go on where it stopped. ServiceError 409 when nothing is left of it."""
    if generation.state in (Generation.State.READY, Generation.State.RETIRED):
        return
    others = Generation.objects.filter(collection_id=generation.collection_id).next_up().exclude(pk=generation.pk)
    if generation.state != Generation.State.FAILED or others.exists():
        why = "another one is being built" if others.exists() else f"it is {generation.state}"
        raise ServiceError(
            f"generation {generation.number} cannot go on: {why}; start a new one", type="conflict", status=409
        )
    Generation.objects.filter(pk=generation.pk).update(state=Generation.State.BUILDING, error="")
