"""Batches over HTTP: what was asked for in one go, and how far it is."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import Router

from collections_app.api.access import ERRORS, find_collection
from collections_app.api.job_schemas import BatchItem, BatchPage, Changed
from collections_app.errors import ServiceError
from collections_app.http.auth import BearerAuth, request_key
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from collections_app.models import IngestBatch
from collections_app.services.jobs.batches import batch_progress
from collections_app.services.jobs.cancellation import cancel_batch
from collections_app.services.jobs.retries import retry_batch

router = Router(auth=BearerAuth(), tags=["jobs"])


@router.get("/batches", operation_id="batches-list", response={200: BatchPage, **ERRORS})
def list_batches(
    request: HttpRequest, collection: str | None = None, limit: int = DEFAULT_LIMIT, cursor: str | None = None
) -> Any:
    """The batches that the key may see, newest first. GET /v1/jobs?batch= lists the documents of one."""
    rows = _visible(request)
    if collection is not None:
        rows = rows.filter(collection=find_collection(request, collection))
    page = paginate(rows, ("-created_at", "-id"), limit=limit, cursor=cursor)
    return {"items": batch_progress(page.items), "next_cursor": page.next_cursor}


@router.get("/batches/{batch_id}", operation_id="batches-get", response={200: BatchItem, **ERRORS})
def get_batch(request: HttpRequest, batch_id: UUID) -> Any:
    return batch_progress([_find(request, batch_id)])[0]


@router.post("/batches/{batch_id}/cancel", operation_id="batches-cancel", response={200: Changed, **ERRORS})
def cancel(request: HttpRequest, batch_id: UUID) -> Any:
    """End every job of it that waits or runs, and take no more into it."""
    return {"jobs": cancel_batch(_find(request, batch_id), actor=request_key(request))}


@router.post("/batches/{batch_id}/retry", operation_id="batches-retry", response={200: Changed, **ERRORS})
def retry(request: HttpRequest, batch_id: UUID) -> Any:
    """Queue again what failed of it; nothing that was quarantined or cancelled."""
    return {"jobs": retry_batch(_find(request, batch_id), actor=request_key(request))}


def _visible(request: HttpRequest) -> QuerySet[IngestBatch]:
    rows = IngestBatch.objects.select_related("collection").filter(collection__deleted_at__isnull=True)
    return rows.filter(request_key(request).visible.by_id("collection_id"))


def _find(request: HttpRequest, batch_id: UUID) -> IngestBatch:
    record = _visible(request).filter(pk=batch_id).first()
    if record is None:
        raise ServiceError(
            f"there is no batch {batch_id} that this key may see; GET /v1/batches lists them",
            type="unknown_batch",
            status=404,
        )
    return record
