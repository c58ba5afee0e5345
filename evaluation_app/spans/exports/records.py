"""A stored span on its way out: what is read once, and what the content switch lets through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evaluation_app.models import Span
from ragd import telemetry
from ragd.conventions import TABLES
from ragd.conventions.tables import SpanTable


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """One span as it leaves. run_id: text, "" for none. events and links as the span store keeps them."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: str
    scope: str
    service: str
    started_at: datetime
    ended_at: datetime
    status_code: str
    status_description: str
    collection: str
    run_id: str
    attributes: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    links: Sequence[Mapping[str, Any]]
    dropped_count: int = 0

    @property
    def table(self) -> SpanTable | None:
        """The normative table that governs the span, None for one that none does."""
        return TABLES.type_of(self.name)

    @property
    def has_failed(self) -> bool:
        return self.status_code == "ERROR"

    @property
    def duration_ms(self) -> float:
        return (self.ended_at - self.started_at).total_seconds() * 1000

    def named_events(self, name: str) -> list[Mapping[str, Any]]:
        """The attributes of the events of this name, in their order."""
        return [event.get("attributes") or {} for event in self.events if event.get("name") == name]


def make_record(span: Span, capture: telemetry.Capture) -> SpanRecord:
    """A stored span with the content switch applied to attributes, events, links and status.

    What the local store keeps less of stays as little: a digest does not become a text again.
    """
    return SpanRecord(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_span_id,
        name=span.name,
        kind=span.kind,
        scope=span.scope,
        service=span.service,
        started_at=span.started_at,
        ended_at=span.ended_at,
        status_code=span.status_code,
        status_description=telemetry.captured_status(span.status_description, capture),
        collection=span.collection,
        run_id=str(span.run_id) if span.run_id else "",
        attributes=_captured(span.attributes, capture),
        events=[_captured_part(event, capture) for event in span.events],
        links=[_captured_part(link, capture) for link in span.links],
        dropped_count=span.dropped_count,
    )


def _captured(attributes: Mapping[str, Any], capture: telemetry.Capture) -> Mapping[str, Any]:
    if capture == "full":
        return attributes
    return {name: telemetry.captured(name, value, capture) for name, value in attributes.items()}


def _captured_part(part: Mapping[str, Any], capture: telemetry.Capture) -> Mapping[str, Any]:
    return {**part, "attributes": _captured(part.get("attributes") or {}, capture)}
