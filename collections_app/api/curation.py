"""Documents changed over HTTP: one, or many by their ids or a filter."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja.params import functions as param

from collections_app.api import documents
from collections_app.api.access import ERRORS, find_collection
from collections_app.api.curation_schemas import (
    BulkAnswer,
    BulkRequest,
    DocumentChanges,
    DocumentEdited,
    FacetAnswer,
    FilterRequest,
)
from collections_app.api.revisions import router as first_router
from collections_app.api.schemas import DocumentDeleted, DocumentDetail, DocumentRequest, Ingested
from collections_app.http.auth import request_key
from collections_app.models import Collection
from collections_app.services.documents import bulk_changes as service
from collections_app.services.documents.edits import edit_document
from collections_app.services.documents.selection import DocumentFilter, choose_matching, choose_named, count_facets
from ragd.errors import InvalidInput

BULK = "/collections/{collection}/documents/bulk"
TAGS = param.Query([], description="tags that all must be there")


@documents.router.patch(documents.BY_ID, operation_id="documents-edit", response={200: DocumentEdited, **ERRORS})
def patch_document(request: HttpRequest, collection: str, doc_id: str, payload: DocumentChanges) -> Any:
    """Change title, tags, metadata, chunk policy or state; answers the document as it is then. 409 when archived."""
    found = find_collection(request, collection)
    changes = payload.dict(exclude_unset=True, exclude={"expected_revision", "chunk_policy"})
    changes = {name: value for name, value in changes.items() if value is not None}
    if payload.chunk_policy is not None:
        changes["chunk_policy"] = payload.chunk_policy.dict(exclude_none=True)
    document = edit_document(
        found, doc_id, changes, expected_revision=payload.expected_revision, actor=request_key(request)
    )
    return documents.brief(document)


@documents.router.patch(documents.CHUNKS, include_in_schema=False, response={200: DocumentEdited, **ERRORS})
def patch_nested(request: HttpRequest, collection: str, doc_id: str, payload: DocumentChanges) -> Any:
    return patch_document(request, collection, f"{doc_id}/chunks", payload)


@first_router.get(
    "/collections/{collection}/facets", operation_id="documents-facets", response={200: FacetAnswer, **ERRORS}
)
def list_facets(
    request: HttpRequest,
    collection: str,
    q: str = param.Query("", description="words that id, title or source contain"),
    tag: list[str] = TAGS,
    state: Literal["any", "present", "enabled", "disabled", "archived"] = "present",
    media_type: str = "",
) -> Any:
    """How many documents each value of a filter would leave, under the filters that are stated."""
    found = find_collection(request, collection)
    facets = count_facets(found, DocumentFilter(q, tuple(tag), state, media_type))
    return {name: [{"value": each.value, "count": each.count} for each in listed] for name, listed in facets.items()}


@first_router.post(BULK, operation_id="documents-bulk", response={200: BulkAnswer, **ERRORS})
def change_many(request: HttpRequest, collection: str, payload: BulkRequest) -> Any:
    """Make one change to many documents; one result per document. (A document whose own id is bulk: every other method
    of this address is its own.)
    """
    found = find_collection(request, collection)
    change = service.BulkChange(
        payload.action, tuple(payload.tags), payload.key, payload.value, payload.only_existing
    ).checked()
    names = _choose(found, payload)
    if payload.dry_run:
        results = [{"doc_id": name, "status": "meant"} for name in names]
        return {"counts": {"meant": len(names)}, "removed": {}, "results": results}
    outcome = service.change_documents(found, change, names, actor=request_key(request))
    return {"counts": outcome.counts, "removed": outcome.removed, "results": [_item(each) for each in outcome.results]}


def _choose(collection: Collection, payload: BulkRequest) -> list[str]:
    if (payload.doc_ids is None) == (payload.filter is None):
        raise InvalidInput("name the documents by doc_ids or by a filter, one of the two", field="doc_ids")
    if payload.filter is None:
        return choose_named(payload.doc_ids or [])
    return choose_matching(collection, _filter(payload.filter), expected=payload.expected)


def _filter(given: FilterRequest) -> DocumentFilter:
    return DocumentFilter(given.q, tuple(given.tags), given.state, given.media_type)


def _item(result: service.DocumentResult) -> dict[str, Any]:
    error = {"type": result.error_type, "message": result.error} if result.error else None
    return {"doc_id": result.doc_id, "status": result.status, "error": error}


@first_router.get(BULK, include_in_schema=False, response={200: DocumentDetail, **ERRORS})
def get_bulk(request: HttpRequest, collection: str) -> Any:
    return documents.get_document(request, collection, "bulk")


@first_router.put(BULK, include_in_schema=False, response={200: Ingested, **ERRORS})
def put_bulk(request: HttpRequest, collection: str, payload: DocumentRequest) -> Any:
    return documents.ingest_document(request, collection, "bulk", payload)


@first_router.patch(BULK, include_in_schema=False, response={200: DocumentEdited, **ERRORS})
def patch_bulk(request: HttpRequest, collection: str, payload: DocumentChanges) -> Any:
    return patch_document(request, collection, "bulk", payload)


@first_router.delete(BULK, include_in_schema=False, response={200: DocumentDeleted, **ERRORS})
def delete_bulk(request: HttpRequest, collection: str) -> Any:
    return documents.delete_document(request, collection, "bulk")
