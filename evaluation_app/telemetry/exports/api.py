"""Spans as files over HTTP."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Query
from ninja.params import functions as param

from collections_app.access.auth import BearerAuth, Router, request_key
from collections_app.access.permissions import Permission
from collections_app.http.fields import accepts, text_as
from collections_app.http.paging import LIMIT_MAX
from evaluation_app.telemetry.exports.downloads import (
    FORMATS,
    JSON,
    JSON_LINES,
    STORED,
    choose_capture,
    export_matching,
    stream,
)
from evaluation_app.telemetry.search.api import SpanFilters
from evaluation_app.telemetry.search.search import parse_filter

OWN = ("format", "content", "limit")
Format = Annotated[str, accepts(enum=list(FORMATS))]
Content = Annotated[str, accepts(enum=[STORED])]
FORMAT = param.Query("otlp", description=f"one of {', '.join(FORMATS)}")
CONTENT = param.Query(
    None,
    description=f"{STORED}: texts as they are stored, for keys with write scope; left out: as RAGD_OTLP_CONTENT says",
)
LIMIT = param.Query(None, description="at most so many spans, the newest")
FILE = {"responses": {200: {"content": {JSON: {"schema": {"type": "object"}}, **text_as(JSON_LINES)["content"]}}}}

router = Router(auth=BearerAuth(changes=Permission.READ), tags=["telemetry"])


@router.get("/spans/export", operation_id="spans-export", response={200: None}, openapi_extra=FILE)
def export_spans(
    request: HttpRequest,
    filters: Query[SpanFilters],
    format: Format = FORMAT,
    content: Content | None = CONTENT,
    limit: Annotated[int, Field(ge=1), accepts(maximum=LIMIT_MAX)] | None = LIMIT,
) -> StreamingHttpResponse:
    """Spans as OTLP JSON, OpenInference JSON Lines or OCSF events.

    A stream, newest first, with the filters of GET /v1/spans. Texts are replaced as RAGD_OTLP_CONTENT says.

    A JSON document that broke off lacks its end. 422 for an unknown filter, 429 when three downloads run already.
    """
    key = request_key(request)
    capture = choose_capture(content, may_read_stored=Permission.WRITE in key.scopes)
    span_filter = parse_filter(request.GET, also=OWN).only_of(key.visible)
    export = export_matching(span_filter, format, capture, limit=limit)
    return stream(request, export, "a selection of spans", content=content)
