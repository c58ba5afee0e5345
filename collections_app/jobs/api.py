"""Jobs, their batches and the queue over HTTP. A batch is what was asked for in one go."""

from __future__ import annotations

import unicodedata
from datetime import datetime
from typing import Any, ClassVar, Literal
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import Field, Schema
from pydantic import ConfigDict

from collections_app.access.auth import BearerAuth, Router, find_collection, request_key
from collections_app.errors import UnknownError
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from collections_app.http.schemas import NEXT_CURSOR, Cursor, DocId, Limit, PageOf, Request, read_from
from collections_app.jobs.batches import BatchProgress, batch_progress
from collections_app.jobs.models import IngestJobQuerySet
from collections_app.jobs.queue import QueueState, jobs_ahead, queue_state
from collections_app.jobs.recovery import cancel_job, cancel_jobs, retry_job, retry_jobs
from collections_app.models import IngestBatch, IngestJob
from ragd.errors import InvalidInput

router = Router(auth=BearerAuth(), tags=["jobs"])


class StageItem(Schema):
    """One stage of a job. done of total count `unit`; rate is in units per second."""

    stage: Literal["fetch", "parse", "ocr", "chunk", "embed", "store", "probe"]
    state: Literal["waiting", "running", "succeeded", "failed", "cancelled", "interrupted"]
    done: int
    total: int = Field(description="0: not known")
    unit: Literal["bytes", "chars", "chunks", "pages", "files", ""]
    started_at: datetime | None
    took_ms: float | None
    rate: float | None
    remaining_s: float | None
    error: str


class JobItem(Schema):
    id: UUID
    collection: str | None
    batch_id: UUID | None
    kind: str
    doc_id: str
    title: str
    source: str
    state: Literal["queued", "running", "succeeded", "failed", "cancelled", "quarantined"]
    stage: Literal["queued", "fetch", "parse", "ocr", "chunk", "embed", "store", "probe", "done"]
    stages: list[StageItem] = Field(validation_alias="stage_rows")
    rate: float | None = Field(description="chunks per second of the embedding")
    remaining_s: float | None = Field(description="seconds until the present stage is done, at its rate")
    chunks_total: int
    chunks_done: int
    chars: int
    percent: int
    unchanged: bool
    attempts: int
    error_type: str
    error: str
    warnings: list[str]
    timings_ms: dict[str, float]
    cost_usd: float | None = Field(description="Of its model calls, US dollars; null: none has a price, or one has not")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @staticmethod
    def resolve_collection(job: IngestJob) -> str | None:
        return job.collection.name


class JobDetail(JobItem):
    ahead: int = Field(description="jobs that were sent before it and wait too; 0 when it does not wait")

    resolve_ahead: ClassVar = staticmethod(jobs_ahead)


class BatchItem(Schema):
    """What was asked for in one go. documents have jobs; done of them have ended, one way or another."""

    model_config = ConfigDict(alias_generator=read_from("batch", own=(*BatchProgress.__slots__, "errors", "percent")))

    id: UUID
    collection: str = Field(validation_alias="batch.collection.name")
    kind: str
    label: str
    status: Literal["waiting", "running", "interrupted", "completed", "completed_with_errors", "cancelled", "empty"]
    open: bool = Field(description="more may come")
    submitted: int = Field(description="documents that it named")
    skipped: int
    already_unchanged: int = Field(
        validation_alias="batch.unchanged", description="of them needed no job, because they were stored like that"
    )
    rejected: int
    deleted: int
    documents: int
    done: int
    percent: int
    queued: int
    running: int
    succeeded: int
    unchanged: int = Field(description="of those that succeeded")
    failed: int
    cancelled: int
    quarantined: int
    errors: int = Field(description="failed, quarantined and rejected")
    chunks: int
    documents_per_minute: float | None
    chunks_per_s: float | None
    remaining_s: float | None
    took_s: float | None
    created_by: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class JobChange(Request):
    state: Literal["cancelled", "queued"]


class Changed(Schema):
    jobs: int = Field(description="how many were changed")


