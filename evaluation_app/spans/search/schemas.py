"""What the API says of spans, and the filters that it takes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from ninja import Schema
from pydantic import Field

from collections_app.api.fields import Moment, accepts
from collections_app.api.schemas import IsoTime
from evaluation_app.spans.store.columns import OI_KINDS, OTEL_KINDS
from evaluation_app.spans.store.span_reads import SpanRecord
from ragd import telemetry

Milliseconds = Annotated[str, accepts(pattern=r"^([0-9]{1,9}(\.[0-9]{1,3})?)?$")]


class SpanList(Schema):
    spans: list[SpanRecord]


class FoundSpan(SpanRecord):
    """A span with what it is searched by. Empty texts and nulls: it has none."""

    duration_ms: float
    type: str = Field(description="of the span tables (aitf.rag.retrieve, gen_ai.inference, ...) or an own name")
    service: str
    collection: str
    run_id: UUID | None
    model: str
    api_key: str = Field(description="label of the key that asked")
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    risk_score: float | None
    environment: str = Field(description="production, evaluation, playground or interface")


class SpanPageAnswer(Schema):
    items: list[FoundSpan] = Field(validation_alias="spans")
    next_cursor: str | None
    searched_until: datetime | None = Field(
        description="null: the page is whole; else the search ran out of time here, and next_cursor looks on from here"
    )


class TraceAnswer(Schema):
    """spans: by start, those that the key may see."""

    trace_id: str
    start: IsoTime
    duration_ms: float
    spans: list[FoundSpan]


class SpanFilters(Schema):
    """The filters of GET /v1/spans, for its description: `parse_filter` reads them."""

    type: list[str] = Field([], description="aitf.rag.retrieve, chat, rag.lexical, ...; may be given many times")
    kind: list[Annotated[str, accepts(enum=[*OI_KINDS, *OTEL_KINDS])]] = Field(
        [], description="of OpenInference (RETRIEVER, LLM, ...) or OpenTelemetry (CLIENT, ...)"
    )
    collection: list[str] = Field([])
    model: list[str] = Field([])
    api_key: list[str] = Field([], description="label of the key that asked")
    status: list[Annotated[str, accepts(enum=["ok", "error", "unset"])]] = Field([], description="ok, error or unset")
    service: list[str] = Field([], description="ragd-web, ragd-worker, ragd-cli")
    environment: list[Annotated[str, accepts(enum=[*telemetry.ENVIRONMENTS, "all"])]] = Field(
        [], description="production, evaluation, playground, interface or all"
    )
    name: str = Field("", description="what the name begins with")
    min_ms: Milliseconds = Field("", description="shortest duration, milliseconds")
    max_ms: Milliseconds = Field("", description="longest duration, milliseconds")
    since: Moment = Field("", description="ISO 8601 or an age such as 30m, 24h, 7d; included")
    until: Moment = Field("", description="the same; not included")
    text: str = Field("", description="words that all occur in name, question, answer or error; wor* is a beginning")
    attr: list[str] = Field(
        [],
        description="name:operator:value with eq, ne, gt, ge, lt, le, contains, starts; or name:exists, name:missing",
    )
    where: Annotated[str, accepts(format="span-filter")] = Field(
        "", description="an expression: kind == 'RETRIEVER' and latency_ms > 500"
    )
    trace_id: str = Field("")
    run_id: str = Field("")
