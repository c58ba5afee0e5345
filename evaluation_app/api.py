"""Spans over HTTP."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Router, Schema

from collections_app.auth import BearerAuth, request_key
from collections_app.errors import ServiceError
from evaluation_app.spans import flush_pending, run_spans, span_dict
from retrieval_app.models import QueryRun

router = Router(auth=BearerAuth(write=False), tags=["telemetry"])


class SpanStatus(Schema):
    code: str
    description: str


class SpanEvent(Schema):
    name: str
    time: str
    attributes: dict[str, Any]


class SpanLink(Schema):
    trace_id: str
    span_id: str
    attributes: dict[str, Any]


class SpanRecord(Schema):
    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: str
    start: str
    end: str
    status: SpanStatus
    attributes: dict[str, Any]
    events: list[SpanEvent]
    links: list[SpanLink]


class SpanList(Schema):
    spans: list[SpanRecord]


@router.get(
    "/runs/{run_id}/spans",
    response=SpanList,
    operation_id="runs-spans",
    summary="The spans of a run, by start",
)
def list_run_spans(request: HttpRequest, run_id: UUID) -> dict[str, Any]:
    """Spans are written in batches: a run that has just ended may be without them for a second."""
    run = QueryRun.objects.visible_to(request_key(request).collections).filter(pk=run_id).first()
    if run is None:
        raise ServiceError(
            f"there is no run {run_id} that this key may see; GET /v1/runs lists the runs that there are",
            type="unknown_run",
            status=404,
        )
    flush_pending(run)
    return {"spans": [span_dict(span) for span in run_spans(run)]}
