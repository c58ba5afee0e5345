"""The shapes of requests and answers. An unknown field of a request is an error, never ignored."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import date, datetime
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar
from uuid import UUID

from ninja import Field, Schema
from ninja.params import functions as param
from pydantic import AliasGenerator, BeforeValidator, ConfigDict, FiniteFloat, GetCoreSchemaHandler, StrictBool
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import CoreSchema, core_schema

from collections_app.chunks.finding_scan import SCORE_MAX, effective_security
from collections_app.chunks.policies import MAX_CHARS_LIMIT, TOKENS_LIMIT, policy_for
from collections_app.collections.retention import effective_retention
from collections_app.collections.retention_periods import DAYS_MAX, REVISIONS_MAX
from collections_app.collections.services import Histogram
from collections_app.http.paging import LIMIT_MAX
from collections_app.http.validation import StrictInt
from collections_app.models import Chunk, Collection
from ragd.identity import DOC_ID_MAX_CHARS, LABEL_MAX_CHARS, NAME_MAX_CHARS, TAG_MAX_CHARS, TAGS_MAX
from ragd.types import ChunkPolicy, Placement, Segment

UNSEEN = r"\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"
SPACE = r"\u0009-\u000d\u0020\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
EDGE = rf"[^{UNSEEN}{SPACE}]"
VISIBLE = rf"[^{UNSEEN}{SPACE}\u00ad\u200b-\u200d\u2060-\u2064]"
IN_NAME = rf"{UNSEEN}/\\?#%"
DOC_ID_PATTERN = rf"^(?!\.\.?(?:/|$))(?!.*/\.\.?(?:/|$))[^{UNSEEN}{SPACE}]([^{UNSEEN}]*[^{UNSEEN}{SPACE}])?$"
MOMENT = (
    r"^$|^[1-9][0-9]{0,3}[mhd]$|^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$"
)


def accepts(**schema: Any) -> Any:
    """State keywords of JSON Schema for a type, without checking them."""
    return Field(json_schema_extra=schema)


def between(minimum: float, maximum: float) -> Any:
    """State the bounds of a number, both included."""
    return accepts(minimum=minimum, maximum=maximum)


def either(first: str, second: str) -> ConfigDict:
    """Describe a request that has one of the two fields, and not both."""
    null, stated = {"type": "null"}, {"not": {"type": "null"}}
    choices: list[Any] = [
        {"required": [one], "properties": {one: stated, other: null}}
        for one, other in ((first, second), (second, first))
    ]
    return ConfigDict(json_schema_extra={"oneOf": choices})


def text_as(*media_types: str) -> dict[str, Any]:
    """The content of a request or answer that is text of one of these types."""
    return {"content": {each: {"schema": {"type": "string"}} for each in media_types}}


def also_as(*media_types: str) -> dict[str, Any]:
    """`openapi_extra` of an operation that answers 200 as one of these texts too."""
    return {"responses": {200: text_as(*media_types)}}


Limit = Annotated[int, between(1, LIMIT_MAX)]
Cursor = Annotated[str, accepts(format="cursor")]
NEXT_CURSOR = param.Query(None, description="next_cursor of the page before")
Omitted = SkipJsonSchema[None]  # a form leaves a field out and never sends null

Name = Annotated[
    str,
    accepts(
        minLength=1, maxLength=NAME_MAX_CHARS, pattern=rf"^[^.{SPACE}{IN_NAME}]([^{IN_NAME}]*[^{SPACE}{IN_NAME}])?$"
    ),
]
DocId = Annotated[str, accepts(minLength=1, maxLength=DOC_ID_MAX_CHARS, pattern=DOC_ID_PATTERN)]
ChunkKey = Annotated[
    str,
    accepts(
        maxLength=DOC_ID_MAX_CHARS + len("#999999"),
        pattern=DOC_ID_PATTERN.replace("|$", "|#").removesuffix("$") + "#[0-9]{1,6}$",
    ),
]
Label = Annotated[str, accepts(minLength=1, maxLength=LABEL_MAX_CHARS, pattern=EDGE)]
Text = Annotated[str, accepts(minLength=1, pattern=VISIBLE)]
TextOrEmpty = Annotated[str, accepts(pattern=rf"^$|{VISIBLE}")]
Printable = Annotated[str, accepts(pattern=f"^[^{UNSEEN}]*$")]
Sha256 = Annotated[str, accepts(pattern="^[0-9a-f]{64}$")]
Moment = Annotated[str, accepts(pattern=MOMENT)]
Instant = Annotated[datetime, accepts(pattern=MOMENT)]
Tag = Annotated[str, accepts(maxLength=TAG_MAX_CHARS)]
Tags = Annotated[list[Tag], accepts(maxItems=TAGS_MAX)]
Metadata = Annotated[dict[str, Any], accepts(format="json")]
Filter = Annotated[dict[str, Any], accepts(format="filter")]
FilterText = Annotated[str, accepts(format="filter")]
LanguageCode = Annotated[str, accepts(pattern="^([a-z]{2})?$")]
SearchLanguage = Annotated[str, accepts(format="language")]
NAMES = {"type": "array", "items": {"type": "string"}}
Access = Annotated[
    dict[str, Any],
    accepts(
        properties={"users": NAMES, "groups": NAMES, "restricted": {"type": "boolean"}}, additionalProperties=False
    ),
]
TOKENS, OVERLAP, CHARS = between(1, TOKENS_LIMIT), accepts(minimum=0), between(1, MAX_CHARS_LIMIT)
DIMENSIONS = between(1, 2000)
TargetTokens = Annotated[StrictInt, TOKENS]
OverlapTokens = Annotated[StrictInt, OVERLAP]
MaxChars = Annotated[StrictInt, CHARS]
Days = Annotated[StrictInt, between(0, DAYS_MAX)]
EmbedModel = Annotated[str, accepts(minLength=1, maxLength=200, pattern=rf"^[^{UNSEEN}{SPACE}]+$")]
EmbedDims = Annotated[StrictInt, DIMENSIONS]


Item = TypeVar("Item")


class ListOf(Schema, Generic[Item]):
    items: list[Item]


class PageOf(ListOf[Item], Generic[Item]):
    """A piece of a list. next_cursor: of the piece behind it; null at the end."""

    next_cursor: str | None


class RowsDeleted(Schema):
    """How many were deleted."""

    deleted: int


class Request(Schema):
    """What a client sends as JSON. Nothing is made of a value of another type: true is no number, "3" is none."""

    model_config = ConfigDict(extra="forbid", strict=True)


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


OpenRole = Literal["", "viewer", "asker", "curator", "evaluator", "administrator"]
TITLE = "its display name; '' for its name"
STARTERS = "questions to begin with"
OPEN_ROLE = "the role that everybody who is logged in has in it; empty: it is private to those who have a role"


class ChunkPolicyRequest(Request):
    """How documents are split. What is left out is the server's default, fitted to the embedding model."""

    kind: Literal["words", "structure"] | None = None
    target_tokens: TargetTokens | None = Field(None, description="words per chunk")
    overlap_tokens: OverlapTokens | None = Field(None, description="words that a chunk repeats of the one before")
    max_chars: MaxChars | None = None


