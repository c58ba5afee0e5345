"""The shapes of the HTTP surface, for validation of what comes and for the OpenAPI page of what goes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from ninja import Field, Schema
from pydantic import ConfigDict

from ragd.types import CANDIDATE_POOL, FINAL_K, RRF_K, Exact, Mode

Tags = Annotated[list[str] | None, Field(description="Exact tags; an empty list is no restriction")]


class SearchRequest(Schema):
    model_config = ConfigDict(extra="forbid")

    query: str
    k: int = Field(FINAL_K, description="How many results")
    mode: Mode | None = Field(
        None, description="Default: hybrid where the collection keeps a lexical index, else vector"
    )
    tags_any: Tags = None
    tags_all: Tags = None
    metadata: dict[str, Any] | None = Field(None, description="Equality on top-level keys")
    candidate_pool: int = Field(CANDIDATE_POOL, description="Rows per ranked list; at least k is used")
    rrf_k: int = Field(RRF_K, description="The constant of reciprocal rank fusion")
    exact: Exact = Field("auto", description="always: compare every vector; never: use the index when there is one")


class AskRequest(SearchRequest):
    llm_model: str | None = Field(
        None, description="Another chat model than the server's, or 'extractive' for quotations"
    )
    system_prompt: str | None = Field(None, description="Replaces the role of the model; the citation rules stay")


class ListPlace(Schema):
    rank: int
    score: float


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
    title: str
    context: str = Field(description="Title and heading path: indexed with the content, not part of it")
    metadata: dict[str, Any]
    tags: list[str]
    revision: int


class ShortResultOut(Schema):
    asked: int
    got: int
    reason: str
    message: str


class SearchResponse(Schema):
    results: list[SearchResult]
    run_id: str | None
    mode: Mode
    short_result: ShortResultOut | None = Field(description="Why fewer than k came back; null when k did")
    exact: bool | None = Field(description="Whether every vector was compared; null without a vector list")
    generation: int
    timings_ms: dict[str, float]
    trace_id: str | None


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
    score: float
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
    sources: list[Source]
    citations: list[CitationOut]
    sentences: list[AnswerSentenceOut]
    removed_citations: int
    answerer: str
    evidence: float | None
    token_usage: dict[str, Any]


class RunError(Schema):
    type: str
    message: str


class RunSummary(Schema):
    run_id: str
    kind: Literal["search", "ask"]
    collection: str
    query: str
    answer: str | None
    status: Literal["ok", "abstained", "error"]
    error: RunError | None
    mode: str | None
    plan_hash: str
    answerer: str | None
    retrieved_ids: list[str] = Field(description="doc_id#chunk_index, in rank order")
    token_usage: dict[str, Any]
    took_ms: float
    door: str
    user: str | None
    api_key: str | None
    trace_id: str | None
    created_at: str


class RunList(Schema):
    items: list[RunSummary]
    next_cursor: str | None


class Run(RunSummary):
    citations: list[str] = Field(description="Ids of the documents that the answer cites")
    citation_details: list[CitationOut]
    trace_scores: dict[str, float] | None = Field(description="null until the run is scored")
    retrieval_confidence: float | None
    doc_contribution_scores: dict[str, float] | None
    retrieval_action: str | None
    fallback_triggered: bool
    plan: dict[str, Any]
    generation: int
    embed_model: str
    spec_version: str
    results: list[SearchResult]
    lists: dict[str, list[list[Any]]]
    short_result: ShortResultOut | None
    exact: bool | None
    sources: list[Source]
    sentences: list[AnswerSentenceOut]
    removed_citations: int
    system_prompt: str | None
    timings_ms: dict[str, float]
