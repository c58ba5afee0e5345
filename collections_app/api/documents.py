"""Documents and their chunks over HTTP, one at a time and many at once. A doc_id may hold slashes."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Router
from ninja.params import functions as param

from collections_app.api.access import ERRORS, find_collection
from collections_app.api.curation_schemas import (
    BulkAnswer,
    BulkRequest,
    DocumentChanges,
    DocumentEdited,
    FacetAnswer,
    FilterRequest,
)
from collections_app.api.fields import NEXT_CURSOR, Cursor, DocId, FilterText, Limit
from collections_app.api.schemas import (
    ChunkPage,
    DocumentDeleted,
    DocumentDetail,
    DocumentPage,
    DocumentRequest,
    Ingested,
    read_content,
)
from collections_app.domain.access_lists import read_access
from collections_app.domain.filter_language import read_filter
from collections_app.http.auth import BearerAuth, request_key
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from collections_app.models import Chunk, Collection
from collections_app.services.documents import documents as service
from collections_app.services.documents import edits
from collections_app.services.documents.bulk_changes import BulkChange, DocumentResult, change_documents
from collections_app.services.documents.selection import DocumentFilter, choose_matching, choose_named, count_facets
from collections_app.services.governance.document_access import resolve
from ragd.conditions import parse_condition
from ragd.errors import InvalidInput

router = Router(auth=BearerAuth(), tags=["documents"])

POLICY_FIELDS = ("target_tokens", "overlap_tokens", "max_chars")
WORDS = param.Query("", description="words that id, title or source contain")
TAGS = param.Query([], description="tags that all must be there")
EXPRESSION = param.Query("", description="a typed filter as text, such as title starts with 'Annual' and language = de")
ACCESS = param.Query("", description="restricted: only some may read it; open: everybody who may read the collection")
BY_ID = "/collections/{collection}/documents/{doc:doc_id}"


@router.get(
    "/collections/{collection}/documents", operation_id="documents-list", response={200: DocumentPage, **ERRORS}
)
def list_documents(
    request: HttpRequest,
    collection: str,
    q: str = WORDS,
    tag: list[str] = TAGS,
    state: Literal["any", "present", "enabled", "disabled", "archived"] = param.Query(
        "any", description="present: not archived"
    ),
    media_type: str = param.Query("", description="only of this one"),
    language: str = param.Query("", description="only in this one, by its ISO 639-1 code; unknown: in none"),
    filter: FilterText = EXPRESSION,
    access: Literal["", "restricted", "open"] = ACCESS,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """The documents of a collection, by id."""
    target = find_collection(request, collection)
    condition = parse_condition(read_filter(filter))
    rows = DocumentFilter(q, tuple(tag), state, media_type, language, condition, access).rows(target).listed()
    return paginate(rows, ("doc_id",), limit=limit, cursor=cursor)


@router.get("/collections/{collection}/chunks", operation_id="chunks-list", response={200: ChunkPage, **ERRORS})
def list_chunks(
    request: HttpRequest,
    collection: str,
    doc_id: DocId | None = param.Query(None, description="only of this document"),
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """The chunks of a collection or of one document, by doc_id and chunk_index."""
    target = find_collection(request, collection)
    rows = Chunk.objects.of(target).light()
    if doc_id is not None:
        rows = rows.filter(doc_id=service.get_document(target, doc_id).doc_id)
    return paginate(rows, ("doc_id", "chunk_index"), limit=limit, cursor=cursor)


@router.put(BY_ID, operation_id="documents-ingest", response={200: Ingested, **ERRORS})
def ingest_document(request: HttpRequest, collection: str, doc_id: DocId, payload: DocumentRequest) -> Any:
    """Make the document consist of this content; answers when it is searchable. Sending it again changes nothing."""
    target = find_collection(request, collection)
    try:
        return service.ingest_text(
            target,
            doc_id,
            read_content(payload.content),
            title=payload.title or "",
            tags=payload.tags,
            metadata=payload.metadata,
            policy={name: getattr(payload, f"chunk_{name}") for name in POLICY_FIELDS},
            mode=payload.ingest_mode,
            language=payload.language,
            access=resolve(target, None if payload.access is None else read_access(payload.access)),
            actor=request_key(request),
        )
    except InvalidInput as error:
        if error.field in POLICY_FIELDS:
            raise InvalidInput(f"chunk_{error.message}", field=f"chunk_{error.field}") from None
        raise


@router.get(BY_ID, operation_id="documents-get", response={200: DocumentDetail, **ERRORS})
def get_document(request: HttpRequest, collection: str, doc_id: DocId) -> Any:
    return service.get_document(find_collection(request, collection), doc_id)


@router.delete(BY_ID, operation_id="documents-delete", response={200: DocumentDeleted, **ERRORS})
def delete_document(request: HttpRequest, collection: str, doc_id: DocId) -> Any:
    """Delete a document with its chunks and files; answers how many of each went."""
    target = find_collection(request, collection)
    document = service.get_document(target, doc_id)
    return service.delete_documents(target, [document.doc_id], actor=request_key(request))


@router.patch(BY_ID, operation_id="documents-edit", response={200: DocumentEdited, **ERRORS})
def edit_document(request: HttpRequest, collection: str, doc_id: DocId, payload: DocumentChanges) -> Any:
    """Change title, tags, metadata, language, chunk policy or state; answers the document then. 409 when archived."""
    target = find_collection(request, collection)
    changes = payload.dict(exclude_unset=True, exclude={"expected_revision", "chunk_policy"})
    changes = {name: value for name, value in changes.items() if value is not None}
    if payload.chunk_policy is not None:
        changes["chunk_policy"] = payload.chunk_policy.dict(exclude_none=True)
    return edits.edit_document(
        target, doc_id, changes, expected_revision=payload.expected_revision, actor=request_key(request)
    )


@router.get("/collections/{collection}/facets", operation_id="documents-facets", response={200: FacetAnswer, **ERRORS})
def list_facets(
    request: HttpRequest,
    collection: str,
    q: str = WORDS,
    tag: list[str] = TAGS,
    state: Literal["any", "present", "enabled", "disabled", "archived"] = "present",
    media_type: str = "",
    language: str = "",
    filter: FilterText = EXPRESSION,
    access: Literal["", "restricted", "open"] = ACCESS,
) -> Any:
    """How many documents each value of a filter would leave, under the filters that are stated."""
    target = find_collection(request, collection)
    condition = parse_condition(read_filter(filter))
    return count_facets(target, DocumentFilter(q, tuple(tag), state, media_type, language, condition, access))


@router.post(
    "/collections/{collection}/documents-bulk", operation_id="documents-bulk", response={200: BulkAnswer, **ERRORS}
)
def change_many(request: HttpRequest, collection: str, payload: BulkRequest) -> Any:
    """Make one change to many documents; one result per document."""
    target = find_collection(request, collection)
    change = BulkChange(
        payload.action,
        tuple(payload.tags),
        payload.key,
        payload.value,
        payload.only_existing,
        payload.language,
        resolve(target, None if payload.access is None else read_access(payload.access)),
    ).checked()
    names = _choose(target, payload)
    if payload.dry_run:
        results = [DocumentResult(name, "meant") for name in names]
        return {"counts": {"meant": len(names)}, "removed": {}, "results": results}
    return change_documents(target, change, names, actor=request_key(request))


def _choose(collection: Collection, payload: BulkRequest) -> list[str]:
    if (payload.doc_ids is None) == (payload.filter is None):
        raise InvalidInput("name the documents by doc_ids or by a filter, one of the two", field="doc_ids")
    if payload.filter is None:
        return choose_named(payload.doc_ids or [])
    return choose_matching(collection, _filter(payload.filter), expected=payload.expected)


def _filter(filter_request: FilterRequest) -> DocumentFilter:
    return DocumentFilter(
        filter_request.q,
        tuple(filter_request.tags),
        filter_request.state,
        filter_request.media_type,
        filter_request.language,
        parse_condition(filter_request.where),
        filter_request.access,
    )