class CollectionRequest(Request):
    name: Name
    placement: Placement | None = Field(
        None,
        description="where the chunks are: local, in this database; on a Citus cluster node, on one node (the default "
        "there), or spread, over all nodes",
    )
    hybrid_enabled: StrictBool = Field(True, description="enable keyword (BM25) search")
    embed_model: EmbedModel | None = Field(
        None, description="the server's default when left out; changed later by a new index version"
    )
    embed_dims: EmbedDims | None = Field(
        None, description="needed for a model the server does not know; changed later by a new index version"
    )
    chunk_policy: ChunkPolicyRequest | None = None
    language: SearchLanguage | None = Field(
        None,
        description="auto, which is the default: keyword search by each document's language; or a PostgreSQL text "
        "search configuration for all of them, such as english or simple",
    )
    title: str = Field("", description=TITLE)
    description: str = ""
    starters: list[str] = Field([], description=STARTERS)
    open_role: OpenRole = Field("", description=OPEN_ROLE)


class RetentionRequest(Request):
    """What takes the place of the retention that was stated before; what is left out is the server's."""

    revisions: Annotated[StrictInt, between(0, REVISIONS_MAX)] | None = Field(
        None, description="earlier revisions kept of each document"
    )
    runs_days: Days | None = Field(None, description="days that stored queries are kept; 0 keeps them for ever")
    deleted_days: Days | None = Field(
        None, description="days that the content of deleted documents is kept, so that as_of finds it; 0 keeps none"
    )


