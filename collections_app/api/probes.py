"""Recall probes over HTTP."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Status

from collections_app.api.access import ERRORS, find_collection
from collections_app.api.schemas import JobStarted, ProbePage
from collections_app.http.auth import BearerAuth, request_key
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from collections_app.models import StoredProbe
from collections_app.services.generations.recall_probes import submit_probe

router = Router(auth=BearerAuth(), tags=["collections"])


@router.post(
    "/collections/{collection}/recall-probes", operation_id="recall-probes-create", response={202: JobStarted, **ERRORS}
)
def start_probe(request: HttpRequest, collection: str) -> Any:
    """Compare the HNSW index with the exact scan in the background; 409 where there is no index."""
    job = submit_probe(find_collection(request, collection), actor=request_key(request))
    return Status(202, {"job_id": job.pk})


@router.get(
    "/collections/{collection}/recall-probes", operation_id="recall-probes-list", response={200: ProbePage, **ERRORS}
)
def list_probes(request: HttpRequest, collection: str, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Any:
    """The probes of a collection, newest first."""
    rows = StoredProbe.objects.filter(collection=find_collection(request, collection))
    return paginate(rows, ("-created_at", "-id"), limit=limit, cursor=cursor)
