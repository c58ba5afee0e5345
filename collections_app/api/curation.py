"""Many documents at once over HTTP: chosen by their ids or a filter, counted, changed."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Router
from ninja.params import functions as param

from collections_app.api.access import ERRORS, find_collection
from collections_app.api.curation_schemas import (
    BulkAnswer,
    BulkRequest,
    FacetAnswer,
    FilterRequest,
)
from collections_app.http.auth import BearerAuth, request_key
from collections_app.models import Collection
from collections_app.services.documents import bulk_changes as service
from collections_app.services.documents.selection import DocumentFilter, choose_matching, choose_named, count_facets
from ragd.errors import InvalidInput

router = Router(auth=BearerAuth(), tags=["documents"])

TAGS = param.Query([], description="tags that all must be there")


@router.get("/collections/{collection}/facets", operation_id="documents-facets", response={200: FacetAnswer, **ERRORS})
def list_facets(
    request: HttpRequest,
    collection: str,
    q: str = param.Query("", description="words that id, title or source contain"),
    tag: list[str] = TAGS,
    state: Literal["any", "present", "enabled", "disabled", "archived"] = "present",
    media_type: str = "",
) -> Any:
    """How many documents each value of a filter would leave, under the filters that are stated."""
    target = find_collection(request, collection)
    return count_facets(target, DocumentFilter(q, tuple(tag), state, media_type))


@router.post(
    "/collections/{collection}/documents-bulk", operation_id="documents-bulk", response={200: BulkAnswer, **ERRORS}
)
def change_many(request: HttpRequest, collection: str, payload: BulkRequest) -> Any:
    """Make one change to many documents; one result per document."""
    target = find_collection(request, collection)
    change = service.BulkChange(
        payload.action, tuple(payload.tags), payload.key, payload.value, payload.only_existing
    ).checked()
    names = _choose(target, payload)
    if payload.dry_run:
        results = [service.DocumentResult(name, "meant") for name in names]
        return {"counts": {"meant": len(names)}, "removed": {}, "results": results}
    return service.change_documents(target, change, names, actor=request_key(request))


def _choose(collection: Collection, payload: BulkRequest) -> list[str]:
    if (payload.doc_ids is None) == (payload.filter is None):
        raise InvalidInput("name the documents by doc_ids or by a filter, one of the two", field="doc_ids")
    if payload.filter is None:
        return choose_named(payload.doc_ids or [])
    return choose_matching(collection, _filter(payload.filter), expected=payload.expected)


def _filter(filter_request: FilterRequest) -> DocumentFilter:
    return DocumentFilter(filter_request.q, tuple(filter_request.tags), filter_request.state, filter_request.media_type)
