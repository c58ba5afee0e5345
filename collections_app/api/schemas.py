"""The shapes of requests and answers. An unknown field of a request is an error, never ignored."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from ninja import Field, Schema
from pydantic import (
    AliasGenerator,
    AwareDatetime,
    BeforeValidator,
    ConfigDict,
    FiniteFloat,
    GetCoreSchemaHandler,
    StrictBool,
    StrictInt,
)
from pydantic_core import CoreSchema, core_schema

from collections_app.models import Chunk, Collection, StoredProbe
from collections_app.policies import policy_for
from collections_app.services.collections.retention import effective_retention
from collections_app.services.generations.generation_states import GenerationState
from collections_app.services.generations.recall_probes import recall_warning
from collections_app.services.governance.security_policy import effective_security
from collections_app.services.uploads.folder_sync import Sync
from collections_app.services.uploads.upload_plan import PlanLine, UploadPlan
from collections_app.services.uploads.uploads import UploadOutcome
from ragd.types import ChunkPolicy


class Request(Schema):
    model_config = ConfigDict(extra="forbid")


class StoredJson:
    """Marks a field that holds JSON as it was stored: it is described by its type, and answered as it is."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        described = handler(source)
        return core_schema.any_schema(
            metadata={"pydantic_js_functions": [lambda _, describe: describe(described)]},
            serialization=core_schema.wrap_serializer_function_ser_schema(lambda value, _: value, schema=described),
        )


Value = TypeVar("Value")
Stored = Annotated[Value, StoredJson()]
IsoTime = Annotated[str, BeforeValidator(datetime.isoformat)]
Id = Annotated[str, BeforeValidator(str)]
IsoTimeOrNull = Annotated[str | None, BeforeValidator(lambda moment: moment and moment.isoformat())]
NullWhenEmpty = BeforeValidator(lambda value: value or None)
TextOrNull = Annotated[str | None, BeforeValidator(lambda value: str(value) if value else None)]


def read_from(part: str, *, own: Container[str]) -> AliasGenerator:
    """Fields are read from the attribute `part` of the object, but for those of `own`, which are read from itself."""
    return AliasGenerator(validation_alias=lambda name: name if name in own else f"{part}.{name}")


class Failure(Schema):
    """Why something failed, of an object with error_type and error."""

    type: str = Field(validation_alias="error_type")
    message: str = Field(validation_alias="error")


class ChunkPolicyRequest(Request):
    """How documents are split. What is left out is the server's default, fitted to the embedding model."""

    kind: Literal["words", "structure"] | None = None
    target_tokens: StrictInt | None = Field(None, description="words per chunk")
    overlap_tokens: StrictInt | None = Field(None, description="words that a chunk repeats of the one before")
    max_chars: StrictInt | None = None


class CollectionRequest(Request):
    name: str
    hybrid_enabled: StrictBool = Field(True, description="enable keyword (BM25) search")
    embed_model: str | None = Field(
        None, description="the server's default when left out; changed later by a new generation"
    )
    embed_dims: StrictInt | None = Field(
        None, description="needed for a model the server does not know; changed later by a new generation"
    )
    chunk_policy: ChunkPolicyRequest | None = None
    language: str | None = Field(None, description="PostgreSQL text search configuration, such as english or simple")
    description: str = ""


class RetentionRequest(Request):
    """What takes the place of the retention that was stated before; what is left out is the server's."""

    revisions: StrictInt | None = Field(None, description="earlier revisions kept of each document")
    runs_days: StrictInt | None = Field(None, description="days that stored queries are kept; 0 keeps them for ever")


class SecurityRequest(Request):
    """What takes the place of what was stated before. docs/security.md says what each action does."""

    action: Literal["flag", "redact", "refuse"] | None = Field(
        None,
        description="flag: findings are recorded; redact: secrets and personal data are hidden and chunks with prompt"
        " injection are withheld; refuse: such questions and answers are also blocked with 422",
    )
    min_score: float | None = Field(None, description="0 to 100: findings with a lower score are only recorded")


