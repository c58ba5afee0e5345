"""The shapes of the HTTP surface, for validation of what comes and for the OpenAPI page of what goes.

The shapes of receipts over HTTP.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from django.utils.translation import override
from ninja import Field, Schema

from collections_app.http.schemas import (
    EDGE,
    Failure,
    Filter,
    Id,
    Instant,
    IsoTime,
    Metadata,
    NullWhenEmpty,
    Request,
    Stored,
    TextOrNull,
    accepts,
)
from collections_app.http.validation import WHOLE, Moment, StrictInt
from ragd.types import PLAN_BOUNDS, PLAN_DEFAULTS, Exact, Mode, RetrievePlan
from retrieval_app.llm.chat_model import ModelParameters
from retrieval_app.models import QueryRun
from retrieval_app.plans.forms import BY_NAME
from retrieval_app.search.query_pipeline import QUERY_CHARS_MAX


def plan_field(name: str, **more: Any) -> Any:
    """The field of a request for this setting of a plan; None leaves the value to the plan that it begins from."""

    def describe(schema: dict[str, Any]) -> None:
        with override("en"):
            schema["description"] = f"{BY_NAME[name].help} {BY_NAME[name].detail}".strip()
        if name in PLAN_BOUNDS:
            of_number = schema["anyOf"][0] if "anyOf" in schema else schema
            of_number["minimum"], of_number["maximum"] = PLAN_BOUNDS[name]

    return Field(**{"default": PLAN_DEFAULTS.get(name), "json_schema_extra": describe, **more})


class PlanFields(Request):
    """A plan, field by field. What is not stated comes from the saved plan that it begins from, else as described."""

    k: StrictInt = plan_field("k")
    mode: Mode | None = plan_field("mode", default=None)
    tags_any: list[str] | None = plan_field("tags_any")
    tags_all: list[str] | None = plan_field("tags_all")
    metadata: Metadata | None = plan_field("metadata")
    filter: Filter | None = plan_field(
        "filter",
        examples=[{"and": [{"field": "page", "op": "gte", "value": 3}, {"field": "tags", "op": "eq", "value": "a"}]}],
    )
    candidate_pool: StrictInt = plan_field("candidate_pool")
    rrf_k: StrictInt = plan_field("rrf_k")
    weights: Annotated[dict[str, float], accepts(format="weights")] | None = plan_field("weights")
    exact: Exact = plan_field("exact")
    ef_search: StrictInt | None = plan_field("ef_search")
    rerank: Annotated[str, accepts(pattern="^[!-~]+$")] | None = plan_field("rerank")
    compress: Literal["sentences", "window", "none"] | None = plan_field("compress")
    token_budget: StrictInt | None = plan_field("token_budget")
    hops: StrictInt = plan_field("hops")

    def stated(self) -> dict[str, Any]:
        """The plan's fields that the caller sent, as `plans.choose_plan` takes them."""
        return self.model_dump(include=set(PlanFields.model_fields), exclude_unset=True)


class PlanOptions(PlanFields):
    plan: str | None = Field(
        None,
        description="A saved plan to begin from; default: the collection's default plan; server: the server's defaults",
    )


class QueryOptions(PlanOptions):
    as_of: Moment | None = Field(
        None, description="Search the collection as it was at this time (ISO 8601 with a zone); docs/history.md"
    )
    explain: bool = Field(False, description="Also answer with how the ranking came about, as explanation")


class SearchRequest(QueryOptions):
    query: Annotated[str, accepts(minLength=1, maxLength=QUERY_CHARS_MAX, pattern=EDGE)]


Positive = Annotated[int, Field(ge=1), WHOLE]
Stop = Annotated[str, Field(min_length=1, max_length=200)]


class ModelFields(Request):
    """How a chat model is asked to write. Refused where quotations answer."""

    temperature: float | None = Field(None, ge=0, le=2, description="Default 0")
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: Positive | None = Field(None, description="Of the model's sampling; many servers know it, OpenAI's does not")
    max_tokens: Positive | None = Field(None, description="Longest answer; never more than RAGD_LLM_MAX_TOKENS")
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63), WHOLE] | None = Field(None, description="Default 7")
    stop: Annotated[list[Stop], Field(max_length=4)] | Stop | None = Field(
        None, description="Texts that end the answer"
    )
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)

    def parameters(self) -> ModelParameters:
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        values = self.model_dump(include={field.name for field in fields(ModelParameters)})
        return ModelParameters(**values | {"stop": tuple(stop)})


class AnswererOptions(Request):
    llm_model: str | None = Field(
        None, max_length=200, description="Another chat model than the server's, or 'extractive' for quotations"
    )
    conversation_id: str | None = Field(
        None, max_length=200, description="Your name of the conversation; its spans carry it"
    )


