"""The shapes of jobs, batches and the queue."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from ninja import Field, Schema
from pydantic import ConfigDict

from collections_app.api.schemas import read_from
from collections_app.models import IngestJob
from collections_app.services.jobs.batches import BatchProgress
from collections_app.services.jobs.queue import jobs_ahead


class StageItem(Schema):
    """One stage of a job. done of total count `unit`; rate is in units per second."""

    stage: Literal["fetch", "parse", "chunk", "embed", "store", "probe"]
    state: Literal["waiting", "running", "succeeded", "failed", "cancelled", "interrupted"]
    done: int
    total: int = Field(description="0: not known")
    unit: Literal["bytes", "chars", "chunks", "files", ""]
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
    stage: Literal["queued", "fetch", "parse", "chunk", "embed", "store", "probe", "done"]
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

    @staticmethod
    def resolve_ahead(job: IngestJob) -> int:
        return jobs_ahead(job)


class JobPage(Schema):
    items: list[JobItem]
    next_cursor: str | None


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


class BatchPage(Schema):
    items: list[BatchItem]
    next_cursor: str | None


class Changed(Schema):
    jobs: int = Field(description="how many were changed")


class QueueItem(Schema):
    """The queue of the whole server."""

    waiting: int
    running: int
    waiting_bytes: int = Field(description="of the files that wait to be read")
    oldest_s: float | None = Field(description="how long the oldest waits")
    per_minute: float | None = Field(description="jobs that ended lately")
    remaining_s: float | None
    max_jobs: int = Field(description="queue limit in jobs; 0: unlimited")
    max_bytes: int = Field(description="0: any amount")
