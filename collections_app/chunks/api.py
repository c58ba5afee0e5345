"""Single chunks over HTTP: one chunk, changes to it, its neighbours, and a preview of another policy."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, get_args

from django.http import HttpRequest
from ninja import Router, Status
from ninja.files import UploadedFile
from ninja.params import functions as param

from collections_app.access.auth import ERRORS, BearerAuth, find_collection, request_key
from collections_app.access.permissions import Permission
from collections_app.chunks import edits
from collections_app.chunks.document_snapshot import NEIGHBOURS_MAX, find_chunk, nearest_chunks
from collections_app.chunks.outliers import COUNT_TIMEOUT_S, find_outliers, last_scan, scan_duplicates
from collections_app.chunks.preview import preview_content, preview_document, preview_upload
from collections_app.chunks.schemas import (
    CHUNKS_SHOWN,
    CHUNKS_SHOWN_MAX,
    ChunkChanged,
    ChunkChanges,
    ChunkItemDetail,
    Flag,
    NewChunk,
    OutlierList,
    OverlayList,
    OverlayPlace,
    PreviewAnswer,
    PreviewRequest,
)
from collections_app.documents.api import router as documents_router
from collections_app.documents.services import get_document
from collections_app.errors import ServiceError
from collections_app.http.fields import CHARS, OVERLAP, TOKENS, DocId, Omitted, accepts
from collections_app.http.schemas import read_content
from collections_app.jobs.operation_api import OperationOut
from ragd.errors import InvalidInput
from ragd.types import ChunkKind

router = Router(auth=BearerAuth(), tags=["chunks"])

OFFSET_MAX = 1_000_000_000
FILE = param.File(..., description="one file")
ONE_CHUNK = "/collections/{collection}/chunks/{int:chunk_index}/{doc:doc_id}"
ONE_OVERLAY = "/collections/{collection}/overlays/{int:overlay_id}"


@router.get(ONE_CHUNK, operation_id="chunks-get", response={200: ChunkItemDetail, **ERRORS})
def get_chunk(
    request: HttpRequest,
    collection: str,
    chunk_index: int,
    doc_id: DocId,
    neighbours: int = param.Query(0, ge=0, le=NEIGHBOURS_MAX, description="so many of the chunks nearest to it"),
    other_documents: bool = param.Query(False, description="only neighbours of other documents"),
) -> Any:
    """One chunk; overlay is "edit" or "add" where a person wrote its content.

    Neighbours are nearest by their vectors, every one compared.
    """
    target = find_collection(request, collection)
    chunk = find_chunk(target, doc_id, chunk_index)
    find_near = partial(nearest_chunks, target, doc_id, chunk_index, k=neighbours, other_documents=other_documents)
    return ChunkItemDetail.from_orm(chunk, context={"neighbours": find_near() if neighbours else []})


@router.patch(ONE_CHUNK, operation_id="chunks-change", response={200: ChunkChanged, **ERRORS})
def change_chunk(request: HttpRequest, collection: str, chunk_index: int, doc_id: DocId, payload: ChunkChanges) -> Any:
    """Edit a chunk's content, or keep it out of results (`enabled` false). Survives whatever makes the chunks anew."""
    target, actor = find_collection(request, collection), request_key(request)
    if (payload.content is None) == (payload.enabled is None):
        raise InvalidInput("give either content or enabled", field="content")
    if payload.content is not None:
        change = edits.edit_chunk(target, doc_id, chunk_index, payload.content, revision=payload.revision, actor=actor)
    else:
        change = edits.set_chunk_enabled(
            target, doc_id, chunk_index, enabled=bool(payload.enabled), revision=payload.revision, actor=actor
        )
    return change


# the list of chunks has the same address, so it is the same router
@documents_router.post(
    "/collections/{collection}/chunks",
    operation_id="chunks-add",
    tags=["chunks"],
    response={201: ChunkChanged, **ERRORS},
)
def add_chunk(request: HttpRequest, collection: str, payload: NewChunk) -> Any:
    """Add a chunk behind another one of a document, or at its end."""
    change = edits.add_chunk(
        find_collection(request, collection),
        payload.doc_id,
        payload.content,
        after=payload.after,
        revision=payload.revision,
        actor=request_key(request),
    )
    return Status(201, change)


@router.get("/collections/{collection}/overlays", operation_id="overlays-list", response={200: OverlayList, **ERRORS})
def list_overlays(
    request: HttpRequest, collection: str, doc_id: DocId = param.Query(..., description="of this document")
) -> Any:
    """What people changed in the chunks of a document, oldest first; applies says whether its text is still there."""
    target = find_collection(request, collection)
    return {"items": edits.list_overlays(target, get_document(target, doc_id).doc_id)}