class CollectionChanges(Request):
    """What is left out stays. hybrid_enabled and language can be changed only while the collection is empty."""

    description: str | None = None
    chunk_policy: ChunkPolicyRequest | None = None
    retention: RetentionRequest | None = None
    security: SecurityRequest | None = None
    hybrid_enabled: StrictBool | None = None
    language: str | None = None


class CollectionBrief(Schema):
    name: str
    embed_model: str
    embed_dims: int
    hybrid_enabled: bool


class CollectionDetail(CollectionBrief):
    description: str
    language: str
    chunk_policy: Stored[ChunkPolicy] = Field(description="the policy that holds for new documents")
    chunk_policy_stated: dict[str, Any] = Field(description="its fields that were stated for this collection")
    retention: dict[str, int] = Field(description="earlier revisions and days of runs that are kept")
    retention_stated: dict[str, int] = Field(description="its fields that were stated for this collection")
    security: dict[str, Any] = Field(description="action (flag, redact or refuse) and min_score as they hold")
    security_stated: dict[str, Any] = Field(description="its fields that were stated for this collection")
    created_at: datetime
    updated_at: datetime

    @staticmethod
    def resolve_chunk_policy_stated(collection: Collection) -> dict[str, Any]:
        return dict(collection.chunk_policy)

    @staticmethod
    def resolve_chunk_policy(collection: Collection) -> dict[str, Any]:
        return policy_for(collection).as_dict()

    @staticmethod
    def resolve_retention_stated(collection: Collection) -> dict[str, int]:
        return dict(collection.retention)

    @staticmethod
    def resolve_retention(collection: Collection) -> dict[str, int]:
        return effective_retention(collection)

    @staticmethod
    def resolve_security_stated(collection: Collection) -> dict[str, Any]:
        return dict(collection.security)

    @staticmethod
    def resolve_security(collection: Collection) -> dict[str, Any]:
        return effective_security(collection)


class ChunkLengths(Schema):
    """counts[i] chunks have from i * step up to (i + 1) * step words."""

    counts: list[int]
    step: int
    highest: int


class GrowthWeek(Schema):
    week: date = Field(description="its Monday")
    documents: int = Field(description="that were there at its end, of those that are there now")


class Statistics(Schema):
    documents: int
    chunks: int
    tokens: int = Field(description="whitespace-separated words of all chunks")
    bytes: int = Field(description="on disk: chunks, vectors and their indexes")
    disabled_chunks: int
    vector_index: Literal["none", "building", "ready"]
    exact_threshold: int = Field(description="chunks up to which vector search is exact")
    jobs: dict[str, int] = Field(description="jobs by state")
    generation: int
    generation_hash: str
    recall: float | None = Field(description="of the vector index, as last measured; null without a measurement")
    documents_by_state: dict[str, int] = Field(description="enabled, disabled, archived")
    documents_by_type: dict[str, int] = Field(description="of the twelve most frequent media types")
    sources: int = Field(description="uploaded files that are kept")
    source_bytes: int
    revisions: int = Field(description="earlier revisions that are kept")
    overlays: int = Field(description="changes of single chunks")
    chunk_lengths: ChunkLengths | None = Field(description="null without chunks")
    growth: list[GrowthWeek] = Field(description="the last 26 weeks, oldest first")


class RecallOut(Schema):
    recall: float | None = Field(description="mean share of the exact neighbours that the index found")
    lowest: float | None = Field(description="of the worst query")
    selectivity: float = Field(description="share of the chunks that the filter lets through; 1: no filter")
    exact_ms: float | None = Field(description="median time of one exact scan")
    index_ms: float | None


class ProbeItem(Schema):
    id: int
    generation: int
    k: int
    ef_search: int
    chunk_count: int
    queries: int
    plain: RecallOut
    filtered: RecallOut
    warning: str = Field(description="what to do when a recall is under RAGD_RECALL_WARNING, else empty")
    created_by: str
    created_at: datetime

    @staticmethod
    def resolve_plain(probe: StoredProbe) -> dict[str, float | None]:
        return {
            "recall": probe.recall,
            "lowest": probe.recall_lowest,
            "selectivity": 1.0,
            "exact_ms": probe.exact_ms,
            "index_ms": probe.index_ms,
        }

    @staticmethod
    def resolve_filtered(probe: StoredProbe) -> dict[str, float | None]:
        return {
            "recall": probe.filtered_recall,
            "lowest": probe.filtered_lowest,
            "selectivity": probe.selectivity,
            "exact_ms": probe.filtered_exact_ms,
            "index_ms": probe.filtered_index_ms,
        }

    @staticmethod
    def resolve_warning(probe: StoredProbe) -> str:
        return recall_warning(probe)


