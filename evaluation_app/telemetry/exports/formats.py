"""The forms in which spans leave, by name; OpenInference JSON Lines among them, as Phoenix takes spans over its API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collections_app.errors import ServiceError
from evaluation_app.telemetry.exports.ocsf import write_ocsf
from evaluation_app.telemetry.exports.otlp import write_otlp, write_otlp_lines
from evaluation_app.telemetry.exports.records import SpanRecord
from ragd import telemetry

UNKNOWN = "UNKNOWN"  # the kind of a span that is none of OpenInference's: a request, a statement
VOCABULARY = (
    "openinference.", "input.", "output.", "retrieval.documents.", "reranker.", "embedding.", "llm.", "metadata",
    "session.id", "user.id", "tag.tags", "tool.", "evaluations.", "annotations.", "trace.", "session.", "exception.",
)  # fmt: skip
JSON, JSON_LINES = "application/json", "application/jsonl"


def write_openinference(batches: Iterable[Sequence[SpanRecord]]) -> Iterator[str]:
    """A line per span, a piece per batch."""
    for batch in batches:
        yield "".join(json.dumps(encode_openinference(record), ensure_ascii=False) + "\n" for record in batch)


def encode_openinference(record: SpanRecord) -> dict[str, Any]:
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


@dataclass(frozen=True, slots=True)
class Format:
    """title, use: for people. suffix: of a file's name. write turns batches of spans into pieces of the file."""

    name: str
    title: str
    use: str
    content_type: str
    suffix: str
    write: Callable[[Iterable[Sequence[SpanRecord]]], Iterator[str]]


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format(
            "otlp",
            "OTLP JSON",
            "One request as the OpenTelemetry protocol writes it, with every attribute: for any collector.",
            JSON,
            ".otlp.json",
            write_otlp,
        ),
        Format(
            "otlp-lines",
            "OTLP JSON Lines",
            "The same in one request per line, as collectors read files: for many spans.",
            JSON_LINES,
            ".otlp.jsonl",
            write_otlp_lines,
        ),
        Format(
            "openinference",
            "OpenInference JSON Lines",
            "One span per line with the attributes of OpenInference alone: for Phoenix and its kin.",
            JSON_LINES,
            ".openinference.jsonl",
            write_openinference,
        ),
        Format(
            "ocsf",
            "OCSF events",
            "Model calls (7001), retrieval (7004) and findings (7005), one event per line: for a SIEM.",
            JSON_LINES,
            ".ocsf.jsonl",
            write_ocsf,
        ),
    )
}


def find_format(name: str) -> Format:
    """Raises ServiceError 422 for a name that is none."""
    value = FORMATS.get(name)
    if value is None:
        raise ServiceError(
            f"format must be one of {', '.join(FORMATS)}; it is {name!r}",
            type="invalid_input",
            status=422,
            field="format",
        )
    return value
