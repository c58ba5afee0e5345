"""Stored spans over HTTP: a search by filter, files of what it finds, whole traces and the spans of a run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Query, Schema
from ninja.params import functions as param
from pydantic import Field

from collections_app.access.auth import BearerAuth, Router, check_collection_scope, request_key
from collections_app.access.permissions import Permission
from collections_app.errors import ServiceError, UnknownError
from collections_app.http.paging import LIMIT_MAX
from collections_app.http.schemas import NEXT_CURSOR, Cursor, IsoTime, Limit, Moment, accepts, text_as
from evaluation_app.telemetry.exports.downloads import (
    FORMATS,
    JSON,
    JSON_LINES,
    STORED,
    choose_capture,
    export_matching,
    stream,
)
from evaluation_app.telemetry.search.search import DEFAULT_LIMIT, SlowSearch, parse_filter, search_spans
from evaluation_app.telemetry.store.exporter import OI_KINDS, OTEL_KINDS
from evaluation_app.telemetry.store.span_store import SpanRecord, flush_pending, run_spans, trace_spans
from ragd import telemetry
from retrieval_app.search.api import find_run

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
    where: Annotated[str, accepts(format="span-filter")] = Field(
        "", description="an expression: kind == 'RETRIEVER' and latency_ms > 500"
    )
    trace_id: str = Field("")
    run_id: str = Field("")


TOO_SLOW = "this search took too long and was given up; state since and until, a type or a collection, and ask again"
OWN = ("limit", "cursor", "content")

router = Router(auth=BearerAuth(changes=Permission.READ), tags=["telemetry"])


FILE_OWN = ("format", "content", "limit")
Format = Annotated[str, accepts(enum=list(FORMATS))]
Content = Annotated[str, accepts(enum=[STORED])]
FORMAT = param.Query("otlp", description=f"one of {', '.join(FORMATS)}")
CONTENT = param.Query(
    None,
    description=f"{STORED}: texts as they are stored, for keys with write scope; left out: as RAGD_OTLP_CONTENT says",
)
FILE_LIMIT = param.Query(None, description="at most so many spans, the newest")
FILE = {"responses": {200: {"content": {JSON: {"schema": {"type": "object"}}, **text_as(JSON_LINES)["content"]}}}}


@router.get("/spans/export", operation_id="spans-export", response={200: None}, openapi_extra=FILE)
def export_spans(
    request: HttpRequest,
    filters: Query[SpanFilters],
    format: Format = FORMAT,
    content: Content | None = CONTENT,
    limit: Annotated[int, Field(ge=1), accepts(maximum=LIMIT_MAX)] | None = FILE_LIMIT,
) -> StreamingHttpResponse:
    """Spans as OTLP JSON, OpenInference JSON Lines or OCSF events.

    A stream, newest first, with the filters of GET /v1/spans. Texts are replaced as RAGD_OTLP_CONTENT says.

    A JSON document that broke off lacks its end. 422 for an unknown filter, 429 when three downloads run already.
    """
    key = request_key(request)
    capture = choose_capture(content, may_read_stored=Permission.WRITE in key.scopes)
    span_filter = parse_filter(request.GET, also=FILE_OWN).only_of(key.visible)
    export = export_matching(span_filter, format, capture, limit=limit)
    return stream(request, export, "a selection of spans", content=content)


@router.get("/spans", response=SpanPageAnswer, operation_id="spans-list")
def list_spans(
    request: HttpRequest,
    filters: Query[SpanFilters],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
    content: bool = param.Query(True, description="false: without attributes, events and links"),
) -> Any:
    """Spans that match a filter, newest first.

    Filters narrow; values of one filter are alternatives. An unknown filter, type, kind or attribute is a 422 that
    lists the known ones. A key that is limited to collections sees their spans only. See docs/traces.md.
    """
    key = request_key(request)
    span_filter = parse_filter(request.GET, also=OWN)
    for name in span_filter.collections:
        check_collection_scope(key, name)
    try:
        page = search_spans(span_filter.only_of(key.visible), cursor, limit, with_content=content)
    except SlowSearch:
        raise ServiceError(TOO_SLOW, type="search_too_slow", status=503) from None
    for span in () if content else page.spans:
        span.attributes, span.events, span.links = {}, [], []
    return page


@router.get("/traces/{trace_id}", response=TraceAnswer, operation_id="traces-get")
def get_trace(request: HttpRequest, trace_id: str) -> dict[str, Any]:
    """A whole trace: its spans, by start.

    Spans are written in batches: a trace that is under way or has just ended may be without some for a second.
    """
    spans = trace_spans(trace_id.replace("\x00", "").lower(), request_key(request).visible)
    if not spans:
        raise UnknownError(
            "trace", f"no span of the trace {trace_id!r} is stored that this key may see; GET /v1/spans lists spans"
        )
    first = min(span.started_at for span in spans)
    return {
        "trace_id": spans[0].trace_id,
        "start": first,
        "duration_ms": max((span.ended_at - first).total_seconds() for span in spans) * 1000,
        "spans": spans,
    }


@router.get("/runs/{run_id}/spans", response=SpanList, operation_id="runs-spans")
def list_run_spans(request: HttpRequest, run_id: UUID) -> dict[str, Any]:
    """The spans of a run, by start.

    Those of its later evaluations, traces of their own, follow. Spans are written in batches: a run that has just
    ended may be without them for a second.
    """
    run = find_run(request, run_id)
    flush_pending(run)
    return {"spans": run_spans(run)}
