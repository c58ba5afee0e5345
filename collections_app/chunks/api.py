"""Single chunks over HTTP: one chunk, changes to it, its neighbours, and a preview of another policy."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal, get_args

from django.http import HttpRequest
from ninja import Field, Schema, Status
from ninja.files import UploadedFile
from ninja.params import functions as param
from pydantic import ConfigDict, StrictBool

from collections_app.access.auth import BearerAuth, Router, find_collection, request_key
from collections_app.access.permissions import Permission
from collections_app.chunks import edits
from collections_app.chunks.document_snapshot import NEIGHBOURS_MAX, Neighbour, find_chunk, nearest_chunks
from collections_app.chunks.outliers import COUNT_TIMEOUT_S, Outlier, find_outliers, last_scan, scan_duplicates
from collections_app.chunks.preview import Bins, Lengths, Preview, preview_content, preview_document, preview_upload
from collections_app.chunks.preview import PreviewChunk as ChunkOfPreview
from collections_app.documents.api import router as documents_router
from collections_app.documents.services import get_document
from collections_app.errors import ServiceError
from collections_app.http import schemas
from collections_app.http.schemas import CHARS, OVERLAP, TOKENS, DocId, Omitted, Text, accepts, either
from collections_app.http.validation import StrictInt
from collections_app.jobs.operation_api import OperationOut
from collections_app.models import Chunk
from ragd.errors import InvalidInput
from ragd.types import ChunkKind, ChunkPolicy

Flag = Literal["short", "long", "no_letters", "duplicate"]

CHUNKS_SHOWN = 100
CHUNKS_SHOWN_MAX = 1000


class ChunkItemDetail(schemas.ChunkItem):
    overlay: str | None = Field(description='"edit" or "add" where a person wrote the content, else null')
    switched_off: bool = Field(description="disabled by itself, whatever its document is")
    neighbours: list[NeighbourItem] = Field(description="the nearest first, where they were asked for")

    @staticmethod
    def resolve_neighbours(_: Chunk, context: dict[str, Any]) -> Any:
        return context["neighbours"]

    @staticmethod
    def resolve_overlay(chunk: Chunk) -> str | None:
        overlay: str | None = chunk.attributes.get("overlay")
        return overlay


class ChunkChanges(schemas.Request):
    model_config = either("content", "enabled")

    content: Text | None = Field(None, description="what the chunk is to say; its own text takes an edit back")
    enabled: StrictBool | None = Field(None, description="false: kept, and never retrieved")
    revision: StrictInt | None = Field(None, description="that you saw; the answer is 409 when there is a later one")


class NewChunk(schemas.Request):
    doc_id: DocId
    content: Text
    after: StrictInt | None = Field(None, description="chunk_index that it follows; null: the end of the document")
    revision: StrictInt | None = Field(None, description="that you saw; the answer is 409 when there is a later one")


class ChunkChanged(Schema):
    doc_id: str
    revision: int = Field(description="of the document now")
    chunk_index: int | None = Field(description="where the chunk stands now; null when the change applies nowhere")
    overlay_id: int | None = Field(description="of the change, to undo it; null when there is none any more")
    changed: bool = Field(description="false: it was so already, and nothing was done")


class OverlayPlace(schemas.Request):
    chunk_index: StrictInt


class OverlayItem(Schema):
    id: int
    kind: str = Field(description="edit, disable or add")
    content: str = Field(description='what stands there instead, or was added; "" for disable')
    anchor_text: str = Field(description="the text of the chunk that it is laid over; an addition follows it")
    start_char: int
    applies: bool = Field(description="whether that text is among the chunks now")
    revision: int = Field(description="of the document when that was last looked at")
    created_by: str
    created_at: datetime
    updated_at: datetime


class NeighbourItem(Schema):
    model_config = ConfigDict(alias_generator=schemas.read_from("candidate", own=(*Neighbour.__slots__, "page")))

    rank: int
    score: float = Field(description="cosine similarity")
    doc_id: str
    chunk_index: int
    content: str
    context: str
    start: int
    end: int
    page: str | None
    attributes: dict[str, Any]
    same_document: bool

    @staticmethod
    def resolve_page(neighbour: Neighbour) -> str | None:
        return neighbour.candidate.attributes.get("page_label")


class PreviewRequest(schemas.Request):
    model_config = either("doc_id", "content")

    doc_id: DocId | None = Field(None, description="a stored document")
    content: Text | list[schemas.SegmentRequest] | None = Field(None, description="or a text that is not stored")
    title: str | None = Field(None, description="of the content; chunks are embedded with it")
    policy: schemas.ChunkPolicyRequest | None = Field(None, description="what is left out is as in the collection")
    offset: StrictInt = Field(0, ge=0, description="of the first chunk in the answer")
    limit: StrictInt = Field(CHUNKS_SHOWN, ge=0, le=CHUNKS_SHOWN_MAX, description="chunks in the answer")


class PreviewChunk(Schema):
    chunk_index: int = Field(validation_alias="index")
    start: int
    end: int
    token_count: int
    content: str
    headings: list[str]
    page: str | None
    enabled: bool
    overlay: str | None
    kept: bool = Field(description="the same text is a chunk now, so that it keeps its vector")

    @staticmethod
    def resolve_overlay(chunk: ChunkOfPreview) -> str | None:
        return chunk.overlay or None


class PreviewAnswer(Schema):
    policy: schemas.Stored[ChunkPolicy] = Field(validation_alias="policy.as_dict")
    policy_now: schemas.Stored[ChunkPolicy] = Field(
        validation_alias="policy_now.as_dict", description="of the document; for a content, of the collection"
    )
    size_chars: int
    read_chars: int = Field(validation_alias="chars", description="how much of the document the preview is of")
    now: Lengths = Field(validation_alias="lengths_now")
    then: Lengths = Field(validation_alias="lengths_then")
    equal: int = Field(description="chunks that are there now already")
    waiting_overlays: int | None = Field(
        validation_alias="waiting", description="changes of chunks that would not apply; null: not known"
    )
    histogram: Bins = Field(validation_alias="bins")
    chunks: list[PreviewChunk]

    @staticmethod
    def resolve_chunks(preview: Preview, context: dict[str, slice]) -> Sequence[ChunkOfPreview]:
        """The slice that the context calls `shown`; counts are of all."""
        return preview.then[context["shown"]]


class LikeItem(Schema):
    """An earlier chunk that says the same."""

    doc_id: str
    chunk_index: int
    share: float = Field(description="of the runs of three words of either, those that are in both")


class OutlierItem(Schema):
    doc_id: str
    chunk_index: int
    flags: list[Flag]
    token_count: int
    excerpt: str
    enabled: bool
    like: LikeItem | None

    @staticmethod
    def resolve_like(outlier: Outlier) -> dict[str, Any] | None:
        if outlier.like is None:
            return None
        return dict(zip(LikeItem.model_fields, outlier.like, strict=True))


class OutlierList(Schema):
    chunks: int
    flagged: int = Field(description="chunks with at least one flag")
    by_flag: dict[Flag, int]
    scan: OperationOut | None = Field(description="null: near-duplicates were not looked for yet")
    items: list[OutlierItem] = Field(description="by doc_id and chunk_index")


router = Router(auth=BearerAuth(), tags=["chunks"])

OFFSET_MAX = 1_000_000_000
FILE = param.File(..., description="one file")
ONE_CHUNK = "/collections/{collection}/chunks/{int:chunk_index}/{doc:doc_id}"
ONE_OVERLAY = "/collections/{collection}/overlays/{int:overlay_id}"


@router.get(ONE_CHUNK, operation_id="chunks-get", response=ChunkItemDetail)
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


@router.patch(ONE_CHUNK, operation_id="chunks-change", response=ChunkChanged)
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
    "/collections/{collection}/chunks", operation_id="chunks-add", tags=["chunks"], response={201: ChunkChanged}
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


@router.get("/collections/{collection}/overlays", operation_id="overlays-list", response=schemas.ListOf[OverlayItem])
def list_overlays(
    request: HttpRequest, collection: str, doc_id: DocId = param.Query(..., description="of this document")
) -> Any:
    """What people changed in the chunks of a document, oldest first; applies says whether its text is still there."""
    target = find_collection(request, collection)
    return {"items": edits.list_overlays(target, get_document(target, doc_id).doc_id)}


@router.patch(ONE_OVERLAY, operation_id="overlays-attach", response=ChunkChanged)
def attach_overlay(request: HttpRequest, collection: str, overlay_id: int, payload: OverlayPlace) -> Any:
    """Lay a change over another chunk of its document, such as one whose own text is gone."""
    target = find_collection(request, collection)
    doc_id = edits.get_overlay(target, overlay_id).doc_id
    return edits.attach_overlay(target, doc_id, overlay_id, payload.chunk_index, actor=request_key(request))


@router.delete(ONE_OVERLAY, operation_id="overlays-delete", response=ChunkChanged)
def remove_overlay(request: HttpRequest, collection: str, overlay_id: int) -> Any:
    """Undo a change: the chunk is again what the policy cuts."""
    target = find_collection(request, collection)
    doc_id = edits.get_overlay(target, overlay_id).doc_id
    return edits.remove_overlay(target, doc_id, overlay_id, actor=request_key(request))


@router.post(
    "/collections/{collection}/chunk-preview/file",
    operation_id="chunk-preview-file",
    auth=BearerAuth(changes=Permission.READ),
    response=PreviewAnswer,
)
def preview_file_chunks(
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
    response=PreviewAnswer,
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
        preview = preview_content(target, schemas.read_content(payload.content), explicit, title=payload.title or "")
    return PreviewAnswer.from_orm(preview, context={"shown": slice(payload.offset, payload.offset + payload.limit)})


@router.get("/collections/{collection}/outliers", operation_id="outliers-list", response=OutlierList)
def list_outliers(
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


@router.post("/collections/{collection}/outliers/scan", operation_id="outliers-scan", response=OperationOut)
def scan_for_outliers(request: HttpRequest, collection: str) -> Any:
    """Look for near-duplicates anew; answers when that is done, within half a minute."""
    return scan_duplicates(find_collection(request, collection), actor=request_key(request))