@router.patch(ONE_OVERLAY, operation_id="overlays-attach", response={200: ChunkChanged, **ERRORS})
def attach_overlay(request: HttpRequest, collection: str, overlay_id: int, payload: OverlayPlace) -> Any:
    """Lay a change over another chunk of its document, such as one whose own text is gone."""
    target = find_collection(request, collection)
    doc_id = edits.get_overlay(target, overlay_id).doc_id
    return edits.attach_overlay(target, doc_id, overlay_id, payload.chunk_index, actor=request_key(request))


@router.delete(ONE_OVERLAY, operation_id="overlays-delete", response={200: ChunkChanged, **ERRORS})
def remove_overlay(request: HttpRequest, collection: str, overlay_id: int) -> Any:
    """Undo a change: the chunk is again what the policy cuts."""
    target = find_collection(request, collection)
    doc_id = edits.get_overlay(target, overlay_id).doc_id
    return edits.remove_overlay(target, doc_id, overlay_id, actor=request_key(request))


@router.post(
    "/collections/{collection}/chunk-preview/file",
    operation_id="chunk-preview-file",
    auth=BearerAuth(changes=Permission.READ),
    response={200: PreviewAnswer, **ERRORS},
)
def preview_file(
    request: HttpRequest,
    collection: str,
    file: UploadedFile = FILE,
    kind: Annotated[str, accepts(enum=list(get_args(ChunkKind)))] | Omitted = param.Form(None),
    target_tokens: Annotated[int, TOKENS] | Omitted = param.Form(None),
    overlap_tokens: Annotated[int, OVERLAP] | Omitted = param.Form(None),
    max_chars: Annotated[int, CHARS] | Omitted = param.Form(None),
    offset: int = param.Form(0, ge=0),
    limit: int = param.Form(CHUNKS_SHOWN, ge=0, le=CHUNKS_SHOWN_MAX),
) -> Any:
    """The same of a file: it is read as an upload would be, and not kept."""
    explicit = {"kind": kind, "target_tokens": target_tokens, "overlap_tokens": overlap_tokens, "max_chars": max_chars}
    preview = preview_upload(find_collection(request, collection), file.name or "file", file, explicit)
    return PreviewAnswer.from_orm(preview, context={"shown": slice(offset, offset + limit)})


@router.post(
    "/collections/{collection}/chunk-preview",
    operation_id="chunk-preview",
    auth=BearerAuth(changes=Permission.READ),
    response={200: PreviewAnswer, **ERRORS},
)
def preview_chunks(request: HttpRequest, collection: str, payload: PreviewRequest) -> Any:
    """The chunks that a policy would make of a stored document or of a text, beside those of the present one.

    Nothing is written, and nothing is embedded.
    """
    target = find_collection(request, collection)
    if (payload.doc_id is None) == (payload.content is None):
        raise InvalidInput("give either doc_id, of a stored document, or content", field="doc_id")
    explicit = payload.policy.model_dump(exclude_none=True) if payload.policy else {}
    if payload.doc_id is not None:
        preview = preview_document(target, get_document(target, payload.doc_id), explicit)
    else:
        preview = preview_content(target, read_content(payload.content), explicit, title=payload.title or "")
    return PreviewAnswer.from_orm(preview, context={"shown": slice(payload.offset, payload.offset + payload.limit)})


@router.get("/collections/{collection}/outliers", operation_id="outliers-list", response={200: OutlierList, **ERRORS})
def outliers(
    request: HttpRequest,
    collection: str,
    flag: Flag | None = None,
    offset: int = param.Query(0, ge=0, le=OFFSET_MAX),
    limit: int = param.Query(CHUNKS_SHOWN, ge=1, le=CHUNKS_SHOWN_MAX),
) -> Any:
    """Chunks that deserve a look, with counts per flag. 503 when the collection is too large to be counted at once."""
    target = find_collection(request, collection)
    found = find_outliers(target, flag or "", offset=offset, limit=limit)
    if found is None:
        raise ServiceError(
            f"{target.name!r} is too large to be counted within {COUNT_TIMEOUT_S} seconds; list the chunks instead",
            type="too_slow",
            status=503,
        )
    return {
        "chunks": found.counts.chunks,
        "flagged": found.counts.any,
        "by_flag": found.counts.by_flag,
        "scan": last_scan(target),
        "items": found.rows,
    }


@router.post(
    "/collections/{collection}/outliers/scan", operation_id="outliers-scan", response={200: OperationOut, **ERRORS}
)
def scan(request: HttpRequest, collection: str) -> Any:
    """Look for near-duplicates anew; answers when that is done, within half a minute."""
    return scan_duplicates(find_collection(request, collection), actor=request_key(request))
