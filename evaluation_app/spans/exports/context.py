"""What an event must know that stands on another span of its run: the retrieval, its quality, who asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from evaluation_app.spans.exports.records import SpanRecord
from ragd import telemetry

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