class ProbePage(Schema):
    items: list[ProbeItem]
    next_cursor: str | None


class GenerationRequest(Request):
    """What is left out stays as the collection has it; with nothing stated the index is made anew as it is."""

    embed_model: str | None = None
    embed_dims: StrictInt | None = None
    chunk_policy: ChunkPolicyRequest | None = Field(None, description="replaces the stated one; {} for the default")
    language: str | None = None
    hybrid_enabled: StrictBool | None = None
    activate: Literal["automatic", "manual"] = Field(
        "automatic", description="automatic: it serves as soon as it is complete; manual: when it is activated"
    )


class GenerationItem(Schema):
    model_config = ConfigDict(
        alias_generator=read_from("generation", own=(*GenerationState.__slots__, "job_id", "job_error"))
    )

    number: int
    state: Literal["building", "ready", "serving", "retired", "failed", "cancelled", "dropped"]
    hash: str = Field(description="SHA-256 of everything below that decides chunks and vectors")
    spec_version: str
    embed_model: str
    embed_dims: int
    hybrid_enabled: bool
    language: str
    chunk_policy: Stored[ChunkPolicy] = Field(validation_alias="generation.policy")
    chunk_policy_stated: dict[str, Any] = Field(validation_alias="generation.chunk_policy")
    automatic: bool = Field(description="serves as soon as it is complete")
    documents_total: int = Field(description="when they were last counted, while it was built")
    documents_done: int
    chars_total: int
    chars_done: int
    percent: int
    chunks_per_s: float | None = Field(description="measured in the last run of its build")
    remaining_s: float | None = Field(description="at that rate, while it is built")
    chunks: int | None = Field(description="null once its table is gone")
    bytes: int | None = Field(description="on disk, with indexes")
    differences: dict[str, int] | None = Field(
        description="documents changed, added, removed and switched on or off since it was complete; else null"
    )
    job_id: UUID | None = Field(description="the job that works on it, or that failed last")
    job_error: str
    error: str
    created_by: str
    created_at: datetime
    started_at: datetime | None
    ready_at: datetime | None
    swapped_at: datetime | None
    retired_at: datetime | None
    gate_state: Literal["", "passed", "held", "overruled"] = Field(
        description="result of the quality gate; empty without a gate"
    )
    gate_report: dict[str, Any] = Field(description="what the gate compared, its verdict in words as reason")
    gate_reason: str = Field(description="reason for overriding the quality gate")
    gate_by: str
    gate_at: datetime | None

    @staticmethod
    def resolve_job_id(state: GenerationState) -> UUID | None:
        return state.job.pk if state.job else None

    @staticmethod
    def resolve_job_error(state: GenerationState) -> str:
        return state.job.error if state.job else ""


class OverruleRequest(Request):
    reason: str = Field(min_length=1, max_length=2000, description="why it is to serve nevertheless; kept")


class GenerationPage(Schema):
    items: list[GenerationItem]


class GenerationEstimate(Schema):
    documents: int
    chars: int
    chunks_now: int
    chunks: int = Field(description="about as many as the new generation will have")
    to_embed: int = Field(description="0: every vector is taken over")
    chunks_per_s: float | None = Field(description="measured just now with a few of the collection's own chunks")
    seconds: float | None = Field(description="of embedding, at that rate")
    changed: list[str] = Field(description="what differs from the generation that serves")
    hash: str
    same_hash: bool


class Deleted(Schema):
    """What was there before, and what is there now: nothing."""

    before: dict[str, int]
    after: dict[str, int]


class SegmentRequest(Request):
    text: str
    t_start: FiniteFloat | None = Field(None, description="seconds")
    t_end: FiniteFloat | None = Field(None, description="seconds")


