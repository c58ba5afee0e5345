"""The forms in which spans leave, by name; OpenInference JSON Lines among them, as Phoenix takes spans over its API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from collections_app.errors import WrongValueError
from evaluation_app.telemetry.exports.ocsf import write_ocsf
from evaluation_app.telemetry.exports.records import SpanRecord
from ragd import SPEC_VERSION, telemetry
from ragd.conventions import TABLES
from ragd.version import product_version

KINDS = {"INTERNAL": 1, "SERVER": 2, "CLIENT": 3, "PRODUCER": 4, "CONSUMER": 5}
STATUS_CODES = {"UNSET": 0, "OK": 1, "ERROR": 2}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
INT64 = range(-(2**63), 2**63)
# A double that is whole looks like an integer once JSON has kept it; these names say what it was.
DOUBLES = frozenset(
    row.name for table in TABLES.spans for row in table.fields if row.value_type == "double"
) | frozenset(row.name for table in TABLES.events for row in table.fields if row.value_type == "double")


def write_otlp(batches: Iterable[Sequence[SpanRecord]]) -> Iterator[str]:
    """One JSON document, a piece per batch. No span: a request without resources. A document that broke off is none."""
    yield '{"resourceSpans":['
    separator = ""
    for batch in batches:
        for resource in resource_spans(batch):
            yield separator + _json(resource)
            separator = ","
    yield "]}\n"


def write_otlp_lines(batches: Iterable[Sequence[SpanRecord]]) -> Iterator[str]:
    """JSON Lines, one request per batch, as collectors write and read files."""
    for batch in batches:
        if batch:
            yield _json({"resourceSpans": resource_spans(batch)}) + "\n"


def resource_spans(batch: Sequence[SpanRecord]) -> list[dict[str, Any]]:
    """The spans by the process kind and the instrumentation that made them, each group in the order given."""
    groups: dict[str, dict[str, list[SpanRecord]]] = {}
    for record in batch:
        groups.setdefault(record.service, {}).setdefault(record.scope, []).append(record)
    return [
        {
            "resource": {"attributes": key_values(_resource(service))},
            "scopeSpans": [
                {"scope": {"name": scope}, "spans": [encode_span(record) for record in records]}
                for scope, records in scopes.items()
            ],
        }
        for service, scopes in groups.items()
    ]


def _resource(service: str) -> dict[str, Any]:
    return {
        "service.name": service or "ragd",
        "service.namespace": "ragd",
        "service.version": product_version(),
        telemetry.SPEC: SPEC_VERSION,
        "openinference.project.name": "ragd",
    }


def encode_span(record: SpanRecord) -> dict[str, Any]:
    span: dict[str, Any] = {
        "traceId": record.trace_id,
        "spanId": record.span_id,
        "name": record.name,
        "kind": KINDS.get(record.kind, 0),
        "startTimeUnixNano": nanoseconds(record.started_at),
        "endTimeUnixNano": nanoseconds(record.ended_at),
        "attributes": key_values(record.attributes),
        "events": [
            {
                "timeUnixNano": nanoseconds(datetime.fromisoformat(event["time"])),
                "name": event["name"],
                "attributes": key_values(event.get("attributes") or {}),
            }
            for event in record.events
        ],
        "links": [
            {
                "traceId": link["trace_id"],
                "spanId": link["span_id"],
                "attributes": key_values(link.get("attributes") or {}),
            }
            for link in record.links
        ],
        "status": {"code": STATUS_CODES.get(record.status_code, 0)},
    }
    if record.parent_span_id:
        span["parentSpanId"] = record.parent_span_id
    if record.status_description:
        span["status"]["message"] = record.status_description
    if record.dropped_count:
        span["droppedAttributesCount"] = record.dropped_count
    return span


def nanoseconds(moment: datetime) -> str:
    """Since 1970, as text. The store keeps microseconds."""
    return str((moment - EPOCH) // MICROSECOND * 1000)


def key_values(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Attributes in their order; one without a value is left out."""
    return [{"key": name, "value": any_value(value, name)} for name, value in attributes.items() if value is not None]


def any_value(value: Any, name: str = "") -> dict[str, Any]:
    """One value under the field that says its type. name: of the attribute, tells a whole double from an integer."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, float) or (isinstance(value, int) and (name in DOUBLES or value not in INT64)):
        return {"doubleValue": float(value)}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [any_value(item, name) for item in value]}}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": key_values(value)}}
    return {"stringValue": str(value)}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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
        "attributes": {name: value for name, value in record.attributes.items() if name.startswith(VOCABULARY)},
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
        raise WrongValueError(f"format must be one of {', '.join(FORMATS)}; it is {name!r}", "format")
    return value
