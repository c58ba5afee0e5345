"""Spans as files over HTTP."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Query, Router
from ninja.params import functions as param

from collections_app.api.access import ERRORS
from collections_app.api.fields import accepts
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.http.auth import BearerAuth, request_key
from collections_app.http.paging import LIMIT_MAX
from evaluation_app.spans.exports.downloads import (
    STORED,
    choose_capture,
    export_matching,
    export_run,
    stream,
)
from evaluation_app.spans.exports.formats import FORMATS, JSON, JSON_LINES
from evaluation_app.spans.search.schemas import SpanFilters
from evaluation_app.spans.search.search import parse_filter
from evaluation_app.spans.store.span_reads import flush_pending
from retrieval_app.models import QueryRun

OWN = ("format", "content", "limit")
Format = Annotated[str, accepts(enum=list(FORMATS))]
Content = Annotated[str, accepts(enum=[STORED])]
FORMAT = param.Query("otlp", description=f"one of {', '.join(FORMATS)}")
CONTENT = param.Query(
    None,
    description=f"{STORED}: texts as they are stored, for keys with write scope; left out: as RAGD_OTLP_CONTENT says",
)
LIMIT = param.Query(None, description="at most so many spans, the newest")
FILE = {
    "responses": {
        200: {
            "content": {
                JSON: {"schema": {"type": "object"}},
                JSON_LINES: {"schema": {"type": "string"}},
            }
        }
    }
}

router = Router(auth=BearerAuth(changes=Permission.READ), tags=["telemetry"])


@router.get(
    "/spans/export",
    operation_id="spans-export",
    summary="Spans as OTLP JSON, OpenInference JSON Lines or OCSF events",
    response={200: None, **ERRORS},
    openapi_extra=FILE,
)
def export_spans(
    request: HttpRequest,
    filters: Query[SpanFilters],
    format: Format = FORMAT,
    content: Content | None = CONTENT,
    limit: Annotated[int, Field(ge=1), accepts(maximum=LIMIT_MAX)] | None = LIMIT,
) -> StreamingHttpResponse:
    """A stream, newest first, with the filters of GET /v1/spans. Texts are replaced as RAGD_OTLP_CONTENT says.

    A JSON document that broke off lacks its end. 422 for an unknown filter, 429 when three downloads run already.
    """
    key = request_key(request)
    capture = choose_capture(content, may_read_stored=Permission.WRITE in key.scopes)
    span_filter = parse_filter(request.GET, also=OWN).only_of(key.visible)
    export = export_matching(span_filter, format, capture, limit=limit)
    return stream(request, export, "a selection of spans", content=content)


@router.get(
    "/runs/{run_id}/spans/export",
    operation_id="runs-spans-export",
    summary="The spans of a run as OTLP JSON, OpenInference JSON Lines or OCSF events",
    response={200: None, **ERRORS},
    openapi_extra=FILE,
)
def export_run_spans(
    request: HttpRequest, run_id: UUID, format: Format = FORMAT, content: Content | None = CONTENT
) -> StreamingHttpResponse:
    """By start. Texts are replaced as RAGD_OTLP_CONTENT says, unless content=stored."""
    key = request_key(request)
    run = QueryRun.objects.visible_to(key.visible).filter(pk=run_id).first()
    if run is None:
        raise ServiceError(
            f"there is no run {run_id} that this key may see; GET /v1/runs lists the runs that there are",
            type="unknown_run",
            status=404,
        )
    capture = choose_capture(content, may_read_stored=Permission.WRITE in key.scopes)
    flush_pending(run)
    export = export_run(run, format, capture)
    return stream(request, export, f"run {run.pk}", content=content)