class DocumentRequest(Request):
    content: str | list[SegmentRequest]
    title: str | None = ""
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    ingest_mode: Literal["replace", "upsert"] = Field(
        "replace",
        description="either leaves exactly the new chunks; upsert keeps the vectors of texts that did not change",
    )
    chunk_target_tokens: StrictInt | None = None
    chunk_overlap_tokens: StrictInt | None = None
    chunk_max_chars: StrictInt | None = None


class Ingested(Schema):
    chunks_written: int = Field(description="chunks that the document now consists of")
    tokens_estimated: int = Field(description="whitespace-separated words of its text")
    unchanged: bool = Field(description="the same was stored already; nothing was done")
    revision: int


class DocumentBrief(Schema):
    doc_id: str
    title: str
    tags: list[str]
    metadata: dict[str, Any]
    source: str
    media_type: str
    size_chars: int
    token_count: int
    chunk_count: int
    revision: int
    enabled: bool
    archived_at: datetime | None = Field(description="since when it is read-only and not retrieved; null: it is not")
    chunk_policy_stated: dict[str, Any] = Field(description="fields of its chunk policy that were stated for it alone")
    warnings: list[str]
    created_at: datetime
    updated_at: datetime


class DocumentDetail(DocumentBrief):
    content: str = Field(validation_alias="text", description="the normalized text; every chunk is content[start:end]")
    content_hash: str
    source_hash: str
    page_map: list[Any] = Field(description="[start, end, label] in characters of content")
    segments: list[Any] = Field(description="[start, end, t_start, t_end]; times in seconds")
    chunk_policy: Stored[ChunkPolicy]


class DocumentPage(Schema):
    items: list[DocumentBrief]
    next_cursor: str | None


class DocumentDeleted(Schema):
    documents: int
    chunks: int
    revisions: int = Field(description="earlier ones")
    overlays: int
    uploads: int


class ChunkItem(Schema):
    doc_id: str
    chunk_index: int
    content: str
    start: int = Field(validation_alias="start_char")
    end: int = Field(validation_alias="end_char")
    page: str | None
    context: str
    tags: list[str]
    metadata: dict[str, Any]
    token_count: int
    revision: int
    enabled: bool

    @staticmethod
    def resolve_page(chunk: Chunk) -> str | None:
        page: str | None = chunk.metadata.get("page")
        return page


class ChunkPage(Schema):
    items: list[ChunkItem]
    next_cursor: str | None


class JobStarted(Schema):
    job_id: UUID


class UploadError(Failure):
    pass


class UploadItem(Schema):
    """One file.

    status queued: job_id names its job; unchanged: the same bytes are there, or job_id brings them; skipped: other
    content stays; rejected: error says why.
    """

    name: str
    doc_id: str = Field(description="the one that it got")
    status: Literal["queued", "unchanged", "skipped", "rejected"]
    plan: str = Field("", description="new, changed, renamed or archive for what is queued; else the status")
    reason: str = ""
    job_id: UUID | None = None
    error: UploadError | None = None

    @staticmethod
    def resolve_job_id(outcome: UploadOutcome) -> UUID | None:
        return outcome.job.pk if outcome.job else None

    @staticmethod
    def resolve_error(outcome: UploadOutcome) -> UploadOutcome | None:
        return outcome if outcome.error else None


class UploadAnswer(Schema):
    results: list[UploadItem]
    batch_id: UUID | None = Field(None, description="what further requests of the same upload are added to")


class PlanEntry(Request):
    """A file as it is offered. Either doc_id or name is needed; size in bytes, sha256 of them in hex."""

    doc_id: str = ""
    name: str = ""
    sha256: str
    size: StrictInt = Field(ge=0)
    on_clash: Literal["", "replace", "skip", "keep_both"] = Field("", description="for this file alone")


class UploadPlanRequest(Request):
    entries: list[PlanEntry] = Field(max_length=100_000)
    on_clash: Literal["replace", "skip", "keep_both"] = "replace"
    delete_missing: StrictBool = Field(False, description="also tell what is under prefix and not named")
    prefix: str = Field("", description="a folder; empty: the whole collection")
    tags: list[str] | None = Field(None, description="when given, they must be the same for a file to be unchanged")
    metadata: dict[str, Any] | None = None


