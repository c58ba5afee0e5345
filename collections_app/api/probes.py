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
from collections_app.services.generations.recall_probes import recall_warning, submit_probe

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
    page = paginate(rows, ("-created_at", "-id"), limit=limit, cursor=cursor)
    return {"items": [item(probe) for probe in page.items], "next_cursor": page.next_cursor}


def item(probe: StoredProbe) -> dict[str, Any]:
    return {
        "id": probe.pk,
        "generation": probe.generation,
        "k": probe.k,
        "ef_search": probe.ef_search,
        "chunk_count": probe.chunk_count,
        "queries": probe.queries,
        "plain": {
            "recall": probe.recall,
            "lowest": probe.recall_lowest,
            "selectivity": 1.0,
            "exact_ms": probe.exact_ms,
            "index_ms": probe.index_ms,
        },
        "filtered": {
            "recall": probe.filtered_recall,
            "lowest": probe.filtered_lowest,
            "selectivity": probe.selectivity,
            "exact_ms": probe.filtered_exact_ms,
            "index_ms": probe.filtered_index_ms,
        },
        "warning": recall_warning(probe),
        "created_by": probe.created_by,
        "created_at": probe.created_at,
    }
