"""Jobs over HTTP."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import Router

from collections_app.api.access import ERRORS, find_collection
from collections_app.api.schemas import JobItem, JobPage
from collections_app.auth import BearerAuth, request_key
from collections_app.errors import ServiceError
from collections_app.models import IngestJob
from collections_app.paging import DEFAULT_LIMIT, paginate

router = Router(auth=BearerAuth(), tags=["jobs"])

COPIED = tuple(name for name in JobItem.model_fields if name not in ("id", "collection"))


@router.get("/jobs", operation_id="jobs-list", response={200: JobPage, **ERRORS})
def list_jobs(
    request: HttpRequest,
    collection: str | None = None,
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"] | None = None,
    doc_id: str | None = None,
    limit: int = DEFAULT_LIMIT,
    cursor: str | None = None,
) -> Any:
    """The jobs that the key may see, newest first."""
    rows = visible_jobs(request)
    if collection is not None:
        rows = rows.filter(collection=find_collection(request, collection))
    if state is not None:
        rows = rows.filter(state=state)
    if doc_id is not None:
        rows = rows.filter(doc_id=doc_id.replace("\x00", ""))
    page = paginate(rows, ("-created_at", "-id"), limit=limit, cursor=cursor)
    return {"items": [item(job) for job in page.items], "next_cursor": page.next_cursor}


@router.get("/jobs/{job_id}", operation_id="jobs-get", response={200: JobItem, **ERRORS})
def get_job(request: HttpRequest, job_id: UUID) -> Any:
    job = visible_jobs(request).filter(pk=job_id).first()
    if job is None:
        raise ServiceError(
            f"there is no job {job_id} that this key may see; GET /v1/jobs lists them", type="unknown_job", status=404
        )
    return item(job)


def visible_jobs(request: HttpRequest) -> QuerySet[IngestJob]:
    """The jobs of live collections that the key may use."""
    rows = IngestJob.objects.listed().filter(collection__deleted_at__isnull=True)
    names = request_key(request).collections
    return rows.filter(collection__name__in=names) if names else rows


def item(job: IngestJob) -> dict[str, Any]:
    return {"id": job.pk, "collection": job.collection.name, **{name: getattr(job, name) for name in COPIED}}