class PlanItem(Schema):
    """What becomes of one file, or of a document that is missing among them."""

    name: str
    asked: str = Field(description="the doc_id that was asked for")
    doc_id: str = Field(description="the doc_id that it gets")
    status: Literal["new", "changed", "unchanged", "skipped", "renamed", "rejected", "archive", "would_delete"]
    reason: str
    error_type: str
    size: int
    job_id: UUID | None = None
    of: str = Field("", description="the archive that it is a member of")


class PlanAnswer(Schema):
    """Nothing was written. totals: files by status."""

    items: list[PlanItem] = Field(validation_alias="lines")
    totals: dict[str, int]

    @staticmethod
    def resolve_lines(plan: UploadPlan) -> list[PlanLine]:
        return proposed_lines(plan.lines)

    @staticmethod
    def resolve_totals(plan: UploadPlan) -> dict[str, int]:
        return proposed_totals(plan.totals)


def proposed_lines(lines: Sequence[PlanLine]) -> list[PlanLine]:
    """Lines of a plan that is not carried out: nothing is deleted, it would be."""
    return [replace(line, status="would_delete") if line.status == "deleted" else line for line in lines]


def proposed_totals(totals: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in totals.items() if name != "deleted"} | {"would_delete": totals["deleted"]}


class SyncEntry(Request):
    path: str = Field(min_length=1, description="in the folder; its doc_id is prefix/path")
    sha256: str
    size: StrictInt = Field(ge=0)


class SyncRequest(Request):
    manifest: list[SyncEntry] = Field(max_length=100_000, description="every file of the folder")
    prefix: str = Field("", description="the folder of the collection that it is compared with; empty: all of it")
    delete_missing: StrictBool = Field(False, description="list what the folder does not have; nothing is deleted yet")
    on_clash: Literal["replace", "skip", "keep_both"] = "replace"
    dry_run: StrictBool = False
    label: str = ""


class SyncSend(Schema):
    path: str = Field(validation_alias="name")
    doc_id: str = Field(validation_alias="asked")


class SyncAnswer(Schema):
    """send: what to upload, with batch_id as the form field batch; then commit the batch."""

    items: list[PlanItem] = Field(validation_alias="lines")
    totals: dict[str, int]
    batch_id: UUID | None
    send: list[SyncSend] = Field(validation_alias="plan.to_send")
    would_delete: list[str] = Field(validation_alias="plan.deletions")

    @staticmethod
    def resolve_lines(sync: Sync) -> list[PlanLine]:
        return proposed_lines(sync.plan.lines)

    @staticmethod
    def resolve_totals(sync: Sync) -> dict[str, int]:
        return proposed_totals(sync.plan.totals)

    @staticmethod
    def resolve_batch_id(sync: Sync) -> UUID | None:
        return sync.batch.pk if sync.batch else None


class SyncCommit(Request):
    delete: list[str] = Field([], max_length=100_000, description="doc_ids, of those that would_delete named")


class SyncCommitted(Schema):
    deleted: list[str]
    kept: dict[str, str] = Field(description="doc_id -> why it was not deleted")


class KeyRequest(Request):
    label: str
    scope: Literal["read", "write"] = "write"
    collections: list[str] = Field([], description="names that the key is limited to; none: all")
    expires_at: AwareDatetime | None = Field(None, description="within ten years; null: never")


class KeySecret(Schema):
    secret_once: str = Field(description="shown here and never again")


class KeyItem(Schema):
    id: int
    label: str
    prefix: str
    scope: str
    collections: list[str]
    status: Literal["live", "expired", "revoked"]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class KeyPage(Schema):
    items: list[KeyItem]
    next_cursor: str | None


class ErrorDetail(Schema):
    type: str
    message: str
    field: str | None = None


class ErrorAnswer(Schema):
    """Every error, whatever its status."""

    error: ErrorDetail
    detail: str = Field(description="the message again")
