"""What an event must know that stands on another span of its trace: the retrieval, its quality, who asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from ragd import telemetry

WANTED = (
    telemetry.PIPELINE_NAME, telemetry.PIPELINE_STAGE, telemetry.USER_ID, telemetry.SESSION_ID, telemetry.API_KEY,
    telemetry.RETRIEVE_DATABASE, telemetry.RETRIEVE_INDEX, telemetry.RETRIEVE_TOP_K,
    telemetry.RETRIEVE_RESULTS_COUNT, telemetry.RETRIEVE_MIN_SCORE, telemetry.RETRIEVE_MAX_SCORE,
    telemetry.QUERY_EMBEDDING_MODEL, telemetry.QUERY_EMBEDDING_DIMENSIONS, *telemetry.QUALITY_NAMES.values(),
)  # fmt: skip
STAGES = (telemetry.PIPELINE, telemetry.QUERY, telemetry.RETRIEVE, telemetry.EVALUATE)
SELECT_CONTEXT = """
SELECT trace_id, name, coalesce(parent_span_id, ''),
       (SELECT coalesce(jsonb_object_agg(wanted, attributes -> wanted), '{}')
        FROM unnest(%(wanted)s::text[]) AS wanted WHERE attributes ? wanted)
FROM spans
WHERE trace_id = ANY(%(traces)s) AND (name = %(vector)s OR split_part(name, ' ', 1) = ANY(%(stages)s))
ORDER BY trace_id, started_at, id
"""


@dataclass(slots=True)
class TraceContext:
    """attributes: those in WANTED of the trace's stages, by the stage's name; of several spans the last one's.

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


def read_contexts(traces: Iterable[str]) -> dict[str, TraceContext]:
    """One statement for the traces of a batch. A trace of which no stage is stored has an empty context."""
    wanted = sorted(set(traces))
    contexts = {trace_id: TraceContext() for trace_id in wanted}
    if not wanted:
        return contexts
    with connection.cursor() as cursor:
        cursor.execute(
            SELECT_CONTEXT,
            {"traces": wanted, "stages": list(STAGES), "vector": telemetry.VECTOR, "wanted": list(WANTED)},
        )
        for trace_id, name, parent, attributes in cursor.fetchall():
            _note(contexts[trace_id], name, parent, _parsed(attributes))
    return contexts


def _note(context: TraceContext, name: str, parent: str, attributes: Mapping[str, Any]) -> None:
    if name == telemetry.VECTOR:
        context.vector_parents.add(parent)
    else:
        context.attributes.setdefault(name.partition(" ")[0], {}).update(attributes)


def _parsed(value: Any) -> Mapping[str, Any]:
    """Django's connection gives jsonb as text."""
    read: Mapping[str, Any] = json.loads(value) if isinstance(value, str) else value
    return read
