"""The shape of a span: in the API, on its page, and for the validator."""

from __future__ import annotations

from typing import Any

from ninja import Field, Schema

from collections_app.api.schemas import IsoTime, Stored
from evaluation_app.models import Span


class SpanStatus(Schema):
    code: str = Field(validation_alias="status_code")
    description: str = Field(validation_alias="status_description")


class SpanEvent(Schema):
    name: str
    time: str
    attributes: dict[str, Any]


class SpanLink(Schema):
    trace_id: str
    span_id: str
    attributes: dict[str, Any]


class SpanRecord(Schema):
    """A span as it is answered: every vocabulary's attributes under their own names."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: str
    start: IsoTime = Field(validation_alias="started_at")
    end: IsoTime = Field(validation_alias="ended_at")
    status: SpanStatus
    attributes: dict[str, Any]
    events: Stored[list[SpanEvent]]
    links: Stored[list[SpanLink]]

    @staticmethod
    def resolve_status(span: Span) -> Span:
        return span
