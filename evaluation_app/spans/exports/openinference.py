"""OpenInference JSON Lines: one span a line, in the form that Phoenix takes spans over its API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evaluation_app.spans.exports.records import SpanRecord
from ragd import telemetry

UNKNOWN = "UNKNOWN"  # the kind of a span that is none of OpenInference's: a request, a statement
VOCABULARY = (
    "openinference.", "input.", "output.", "retrieval.documents.", "reranker.", "embedding.", "llm.", "metadata",
    "session.id", "user.id", "tag.tags", "tool.", "evaluations.", "annotations.", "trace.", "session.", "exception.",
)  # fmt: skip


def write_openinference(batches: Iterable[Sequence[SpanRecord]]) -> Iterator[str]:
    """A line per span, a piece per batch."""
    for batch in batches:
        yield "".join(json.dumps(encode_span(record), ensure_ascii=False) + "\n" for record in batch)


def encode_span(record: SpanRecord) -> dict[str, Any]:
    """Only the attributes of this vocabulary; an exception keeps its event, and links stay."""
    return {
        "name": record.name,
        "context": {"trace_id": record.trace_id, "span_id": record.span_id},
        "span_kind": str(record.attributes.get(telemetry.OI_KIND) or UNKNOWN),
        "parent_id": record.parent_span_id,
        "start_time": record.started_at.isoformat(),
        "end_time": record.ended_at.isoformat(),
        "status_code": record.status_code,
        "status_message": record.status_description,
        "attributes": _own(record.attributes),
        "events": [
            {"name": event["name"], "timestamp": event["time"], "attributes": dict(event.get("attributes") or {})}
            for event in record.events
            if event["name"] == telemetry.EXCEPTION
        ],
        "links": [
            {
                "context": {"trace_id": link["trace_id"], "span_id": link["span_id"]},
                "attributes": dict(link.get("attributes") or {}),
            }
            for link in record.links
        ],
    }


def _own(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name.startswith(VOCABULARY)}