class AskRequest(AnswererOptions, ModelFields, SearchRequest):
    system_prompt: str | None = Field(None, description="Replaces the role of the model; the citation rules stay")
    response_format: Literal["text"] | None = Field(None, description="Sent to the chat model when stated")
    repair: bool | None = Field(None, description="Have sentences without support corrected by a second call")
    corrective: bool | None = Field(
        None,
        description="Weigh what was found, then refine, complete or refuse it; default: as the collection says. It "
        "must be calibrated",
    )


class SavedPlanOut(Schema):
    collection: str = Field(validation_alias="collection.name")
    name: str
    plan: Stored[RetrievePlan] = Field(description="Every field, also those that were not stated; hops from 2 on")
    plan_hash: str = Field(validation_alias="retrieve_plan.hash")
    description: str
    is_default: bool
    created_by: str
    created_at: IsoTime
    updated_at: IsoTime


class ListPlace(Schema):
    rank: int
    score: float


class SpanOut(Schema):
    start: int = Field(description="content == document text[start:end]")
    end: int
    content: str
    score: float = Field(description="Share of the question's terms in its best sentence, rare terms counting more")
    tokens: int


class HopLink(Schema):
    hop: int = Field(description="2 or 3")
    term: str = Field(description="The name that was looked for")
    doc_id: str = Field(description="Where it was read")
    chunk_index: int


class SearchResult(Schema):
    doc_id: str
    chunk_index: int
    content: str
    score: float = Field(description="Of the last stage, higher is better; its kind is score_kind")
    score_kind: str = Field(description="cosine, bm25, rrf or rerank")
    unit_score: float = Field(description="score brought to 0..1")
    rank: int
    ranks: dict[str, ListPlace] = Field(description="Place and raw score in every list, by its name")
    start: int = Field(description="content == document text[start:end]")
    end: int
    page: str | None
    place: str | None = Field(None, description="Where the chunk stands, such as sheet Prices, rows 2 to 40")
    title: str
    context: str = Field(description="Title and heading path: indexed with the content, not part of it")
    metadata: dict[str, Any]
    attributes: dict[str, Any] = Field(
        default_factory=dict, description="What is known of its place and origin: page, section, sheet, row, ..."
    )
    tags: list[str]
    revision: int
    spans: list[SpanOut] | None = Field(None, description="What compress kept of it; only where the plan compresses")
    link: HopLink | None = Field(None, description="How a hop found it; only of a chunk that one did")


class CompressionOut(Schema):
    tokens_before: int = Field(description="Words of the results")
    tokens_after: int = Field(description="Words of their spans")


class ShortResultOut(Schema):
    asked: int
    got: int
    reason: str
    message: str


class DegradedOut(Schema):
    step: Literal["embedder", "reranker", "model", "replica"] = Field(
        description="What did not answer, or cannot read the texts"
    )
    reason: str


class SearchResponse(Schema):
    """run_id: null when the run could not be stored."""

    results: Stored[list[SearchResult]]
    run_id: TextOrNull = Field(validation_alias="pk")
    mode: Mode = Field(validation_alias="plan_mode")
    weights: Stored[dict[str, float] | None] = Field(
        validation_alias="plan_weights",
        description="How much each list counted in the fusion; null where one list was searched",
    )
    short_result: Stored[ShortResultOut | None] = Field(description="Why fewer than k came back; null when k did")
    exact: bool | None = Field(
        validation_alias="exact_used", description="Whether every vector was compared; null without a vector list"
    )
    index_version: int
    as_of: str | None = Field(description="The time as of which the collection was searched; null: as it is")
    as_of_notes: list[str] = Field(description="What of that time is not surely as it was")
    timings_ms: Stored[dict[str, float]]
    trace_id: TextOrNull
    plan_name: TextOrNull = Field(description="The saved plan that the plan began from")
    plan_hash: str = Field(description="SHA-256 of the plan's canonical JSON")
    compression: Stored[CompressionOut | None] = Field(description="null where the plan does not compress")
    cost_usd: Stored[float | None] = Field(
        description="Of all model calls, US dollars; null where none has a price, or one is not known"
    )
    degraded: Stored[list[DegradedOut]] = Field(
        description="What did not answer and was done without; a reranker also where it cannot read the texts"
    )
    explanation: dict[str, Any] | None = Field(None, description="Only when explain was asked for")

    @staticmethod
    def resolve_explanation(run: QueryRun) -> dict[str, Any]:
        """`explained` sets it. Looking for it in the run would take 45 of 75 microseconds of every answer."""
        raise AttributeError("explanation")


