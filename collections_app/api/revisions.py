"""Earlier revisions of documents over HTTP. Each address is there twice, because a doc_id may end as these do:

/collections/{collection}/documents/{doc_id}/revisions/... and /collections/{collection}/revisions/...?doc_id=
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router
from ninja.params import functions as param

from collections_app.api import documents
from collections_app.api.access import ERRORS, find_collection
from collections_app.api.curation_schemas import (
    DifferenceAnswer,
    DocumentChanges,
    DocumentEdited,
    RevisionChunkPage,
    RevisionDetail,
    RevisionPage,
    RolledBack,
)
from collections_app.api.schemas import DocumentDeleted, DocumentRequest, Ingested
from collections_app.domain.differences import Change
from collections_app.http.auth import BearerAuth, request_key
from collections_app.http.paging import DEFAULT_LIMIT, cut_page, paginate
from collections_app.models import Document, DocumentRevision
from collections_app.services.documents.documents import get_document
from collections_app.services.documents.edits import roll_back
from collections_app.services.documents.revision_diff import compare_revisions
from collections_app.services.indexing import revisions as service

router = Router(auth=BearerAuth(), tags=["revisions"])

NESTED = "/collections/{collection}/documents/{path:doc_id}/revisions"
FLAT = "/collections/{collection}/revisions"
DOC_ID = param.Query(..., description="the document's id")
AGAINST = param.Query(None, alias="with", description="the later revision; the present one when left out")
COPIED = (
    "revision", "title", "tags", "metadata", "source", "media_type", "size_chars", "chunk_count", "chunk_policy",
    "content_hash", "made_at", "replaced_by", "reason",
)  # fmt: skip


def _document(request: HttpRequest, collection: str, doc_id: str) -> Document:
    return get_document(find_collection(request, collection), doc_id)


@router.get(NESTED, operation_id="documents-revisions", response={200: RevisionPage, **ERRORS})
def list_revisions(
    request: HttpRequest, collection: str, doc_id: str, limit: int = DEFAULT_LIMIT, cursor: str | None = None
) -> Any:
    """The revisions of a document that are kept, newest first; the first is the present one."""
    document = _document(request, collection, doc_id)
    rows = DocumentRevision.objects.listed().of_document(document.collection_id, document.doc_id)
    page = paginate(rows, ("-revision",), limit=limit, cursor=cursor)
    present = [] if cursor else [item(service.present_revision(document), present=True)]
    return {"items": [*present, *(item(row) for row in page.items)], "next_cursor": page.next_cursor}


@router.get(f"{NESTED}/{{int:number}}", operation_id="documents-revision", response={200: RevisionDetail, **ERRORS})
def get_revision(request: HttpRequest, collection: str, doc_id: str, number: int) -> Any:
    """One revision with its text."""
    document = _document(request, collection, doc_id)
    found = service.any_revision(document, number)
    if number == document.revision:
        maps: Any = {"page_map": document.page_map, "segments": document.segments}
    else:
        maps = service.revision_maps(document, number)
    content = service.revision_text(document, number)
    shown = item(found, present=number == document.revision)
    return shown | {"content": content, "warnings": found.warnings, **maps}


@router.get(
    f"{NESTED}/{{int:number}}/chunks",
    operation_id="documents-revision-chunks",
    response={200: RevisionChunkPage, **ERRORS},
)
def list_revision_chunks(
    request: HttpRequest,
    collection: str,
    doc_id: str,
    number: int,
    limit: int = DEFAULT_LIMIT,
    cursor: str | None = None,
) -> Any:
    """The chunks that the document had in that revision."""
    document = _document(request, collection, doc_id)
    service.any_revision(document, number)
    page = cut_page(service.revision_chunks(document, number), limit=limit, cursor=cursor)
    rows = [
        {
            "chunk_index": chunk.index,
            "start": chunk.start,
            "end": chunk.end,
            "content": chunk.content,
            "context": chunk.context,
            "enabled": chunk.enabled,
        }
        for chunk in page.items
    ]
    return {"items": rows, "next_cursor": page.next_cursor}


@router.get(
    f"{NESTED}/{{int:number}}/diff", operation_id="documents-revision-diff", response={200: DifferenceAnswer, **ERRORS}
)
def compare(
    request: HttpRequest,
    collection: str,
    doc_id: str,
    number: int,
    against: int | None = AGAINST,
    limit: int = DEFAULT_LIMIT,
    cursor: str | None = None,
) -> Any:
    """From this revision to another one: fields and chunks, changed chunks word by word, equal ones folded."""
    document = _document(request, collection, doc_id)
    found = compare_revisions(document, number, document.revision if against is None else against)
    page = cut_page(found.chunks.changes, limit=limit, cursor=cursor)
    return {
        "before": found.before.revision,
        "after": found.after.revision,
        "fields": [{"name": each.name, "before": each.before, "after": each.after} for each in found.fields],
        "counts": found.chunks.counts,
        "paired_by_order": found.chunks.by_order,
        "changes": [_change(change) for change in page.items],
        "next_cursor": page.next_cursor,
    }


@router.post(
    f"{NESTED}/{{int:number}}/rollback",
    operation_id="documents-revision-rollback",
    response={200: RolledBack, **ERRORS},
)
def rollback(request: HttpRequest, collection: str, doc_id: str, number: int) -> Any:
    """Make the document what it was in that revision, as a new revision. 409 when archived or being ingested."""
    outcome = roll_back(find_collection(request, collection), doc_id, number, actor=request_key(request))
    return {
        "revision": outcome.revision,
        "chunks_written": outcome.chunks_written,
        "unchanged": outcome.unchanged,
    }


def item(revision: DocumentRevision, *, present: bool = False) -> dict[str, Any]:
    values = {name: getattr(revision, name) for name in COPIED}
    return values | {"present": present, "replaced_at": None if present else revision.replaced_at}


def _change(change: Change) -> dict[str, Any]:
    parts = [] if change.kind == "same" else [{"kind": part.kind, "text": part.text} for part in change.parts()]
    return {
        "kind": change.kind,
        "count": change.count,
        "before": change.before.index if change.before else None,
        "after": change.after.index if change.after else None,
        "parts": parts,
    }


# --- the same with the id in the query


@router.get(FLAT, operation_id="revisions-list", response={200: RevisionPage, **ERRORS})
def list_flat(
    request: HttpRequest,
    collection: str,
    doc_id: str = DOC_ID,
    limit: int = DEFAULT_LIMIT,
    cursor: str | None = None,
) -> Any:
    return list_revisions(request, collection, doc_id, limit, cursor)


@router.get(f"{FLAT}/{{int:number}}", operation_id="revisions-get", response={200: RevisionDetail, **ERRORS})
def get_flat(request: HttpRequest, collection: str, number: int, doc_id: str = DOC_ID) -> Any:
    return get_revision(request, collection, doc_id, number)


@router.get(
    f"{FLAT}/{{int:number}}/chunks", operation_id="revisions-chunks", response={200: RevisionChunkPage, **ERRORS}
)
def list_chunks_flat(
    request: HttpRequest,
    collection: str,
    number: int,
    doc_id: str = DOC_ID,
    limit: int = DEFAULT_LIMIT,
    cursor: str | None = None,
) -> Any:
    return list_revision_chunks(request, collection, doc_id, number, limit, cursor)


@router.get(f"{FLAT}/{{int:number}}/diff", operation_id="revisions-diff", response={200: DifferenceAnswer, **ERRORS})
def compare_flat(
    request: HttpRequest,
    collection: str,
    number: int,
    doc_id: str = DOC_ID,
    against: int | None = AGAINST,
    limit: int = DEFAULT_LIMIT,
    cursor: str | None = None,
) -> Any:
    return compare(request, collection, doc_id, number, against, limit, cursor)


@router.post(f"{FLAT}/{{int:number}}/rollback", operation_id="revisions-rollback", response={200: RolledBack, **ERRORS})
def rollback_flat(request: HttpRequest, collection: str, number: int, doc_id: str = DOC_ID) -> Any:
    return rollback(request, collection, doc_id, number)


# --- documents whose own id ends as these addresses do: their other methods


def _alias_routes(path: str, suffix: str) -> None:
    """Let PUT, PATCH and DELETE of an address be those of the document whose id ends in the suffix."""

    def put(request: HttpRequest, collection: str, doc_id: str, payload: DocumentRequest) -> Any:
        return documents.ingest_document(request, collection, doc_id + suffix, payload)

    def patch(request: HttpRequest, collection: str, doc_id: str, payload: DocumentChanges) -> Any:
        return _patch(request, collection, doc_id + suffix, payload)

    def delete(request: HttpRequest, collection: str, doc_id: str) -> Any:
        return documents.delete_document(request, collection, doc_id + suffix)

    _register(path, put, patch, delete)


def _alias_numbered_routes(path: str, suffix: str) -> None:
    """The same where the number of a revision stands in the address."""

    def put(request: HttpRequest, collection: str, doc_id: str, number: int, payload: DocumentRequest) -> Any:
        return documents.ingest_document(request, collection, doc_id + suffix.format(number), payload)

    def patch(request: HttpRequest, collection: str, doc_id: str, number: int, payload: DocumentChanges) -> Any:
        return _patch(request, collection, doc_id + suffix.format(number), payload)

    def delete(request: HttpRequest, collection: str, doc_id: str, number: int) -> Any:
        return documents.delete_document(request, collection, doc_id + suffix.format(number))

    _register(path, put, patch, delete)


def _patch(request: HttpRequest, collection: str, doc_id: str, payload: DocumentChanges) -> Any:
    from collections_app.api.curation import patch_document  # which needs this module's router

    return patch_document(request, collection, doc_id, payload)


def _register(path: str, put: Any, patch: Any, delete: Any) -> None:
    router.put(path, include_in_schema=False, response={200: Ingested, **ERRORS})(put)
    router.patch(path, include_in_schema=False, response={200: DocumentEdited, **ERRORS})(patch)
    router.delete(path, include_in_schema=False, response={200: DocumentDeleted, **ERRORS})(delete)


_alias_routes(NESTED, "/revisions")
_alias_numbered_routes(f"{NESTED}/{{int:number}}", "/revisions/{}")
for _end in ("chunks", "diff", "rollback"):
    _alias_numbered_routes(f"{NESTED}/{{int:number}}/{_end}", f"/revisions/{{}}/{_end}")
