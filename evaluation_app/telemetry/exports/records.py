"""A stored span on its way out, as the content switch lets it, and what stands on other spans of its run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection

from evaluation_app.models import Span
from ragd import telemetry
from ragd.conventions import TABLES
from ragd.conventions.tables import SpanTable

WANTED = (
    telemetry.PIPELINE_NAME, telemetry.PIPELINE_STAGE, telemetry.USER_ID, telemetry.SESSION_ID, telemetry.API_KEY,
    telemetry.RETRIEVE_DATABASE, telemetry.RETRIEVE_INDEX, telemetry.RETRIEVE_TOP_K,
    telemetry.RETRIEVE_RESULTS_COUNT, telemetry.RETRIEVE_MIN_SCORE, telemetry.RETRIEVE_MAX_SCORE,
    telemetry.QUERY_EMBEDDING_MODEL, telemetry.QUERY_EMBEDDING_DIMENSIONS, *telemetry.QUALITY_NAMES.values(),
)  # fmt: skip
STAGES = (telemetry.PIPELINE, telemetry.QUERY, telemetry.RETRIEVE, telemetry.EVALUATE)
# by the run's id, for a later evaluation stands in a trace of its own, and one request may hold several runs
SELECT_CONTEXT = """
SELECT coalesce(run_id::text, trace_id), name, coalesce(parent_span_id, ''),
       (SELECT coalesce(jsonb_object_agg(wanted, attributes -> wanted), '{}')
        FROM unnest(%(wanted)s::text[]) AS wanted WHERE attributes ? wanted)
FROM spans
WHERE (run_id = ANY(%(runs)s::uuid[]) OR (trace_id = ANY(%(traces)s) AND run_id IS NULL))
  AND (name = %(vector)s OR split_part(name, ' ', 1) = ANY(%(stages)s))
ORDER BY started_at, id
"""


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


@dataclass(slots=True)
class RunContext:
    """attributes: those in WANTED of the run's stages, by the stage's name; of several spans the last one's.

    vector_parents: ids of the spans in which vectors were compared.
    """

    attributes: dict[str, dict[str, Any]] = field(default_factory=dict)
    vector_parents: set[str] = field(default_factory=set)

    def find(self, name: str, *stages: str) -> Any:
        """The attribute on the first of these stages that has it, all stages when none is named; else None."""
        for stage in stages or STAGES:
            value = self.attributes.get(stage, {}).get(name)
            if value is not None:
                return value
        return None

    @property
    def quality(self) -> dict[str, float]:
        """The scores of the answer by their short names; {} while nobody has scored it."""
        values = self.attributes.get(telemetry.EVALUATE, {})
        known = ((short, values.get(name)) for short, name in telemetry.QUALITY_NAMES.items())
        return {short: float(score) for short, score in known if score is not None}


def read_contexts(records: Iterable[SpanRecord]) -> dict[str, RunContext]:
    """By `context_key`, with one statement for a batch. A run of which no stage is stored has an empty context."""
    listed = list(records)
    contexts = {context_key(record): RunContext() for record in listed}
    requested: dict[str, list[str] | str] = {
        "runs": sorted({record.run_id for record in listed if record.run_id}),
        "traces": sorted({record.trace_id for record in listed if not record.run_id}),
        "stages": list(STAGES),
        "vector": telemetry.VECTOR,
        "wanted": list(WANTED),
    }
    if listed:
        with connection.cursor() as cursor:
            cursor.execute(SELECT_CONTEXT, requested)
            for key, name, parent, attributes in cursor.fetchall():
                _note(contexts[key], name, parent, _parsed(attributes))
    return contexts


def context_key(record: SpanRecord) -> str:
    """The run that the span belongs to, or its trace."""
    return record.run_id or record.trace_id


def _note(context: RunContext, name: str, parent: str, attributes: Mapping[str, Any]) -> None:
    if name == telemetry.VECTOR:
        context.vector_parents.add(parent)
    else:
        context.attributes.setdefault(name.partition(" ")[0], {}).update(attributes)


def _parsed(value: Any) -> Mapping[str, Any]:
    """Django's connection gives jsonb as text."""
    read: Mapping[str, Any] = json.loads(value) if isinstance(value, str) else value
    return read