class Source(Schema):
    marker: int
    doc_id: str
    chunk_index: int
    title: str
    excerpt: str = Field(description="document text[excerpt_start:excerpt_end]")
    excerpt_start: int
    excerpt_end: int
    start: int
    end: int
    page: str | None
    place: str | None = Field(None, description="Where it stands, such as page 3 or sheet Prices, row 14")
    cells: str | None = Field(None, description="Cells of a spreadsheet, such as Prices!A14:F14")
    attributes: dict[str, Any] = Field(
        default_factory=dict,
        description="What is known of the chunk's place and origin: page, section, sheet, row, ...",
    )
    score: float
    revision: int = Field(1, description="Of the document, when it was retrieved")
    cited: bool
    t_start: float | None = Field(None, description="Seconds; only where the input had them")
    t_end: float | None = None


class CitationOut(Schema):
    marker: int
    doc_id: str
    chunk_index: int
    start: int = Field(description="The cited place in characters of the document")
    end: int
    quote: str
    match: Literal["quote", "closest", "chunk"] = Field(
        description="quote: word for word; closest: the sentence of the source that shares most words; chunk: all of it"
    )
    sentence: int = Field(description="Index into sentences")
    answer_start: int = Field(description="The marker in the answer")
    answer_end: int
    page: str | None
    place: str | None = Field(None, description="Where the cited place stands, such as sheet Prices, row 14")
    cells: str | None = Field(None, description="Its cells, such as Prices!A14:F14")
    column_names: list[str] | None = Field(
        None, description="Where the quote is a row of a table, the names of its columns"
    )


class AnswerSentenceOut(Schema):
    text: str
    start: int
    end: int
    markers: list[int]
    supported: bool | None = Field(description="True: an exact quotation of a cited source; null: not judged")
    overlap: float | None = Field(description="Share of its words that occur in what it cites")


class AskResponse(SearchResponse):
    answer: str
    status: Literal["ok", "abstained"]
    sources: Stored[list[Source]]
    citations: Stored[list[CitationOut]]
    sentences: Stored[list[AnswerSentenceOut]]
    removed_citations: int
    answerer: str
    evidence: Stored[float | None] = Field(description="0 to 1: how sure the answer is; null where it is not measured")
    retrieval_confidence: Stored[float | None] = Field(
        description="0 to 1; null where the collection is not calibrated"
    )
    retrieval_action: Annotated[Literal["correct", "ambiguous", "incorrect"] | None, NullWhenEmpty]
    fallback_triggered: bool
    token_usage: dict[str, Any]
    conversation_id: TextOrNull = Field(description="As the request named it; null where it named none")


class RunError(Failure):
    pass


class RunSummary(Schema):
    run_id: Id = Field(validation_alias="pk")
    kind: Literal["search", "ask"]
    collection: str = Field(validation_alias="collection_name")
    query: str
    answer: str | None
    status: Literal["ok", "abstained", "error", "refused"]
    error: RunError | None
    mode: str | None
    plan_hash: str
    plan_name: TextOrNull
    answerer: TextOrNull
    retrieved_ids: Stored[list[str]] = Field(description="doc_id#chunk_index, in rank order")
    token_usage: dict[str, Any]
    cost_usd: float | None = Field(description="US dollars; null: not priced")
    risk_score: float | None = Field(description="0 to 100 of everything that was found; null: not looked for")
    took_ms: float
    channel: str
    environment: Literal["production", "evaluation", "playground"] = Field(
        description="production is what people and programs ask; evaluation asks golden questions"
    )
    user: str | None
    api_key: TextOrNull = Field(validation_alias="api_key_label")
    trace_id: TextOrNull
    conversation_id: TextOrNull = Field(description="The caller's name of the conversation, or the thread of the chat")
    created_at: IsoTime

    @staticmethod
    def resolve_error(run: QueryRun) -> QueryRun | None:
        return run if run.error else None

    @staticmethod
    def resolve_mode(run: QueryRun) -> str | None:
        mode: str | None = run.plan.get("mode")
        return mode

    @staticmethod
    def resolve_user(run: QueryRun) -> str | None:
        return run.user.get_username() if run.user else None


class RunFilters(Schema):
    collection: str | None = None
    kind: Literal["search", "ask"] | None = None
    status: Literal["ok", "abstained", "error", "refused"] | None = None
    environment: Literal["production", "evaluation", "playground"] | None = Field(None, description="null: all")
    since: Instant | None = Field(
        None,
        description="finished then or later. Runs that finish together are stored in any order: ask again from a minute"
        " before the last finished_at, and tell by id what you have already",
    )
    until: Instant | None = Field(None, description="finished before")
    conversation_id: str | None = Field(None, description="the caller's name, or the id of a thread of the chat")
    degraded: bool | None = Field(None, description="whether it went on without something that did not answer")
    model: str | None = Field(None, description="what wrote the answer, or embedded the question")
    min_ms: float | None = Field(None, ge=0)
    max_ms: float | None = Field(None, ge=0)
    min_cost: float | None = Field(None, ge=0, description="US dollars; a run of unknown cost is left out")
    max_cost: float | None = Field(None, ge=0)


