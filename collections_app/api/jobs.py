"""Jobs over HTTP."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Router

from collections_app.api.access import ERRORS, find_collection
from collections_app.api.job_schemas import Changed, JobDetail, JobItem, JobPage, QueueItem
from collections_app.errors import ServiceError
from collections_app.http.auth import BearerAuth, request_key
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from collections_app.models import IngestJob
from collections_app.models.jobs import IngestJobQuerySet
from collections_app.services.jobs.cancellation import cancel_collection_jobs, cancel_job
from collections_app.services.jobs.queue import queue_state
from collections_app.services.jobs.retries import retry_collection_jobs, retry_job

router = Router(auth=BearerAuth(), tags=["jobs"])


@router.get("/jobs", operation_id="jobs-list", response={200: JobPage, **ERRORS})
def list_jobs(
    request: HttpRequest,
    collection: str | None = None,
    batch: UUID | None = None,
    state: Literal["queued", "running", "succeeded", "failed", "cancelled", "quarantined"] | None = None,
    doc_id: str | None = None,
    limit: int = DEFAULT_LIMIT,
    cursor: str | None = None,
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
        rows = rows.filter(doc_id=doc_id.replace("\x00", ""))
    return paginate(rows, ("-created_at", "-id"), limit=limit, cursor=cursor)


@router.get("/jobs/{job_id}", operation_id="jobs-get", response={200: JobDetail, **ERRORS})
def get_job(request: HttpRequest, job_id: UUID) -> Any:
    return _find_job(request, job_id)


@router.post("/jobs/{job_id}/cancel", operation_id="jobs-cancel", response={200: JobItem, **ERRORS})
def cancel(request: HttpRequest, job_id: UUID) -> Any:
    """End a job that waits or runs. 409 when it has ended already."""
    return cancel_job(_find_job(request, job_id), actor=request_key(request))


@router.post("/jobs/{job_id}/retry", operation_id="jobs-retry", response={200: JobItem, **ERRORS})
def retry(request: HttpRequest, job_id: UUID) -> Any:
    """Queue a failed, cancelled or quarantined job again. 409 for any other."""
    return retry_job(_find_job(request, job_id), actor=request_key(request))


@router.post(
    "/collections/{collection}/jobs/retry", operation_id="jobs-retry-failed", response={200: Changed, **ERRORS}
)
def retry_failed(request: HttpRequest, collection: str) -> Any:
    """Queue again what failed in a collection: one job per document, and nothing that was quarantined or cancelled."""
    return {"jobs": retry_collection_jobs(find_collection(request, collection), actor=request_key(request))}


@router.post("/collections/{collection}/jobs/cancel", operation_id="jobs-cancel-all", response={200: Changed, **ERRORS})
def cancel_all(request: HttpRequest, collection: str) -> Any:
    """End everything that waits or runs in a collection."""
    return {"jobs": cancel_collection_jobs(find_collection(request, collection), actor=request_key(request))}


@router.get("/queue", operation_id="queue", response={200: QueueItem, **ERRORS})
def queue(request: HttpRequest) -> Any:
    """How much waits, how fast it is done, and how much may wait before more is answered 429."""
    return queue_state()


def visible_jobs(request: HttpRequest) -> IngestJobQuerySet:
    """The jobs of live collections that the key may use."""
    rows = IngestJob.objects.listed().filter(collection__deleted_at__isnull=True)
    return rows.filter(request_key(request).visible.by_id("collection_id"))


def _find_job(request: HttpRequest, job_id: UUID) -> IngestJob:
    job = visible_jobs(request).filter(pk=job_id).first()
    if job is None:
        raise ServiceError(
            f"there is no job {job_id} that this key may see; GET /v1/jobs lists them", type="unknown_job", status=404
        )
    return job