class SecurityRequest(Request):
    """What takes the place of what was stated before. docs/security.md says what each action does."""

    action: Literal["flag", "redact", "refuse"] | None = Field(
        None,
        description="flag: findings are recorded; redact: secrets and personal data are hidden and chunks with prompt"
        " injection are withheld; refuse: such questions and answers are also blocked with 422",
    )
    min_score: Annotated[float, between(0, SCORE_MAX)] | None = Field(
        None, description="0 to 100: findings with a lower score are only recorded"
    )
    allow_overrides: StrictBool | None = Field(
        None,
        description="true: who asks may name any llm_model and replace system_prompt; else that needs the permission"
        " write, but for models that are set up",
    )


class CollectionChanges(Request):
    """What is left out stays. hybrid_enabled and language can be changed only while the collection is empty."""

    title: str | None = Field(None, description=TITLE)
    description: str | None = None
    starters: list[str] | None = Field(None, description=STARTERS)
    chunk_policy: ChunkPolicyRequest | None = None
    retention: RetentionRequest | None = None
    security: SecurityRequest | None = None
    hybrid_enabled: StrictBool | None = None
    language: SearchLanguage | None = None
    access_from: str | None = Field(
        None, description="the metadata key that names the groups and users that may read a document; '' for none"
    )
    open_role: OpenRole | None = Field(None, description=f"{OPEN_ROLE}; needs the permission administer")


class CollectionBrief(Schema):
    name: str
    embed_model: str
    embed_dims: int
    hybrid_enabled: bool


class CollectionDetail(CollectionBrief):
    title: str = Field(description=TITLE)
    description: str
    starters: list[str] = Field(description=STARTERS)
    language: str
    chunk_policy: Stored[ChunkPolicy] = Field(description="the policy that holds for new documents")
    chunk_policy_stated: dict[str, Any] = Field(description="its fields that were stated for this collection")
    retention: dict[str, int] = Field(description="earlier revisions and days of runs that are kept")
    retention_stated: dict[str, int] = Field(description="its fields that were stated for this collection")
    security: dict[str, Any] = Field(description="action, min_score and allow_overrides as they hold")
    security_stated: dict[str, Any] = Field(description="its fields that were stated for this collection")
    access_from: str = Field(description="the metadata key that names who may read a document; '' for none")
    open_role: str = Field(description=OPEN_ROLE)
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

    resolve_retention: ClassVar = staticmethod(effective_retention)
    resolve_security: ClassVar = staticmethod(effective_security)

    @staticmethod
    def resolve_security_stated(collection: Collection) -> dict[str, Any]:
        return dict(collection.security)


class GrowthWeek(Schema):
    week: date = Field(description="its Monday")
    documents: int = Field(description="that were there at its end, of those that are there now")


