"""What is asked and answered about single chunks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from ninja import Field, Schema
from pydantic import ConfigDict, StrictBool

from collections_app.chunks.document_snapshot import Neighbour
from collections_app.chunks.outliers import Outlier
from collections_app.chunks.preview import Preview
from collections_app.chunks.preview import PreviewChunk as ChunkOfPreview
from collections_app.http.fields import DocId, Text, either
from collections_app.http.schemas import ChunkItem, ChunkPolicyRequest, Request, SegmentRequest, Stored, read_from
from collections_app.http.validation import StrictInt
from collections_app.jobs.operation_api import OperationOut
from collections_app.models import Chunk
from ragd.types import ChunkPolicy

Flag = Literal["short", "long", "no_letters", "duplicate"]

CHUNKS_SHOWN = 100
CHUNKS_SHOWN_MAX = 1000


class ChunkItemDetail(ChunkItem):
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


class ChunkChanges(Request):
    model_config = either("content", "enabled")

    content: Text | None = Field(None, description="what the chunk is to say; its own text takes an edit back")
    enabled: StrictBool | None = Field(None, description="false: kept, and never retrieved")
    revision: StrictInt | None = Field(None, description="that you saw; the answer is 409 when there is a later one")


class NewChunk(Request):
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


class OverlayPlace(Request):
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


class OverlayList(Schema):
    items: list[OverlayItem]


class NeighbourItem(Schema):
    model_config = ConfigDict(alias_generator=read_from("candidate", own=(*Neighbour.__slots__, "page")))

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


class PreviewRequest(Request):
    model_config = either("doc_id", "content")

    doc_id: DocId | None = Field(None, description="a stored document")
    content: Text | list[SegmentRequest] | None = Field(None, description="or a text that is not stored")
    title: str | None = Field(None, description="of the content; chunks are embedded with it")
    policy: ChunkPolicyRequest | None = Field(None, description="what is left out is as in the collection")
    offset: StrictInt = Field(0, ge=0, description="of the first chunk in the answer")
    limit: StrictInt = Field(CHUNKS_SHOWN, ge=0, le=CHUNKS_SHOWN_MAX, description="chunks in the answer")


class PreviewLengths(Schema):
    """In words; null without chunks."""

    count: int
    tokens: int
    shortest: int | None
    median: float | None
    longest: int | None
    shared_chars: int = Field(description="overlapping characters, summed")


class PreviewBins(Schema):
    step: int = Field(description="words; bin i holds lengths from i * step up to the next")
    now: list[int]
    then: list[int]


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
    policy: Stored[ChunkPolicy] = Field(validation_alias="policy.as_dict")
    policy_now: Stored[ChunkPolicy] = Field(
        validation_alias="policy_now.as_dict", description="of the document; for a content, of the collection"
    )
    size_chars: int
    read_chars: int = Field(validation_alias="chars", description="how much of the document the preview is of")
    now: PreviewLengths = Field(validation_alias="lengths_now")
    then: PreviewLengths = Field(validation_alias="lengths_then")
    equal: int = Field(description="chunks that are there now already")
    waiting_overlays: int | None = Field(
        validation_alias="waiting", description="changes of chunks that would not apply; null: not known"
    )
    histogram: PreviewBins = Field(validation_alias="bins")
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
