"""Documents and their chunks over HTTP, one at a time and many at once. A doc_id may hold slashes."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query
from ninja.params import functions as param

from collections_app.access.auth import BearerAuth, Router, find_collection, request_key
from collections_app.access.document_access import OPEN, change_readers, read_access, resolve
from collections_app.documents import edits, schemas
from collections_app.documents import services as service
from collections_app.documents.bulk_changes import (
    BulkChange,
    change_documents,
    check_expected,
    choose_matching,
    choose_named,
    count_facets,
    find_known,
    preview_change,
)
from collections_app.documents.revisions import services as revisions
from collections_app.http.paging import DEFAULT_LIMIT, cut_page, paginate
from collections_app.http.schemas import (
    NEXT_CURSOR,
    ChunkItem,
    Cursor,
    DocId,
    DocumentDeleted,
    DocumentRequest,
    Ingested,
    Limit,
    PageOf,
    read_content,
)
from collections_app.models import Chunk, Collection
from ragd.errors import InvalidInput

router = Router(auth=BearerAuth(), tags=["documents"])

POLICY_FIELDS = ("target_tokens", "overlap_tokens", "max_chars")
BY_ID = "/collections/{collection}/documents/{doc:doc_id}"


@router.get("/collections/{collection}/documents", operation_id="documents-list", response=schemas.DocumentList)
def list_documents(
    request: HttpRequest,
    collection: str,
    filters: Query[schemas.DocumentFilters],
    facets: bool = param.Query(False, description="count too how many documents each value of a filter would leave"),
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """The documents of a collection, by id."""
    target, stated = find_collection(request, collection), filters.read()
    page = paginate(stated.rows(target).listed(), ("doc_id",), limit=limit, cursor=cursor)
    counts = count_facets(target, stated) if facets else None
    return {"items": page.items, "next_cursor": page.next_cursor, "facets": counts}


@router.get(
    "/collections/{collection}/chunks",
    operation_id="chunks-list",
    response=PageOf[ChunkItem] | PageOf[schemas.RevisionChunkItem],
)
def list_chunks(
    request: HttpRequest,
    collection: str,
    doc_id: DocId | None = param.Query(None, description="only of this document"),
    revision: int | None = param.Query(None, description="those that the document had in this revision"),
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """The chunks of a collection or of one document, by doc_id and chunk_index."""
    target = find_collection(request, collection)
    if revision is not None:
        if doc_id is None:
            raise InvalidInput("revision goes with doc_id", field="doc_id")
        document = service.get_document(target, doc_id)
        revisions.any_revision(document, revision)
        return cut_page(revisions.revision_chunks(document, revision), limit=limit, cursor=cursor)
    rows = Chunk.objects.of(target).light()
    if doc_id is not None:
        rows = rows.filter(doc_id=service.get_document(target, doc_id).doc_id)
    return paginate(rows, ("doc_id", "chunk_index"), limit=limit, cursor=cursor)


@router.put(BY_ID, operation_id="documents-ingest", response=Ingested)
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


@router.get(BY_ID, operation_id="documents-get", response=schemas.DocumentShown)
def get_document(request: HttpRequest, collection: str, doc_id: DocId) -> Any:
    return service.get_document(find_collection(request, collection), doc_id)


@router.delete(BY_ID, operation_id="documents-delete", response=DocumentDeleted)
def delete_document(request: HttpRequest, collection: str, doc_id: DocId) -> Any:
    """Delete a document with its chunks and files; answers how many of each went."""
    target = find_collection(request, collection)
    document = service.get_document(target, doc_id)
    return service.delete_documents(target, [document.doc_id], actor=request_key(request))


@router.patch(BY_ID, operation_id="documents-edit", response=schemas.DocumentEdited)
def edit_document(request: HttpRequest, collection: str, doc_id: DocId, payload: schemas.DocumentChanges) -> Any:
    """Change title, tags, metadata, language, chunk policy or state; answers the document then.

    Or restore an earlier revision, or set who may read it and what was attached to it. 409 when archived, for
    restoring while it is ingested, and for the access of an attachment, which has that of what it was attached to.
    """
    target = find_collection(request, collection)
    for name in ("restore_revision", "access"):
        if getattr(payload, name) is not None and payload.model_fields_set != {name}:
            raise InvalidInput(f"{name} goes with no other field", field=name)
    if payload.restore_revision is not None:
        edits.roll_back(target, doc_id, payload.restore_revision, actor=request_key(request))
        return service.get_document(target, doc_id)
    if payload.access is not None:
        codes = resolve(target, read_access(payload.access))
        doc_id = service.get_document(target, doc_id).doc_id
        change_readers(target, [doc_id], codes or OPEN, actor=request_key(request))
        return service.get_document(target, doc_id)
    changes = payload.dict(exclude_unset=True, exclude={"expected_revision", "chunk_policy"})
    changes = {name: value for name, value in changes.items() if value is not None}
    if payload.chunk_policy is not None:
        changes["chunk_policy"] = payload.chunk_policy.dict(exclude_none=True)
    return edits.edit_document(
        target, doc_id, changes, expected_revision=payload.expected_revision, actor=request_key(request)
    )


@router.post("/collections/{collection}/documents-bulk", operation_id="documents-bulk", response=schemas.BulkAnswer)
def change_documents_in_bulk(request: HttpRequest, collection: str, payload: schemas.BulkRequest) -> Any:
    """Make one change to many documents; one result per document."""
    target = find_collection(request, collection)
    stated = {name: getattr(payload, name) for name in ("action", "key", "value", "only_existing", "language")}
    access = resolve(target, None if payload.access is None else read_access(payload.access))
    change = BulkChange(**stated, tags=tuple(payload.tags), access=access).checked()
    names = _choose(target, payload)
    known = set(names) if payload.doc_ids is None else find_known(target, names)
    check_expected(payload.expected, len(known))
    if payload.dry_run:
        return preview_change(names, known)
    return change_documents(target, change, names, actor=request_key(request))


def _choose(collection: Collection, payload: schemas.BulkRequest) -> list[str]:
    if (payload.doc_ids is None) == (payload.filter is None):
        raise InvalidInput("name the documents by doc_ids or by a filter, one of the two", field="doc_ids")
    if payload.filter is None:
        return choose_named(payload.doc_ids or [])
    return choose_matching(collection, payload.filter.read())