class Statistics(Schema):
    documents: int
    chunks: int
    tokens: int = Field(description="whitespace-separated words of all chunks")
    bytes: int | None = Field(
        description="on disk: chunks, vectors and their indexes; null for who may not administer the collection"
    )
    disabled_chunks: int
    vector_index: Literal["none", "building", "ready"]
    exact_threshold: int = Field(description="chunks up to which vector search is exact")
    jobs: dict[str, int] = Field(description="jobs by state")
    index_version: int
    index_version_hash: str
    recall: float | None = Field(description="of the vector index, as last measured; null without a measurement")
    documents_by_state: dict[str, int] = Field(description="enabled, disabled, archived")
    documents_by_type: dict[str, int] = Field(description="of the twelve most frequent media types")
    sources: int = Field(description="uploaded files that are kept")
    source_bytes: int
    revisions: int = Field(description="earlier revisions that are kept")
    overlays: int = Field(description="changes of single chunks")
    chunk_lengths: Histogram | None = Field(description="null without chunks")
    growth: list[GrowthWeek] = Field(description="the last 26 weeks, oldest first")


class Deleted(Schema):
    """What was there before, and what is there now: nothing."""

    before: dict[str, int]
    after: dict[str, int]


class SegmentRequest(Request):
    text: str
    t_start: FiniteFloat | None = Field(None, description="seconds")
    t_end: FiniteFloat | None = Field(None, description="seconds")


def read_content(content: str | Sequence[SegmentRequest] | None) -> str | list[Segment]:
    """A request's text, or its segments as the services take them; [] for None."""
    if isinstance(content, str):
        return content
    return [Segment(segment.text, segment.t_start, segment.t_end) for segment in content or ()]


class DocumentRequest(Request):
    content: Text | list[SegmentRequest]
    title: str | None = ""
    tags: Tags = []
    metadata: Metadata = {}
    ingest_mode: Literal["replace", "upsert"] = Field(
        "replace",
        description="either leaves exactly the new chunks; upsert keeps the vectors of texts that did not change",
    )
    language: LanguageCode | None = Field(
        None, description="ISO 639-1 code of the text, such as de; '' to have it found; null: as it was said before"
    )
    access: Access | None = Field(
        None,
        description='who may read it: {"users": [...], "groups": [...]} by name, beside the administrators;'
        ' {"restricted": false} for everybody who may read the collection; null: as it is',
    )
    chunk_target_tokens: TargetTokens | None = None
    chunk_overlap_tokens: OverlapTokens | None = None
    chunk_max_chars: MaxChars | None = None


class Ingested(Schema):
    chunks_written: int = Field(description="chunks that the document now consists of")
    tokens_estimated: int = Field(description="whitespace-separated words of its text")
    unchanged: bool = Field(description="the same was stored already; nothing was done")
    revision: int


class DocumentBrief(Schema):
    doc_id: str
    title: str
    tags: list[str]
    metadata: dict[str, Any] = Field(description="the caller's; what filters of a search read")
    file_metadata: dict[str, Any] = Field(description="what the file says of itself; never filtered by")
    language: str = Field(description="ISO 639-1 code of its text, stated or found; '' unknown")
    language_stated: str = Field(description="what somebody said it is; '' nobody did")
    source: str
    media_type: str
    size_chars: int
    token_count: int
    chunk_count: int
    revision: int
    enabled: bool
    state: Literal["enabled", "disabled", "archived"] = Field(
        description="disabled: kept, not retrieved; archived: read-only too"
    )
    restricted: bool = Field(description="only some of those who may read the collection may read it")
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
    attributes: dict[str, Any] = Field(description="its place and origin: page, section, sheet, row, ...")
    token_count: int
    revision: int
    enabled: bool

    @staticmethod
    def resolve_page(chunk: Chunk) -> str | None:
        page: str | None = chunk.attributes.get("page_label")
        return page


class JobStarted(Schema):
    job_id: UUID


class ErrorDetail(Schema):
    type: str
    message: str
    field: str | None = None


class ErrorAnswer(Schema):
    """Every error, whatever its status."""

    error: ErrorDetail
    detail: str = Field(description="the message again")
    run_id: str | None = Field(None, description="the stored run of a search or answer that failed; absent elsewhere")