class Run(RunSummary):
    citations: list[str] = Field(validation_alias="cited_ids", description="Ids of the documents that the answer cites")
    citation_details: Stored[list[CitationOut]] = Field(validation_alias="citations")
    trace_scores: Stored[dict[str, float | None] | None] = Field(
        description="context_relevance, context_utilization, completeness and adherence, each null where it could not "
        "be told; null until the run is scored"
    )
    retrieval_confidence: float | None
    doc_contribution_scores: Stored[dict[str, float] | None] = Field(
        description="doc_id#chunk_index: what an answer from this chunk alone is worth, 0 to 1; null until it was tried"
    )
    retrieval_action: TextOrNull
    fallback_triggered: bool
    degraded: Stored[list[DegradedOut]]
    correction: dict[str, Any] | None = Field(description="How confidence and action came about, and what was done")
    evidence: float | None
    plan: Stored[RetrievePlan]
    index_version: int
    as_of: str | None
    as_of_notes: list[str]
    embed_model: str
    spec_version: str
    results: Stored[list[SearchResult]]
    lists: Stored[dict[str, list[list[Any]]]]
    short_result: Stored[ShortResultOut | None]
    exact: bool | None = Field(validation_alias="exact_used")
    compression: Stored[CompressionOut | None]
    sources: Stored[list[Source]]
    sentences: Stored[list[AnswerSentenceOut]]
    removed_citations: int
    system_prompt: TextOrNull
    history: Stored[list[dict[str, str]]]
    replay_of: TextOrNull = Field(description="The run whose plan and question were run again")
    findings: Stored[list[dict[str, Any]]] = Field(
        description="place, key, family, rule, owasp, severity, score, action; no text"
    )
    timings_ms: Stored[dict[str, float]]


class RankDifference(Schema):
    doc_id: str
    chunk_index: int
    before: int | None = Field(description="Rank in the stored run; null: it was not there")
    now: int | None = Field(description="Rank now; null: it is not there any more")
    score_before: float | None
    score_now: float | None


class Replay(Schema):
    run_id: Id = Field(validation_alias="run.pk", description="The stored run")
    replay_run_id: TextOrNull = Field(validation_alias="again.pk", description="The run that was made now")
    query: str = Field(validation_alias="run.query")
    plan: Stored[RetrievePlan] = Field(validation_alias="run.plan")
    plan_hash: str = Field(validation_alias="again.plan_hash")
    same: bool = Field(description="Whether both results are the same, byte for byte")
    store_changed: bool | None = Field(description="Whether documents changed since; null: the run does not say")
    index_version_changed: bool
    notes: list[str] = Field(description="What may explain a difference, in words")
    differences: Stored[list[RankDifference]] = Field(
        description="What has another rank or score; by rank now, then before"
    )
    before: Stored[list[SearchResult]] = Field(validation_alias="run.results")
    now: Stored[list[SearchResult]] = Field(validation_alias="again.results")


class ReceiptKey(Schema):
    algorithm: Literal["Ed25519"]
    key_id: str = Field(description="The first 16 hex digits of the SHA-256 of the key")
    public_key: str = Field(description="32 bytes in base64")


class ReceiptSignature(ReceiptKey):
    value: str = Field(description="Over the canonical JSON of receipt: sorted keys, no spaces, UTF-8; base64")


class RetrievedOut(Schema):
    doc_id: str
    chunk_index: int
    revision: int
    rank: int
    score: float
    score_kind: str
    content_sha256: str = Field(description="Of the UTF-8 of what the chunk said")


class ReceiptCollection(Schema):
    name: str
    id: int | None


class ReceiptIndexVersion(Schema):
    number: int
    hash: str | None


class ReceiptVersions(Schema):
    specification: str
    ragd: str


class SignedRecord(Schema):
    format: Literal["ragd-receipt"]
    format_version: int
    run_id: str
    kind: Literal["search", "ask"]
    asked_at: str
    issued_at: str
    as_of: str | None
    question: str
    collection: ReceiptCollection
    index_version: ReceiptIndexVersion
    embed_model: str
    plan: Stored[RetrievePlan]
    plan_hash: str
    exact: bool | None
    repeatable: bool = Field(description="Whether the same search gives the same: nothing was hidden or corrected")
    retrieved: list[RetrievedOut]
    status: Literal["ok", "abstained"]
    answer: str | None
    answerer: str
    citations: Stored[list[CitationOut]]
    versions: ReceiptVersions


class Receipt(Schema):
    receipt: SignedRecord
    signature: ReceiptSignature