@router.get("/jobs", operation_id="jobs-list", response=PageOf[JobItem])
def list_jobs(
    request: HttpRequest,
    collection: str | None = None,
    batch: UUID | None = None,
    state: Literal["queued", "running", "succeeded", "failed", "cancelled", "quarantined"] | None = None,
    doc_id: DocId | None = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """The jobs that the key may see, newest first."""
    rows = visible_jobs(request)
    if collection is not None:
        rows = rows.filter(collection=find_collection(request, collection))
    if batch is not None:
        rows = rows.filter(batch=batch)
    if state is not None:
        rows = rows.filter(state=state)
    if doc_id is not None:
        rows = rows.filter(doc_id=unicodedata.normalize("NFC", doc_id.replace("\x00", "")))
    return paginate(rows, ("-created_at", "-id"), limit=limit, cursor=cursor)


@router.get("/jobs/{job_id}", operation_id="jobs-get", response=JobDetail)
def get_job(request: HttpRequest, job_id: UUID) -> Any:
    return _find_job(request, job_id)


@router.patch("/jobs", operation_id="jobs-change", response=Changed)
def change_jobs(
    request: HttpRequest,
    payload: JobChange,
    job: UUID | None = None,
    batch: UUID | None = None,
    collection: str | None = None,
) -> Any:
    """End a job that waits or runs, or queue a failed, cancelled or quarantined one again; 409 for any other.

    Of a batch or a collection, cancelled ends what waits or runs, and takes no more into the batch; queued queues again
    what failed, one job per document, and nothing that was quarantined or cancelled.
    """
    if sum(each is not None for each in (job, batch, collection)) != 1:
        raise InvalidInput("state job, batch or collection, one of the three", field="job")
    key, ends = request_key(request), payload.state == "cancelled"
    if job is not None:
        (cancel_job if ends else retry_job)(_find_job(request, job), actor=key)
        return {"jobs": 1}
    whole = find_collection(request, collection or "") if batch is None else _find_batch(request, batch)
    return {"jobs": (cancel_jobs if ends else retry_jobs)(whole, actor=key)}


@router.get("/queue", operation_id="queue", response=QueueState)
def get_queue(request: HttpRequest) -> Any:
    """How much waits, how fast it is done, and how much may wait before more is answered 429."""
    return queue_state()


def visible_jobs(request: HttpRequest) -> IngestJobQuerySet:
    """The jobs of live collections that the key may use."""
    return IngestJob.objects.listed().filter(request_key(request).visible.by_id("collection_id"))


def _find_job(request: HttpRequest, job_id: UUID) -> IngestJob:
    job = visible_jobs(request).filter(pk=job_id).first()
    if job is None:
        raise UnknownError("job", f"there is no job {job_id} that this key may see; GET /v1/jobs lists them")
    return job


@router.get("/batches", operation_id="batches-list", response=PageOf[BatchItem])
def list_batches(
    request: HttpRequest,
    collection: str | None = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """The batches that the key may see, newest first. GET /v1/jobs?batch= lists the documents of one."""
    rows = _visible_batches(request)
    if collection is not None:
        rows = rows.filter(collection=find_collection(request, collection))
    page = paginate(rows, ("-created_at", "-id"), limit=limit, cursor=cursor)
    return {"items": batch_progress(page.items), "next_cursor": page.next_cursor}


@router.get("/batches/{batch_id}", operation_id="batches-get", response=BatchItem)
def get_batch(request: HttpRequest, batch_id: UUID) -> Any:
    return batch_progress([_find_batch(request, batch_id)])[0]


def _visible_batches(request: HttpRequest) -> QuerySet[IngestBatch]:
    rows = IngestBatch.objects.select_related("collection").filter(collection__deleted_at__isnull=True)
    return rows.filter(request_key(request).visible.by_id("collection_id"))


def _find_batch(request: HttpRequest, batch_id: UUID) -> IngestBatch:
    record = _visible_batches(request).filter(pk=batch_id).first()
    if record is None:
        raise UnknownError("batch", f"there is no batch {batch_id} that this key may see; GET /v1/batches lists them")
    return record
