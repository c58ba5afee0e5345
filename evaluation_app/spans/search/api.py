"""Stored spans over HTTP: a search by filter, and whole traces."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router
from ninja.params import functions as param

from collections_app.api.access import ERRORS
from collections_app.api.fields import NEXT_CURSOR, Cursor, Limit
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.http.auth import BearerAuth, check_collection_scope, request_key
from evaluation_app.spans.search.schemas import SpanFilters, SpanPageAnswer, TraceAnswer
from evaluation_app.spans.search.search import DEFAULT_LIMIT, SlowSearch, parse_filter, search_spans
from evaluation_app.spans.store.span_reads import trace_spans

TOO_SLOW = "this search took too long and was given up; state since and until, a type or a collection, and ask again"
OWN = ("limit", "cursor", "content")

router = Router(auth=BearerAuth(changes=Permission.READ), tags=["telemetry"])


@router.get(
    "/spans",
    response={200: SpanPageAnswer, **ERRORS},
    operation_id="spans-list",
    summary="Spans that match a filter, newest first",
)
def list_spans(
    request: HttpRequest,
    filters: Query[SpanFilters],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
    content: bool = param.Query(True, description="false: without attributes, events and links"),
) -> Any:
    """Filters narrow; values of one filter are alternatives. An unknown filter, type, kind or attribute is a 422 that
    lists the known ones. A key that is limited to collections sees their spans only. See docs/span-store.md."""
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


@router.get(
    "/traces/{trace_id}",
    response={200: TraceAnswer, **ERRORS},
    operation_id="traces-get",
    summary="A whole trace: its spans, by start",
)
def get_trace(request: HttpRequest, trace_id: str) -> dict[str, Any]:
    """Spans are written in batches: a trace that is under way or has just ended may be without some for a second."""
    spans = trace_spans(trace_id.replace("\x00", "").lower(), request_key(request).visible)
    if not spans:
        raise ServiceError(
            f"no span of the trace {trace_id!r} is stored that this key may see; GET /v1/spans lists spans",
            type="unknown_trace",
            status=404,
        )
    first = min(span.started_at for span in spans)
    return {
        "trace_id": spans[0].trace_id,
        "start": first,
        "duration_ms": max((span.ended_at - first).total_seconds() for span in spans) * 1000,
        "spans": spans,
    }
