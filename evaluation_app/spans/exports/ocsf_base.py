"""What every OCSF event has: class, time, outcome, who, and which controls it speaks to.

Controls of an event's kind and those of each field that it recorded are kept apart, because the sources that name them
differ: a mapper of events names controls per kind of event, the span tables name them per field, and where both speak
they do not agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from evaluation_app.spans.evidence.controls import controls_of_row
from evaluation_app.spans.exports.records import RunContext, SpanRecord
from ragd import telemetry
from ragd.conventions import TABLES
from ragd.conventions.tables import Field
from ragd.version import product_version

INFERENCE = "model_inference"
RETRIEVAL = "data_retrieval"
FINDING = "security_finding"

EVENT_CONTROLS: Mapping[str, Mapping[str, Mapping[str, list[str]]]] = {
    INFERENCE: {
        "nist_ai_rmf": {"controls": ["MAP-1.1", "MEASURE-2.5"]},
        "mitre_atlas": {"techniques": ["AML.T0040"]},
        "iso_42001": {"controls": ["6.1.4", "8.4"]},
        "eu_ai_act": {"articles": ["Art.13", "Art.15"]},
        "soc2": {"controls": ["CC6.1"]},
        "gdpr": {"articles": ["Art.5", "Art.22"]},
        "ccpa": {"sections": ["1798.100"]},
    },
    RETRIEVAL: {
        "nist_ai_rmf": {"controls": ["MAP-1.5", "MEASURE-2.7"]},
        "mitre_atlas": {"techniques": ["AML.T0025"]},
        "iso_42001": {"controls": ["A.7.4"]},
        "eu_ai_act": {"articles": ["Art.10"]},
        "soc2": {"controls": ["CC6.1"]},
        "gdpr": {"articles": ["Art.5", "Art.6"]},
        "ccpa": {"sections": ["1798.100"]},
    },
    FINDING: {
        "nist_ai_rmf": {"controls": ["MANAGE-2.4", "MANAGE-4.1"]},
        "mitre_atlas": {"techniques": ["AML.T0051"]},
        "iso_42001": {"controls": ["6.1.2", "A.6.2.4"]},
        "eu_ai_act": {"articles": ["Art.9", "Art.62"]},
        "soc2": {"controls": ["CC7.2", "CC7.3"]},
        "gdpr": {"articles": ["Art.32", "Art.33"]},
        "ccpa": {"sections": ["1798.150"]},
    },
}
Event = dict[str, Any]

VERSION = "1.1.0"
CATEGORY = (7, "AI System Activity")
NAMESPACE = UUID("5f1f9c1e-7a0e-5d51-9d0c-7a0b5a9b7c11")  # of the events' ids
INFORMATIONAL, LOW, MEDIUM, HIGH, CRITICAL = 1, 2, 3, 4, 5
SEVERITIES = {1: "Informational", 2: "Low", 3: "Medium", 4: "High", 5: "Critical"}
STATUSES = {0: "Unknown", 1: "Success", 2: "Failure"}
STATUS_IDS = {"UNSET": 0, "OK": 1, "ERROR": 2}
RESOURCE_UID = 10  # of the types of observables
PROVIDER = "ragd"


def event_controls(kind: str) -> dict[str, Any]:
    """The compliance object of one kind of event: framework -> its controls. A fresh copy."""
    return {
        framework: {name: list(numbers) for name, numbers in controls.items()}
        for framework, controls in EVENT_CONTROLS[kind].items()
    }


def field_controls(record: SpanRecord) -> dict[str, dict[str, list[str]]]:
    """framework -> control -> the fields that this span recorded and that name it, both sorted. {}: none."""
    result: dict[str, dict[str, set[str]]] = {}
    for row in recorded_rows(record):
        for framework, number in controls_of_row(row):
            result.setdefault(framework, {}).setdefault(number, set()).add(row.name)
    return {
        framework: {number: sorted(names) for number, names in sorted(controls.items())}
        for framework, controls in sorted(result.items())
    }


def recorded_rows(record: SpanRecord) -> Iterator[Field]:
    """The rows of the normative tables of which the span, or an event on it, holds a value."""
    if record.table is None:
        return
    for row in record.table.fields:
        holders = record.named_events(row.event) if row.event else [record.attributes]
        if any(holder.get(row.name) is not None for holder in holders):
            yield row
    for event in TABLES.events:
        if event.span_type == record.table.type:
            holders = record.named_events(event.name)
            yield from (row for row in event.fields if any(holder.get(row.name) is not None for holder in holders))


@dataclass(frozen=True, slots=True)
class EventClass:
    """uid: 7001. kind: its row of the controls per event. activities: activity_id -> name."""

    uid: int
    name: str
    kind: str
    activities: Mapping[int, str]


def base_event(
    record: SpanRecord,
    context: RunContext,
    event_class: EventClass,
    activity: int,
    *,
    severity: int | None = None,
    index: str = "",
) -> Event:
    """The fields of every class. An error is a failure of medium severity. index: tells several events of one span
    apart; the id of an event depends on its span alone, so that a second export gives the same ids."""
    severity_id = severity or (MEDIUM if record.has_failed else INFORMATIONAL)
    status_id = STATUS_IDS.get(record.status_code, 0)
    activity_name, time = event_class.activities[activity], record.started_at.isoformat()
    event: Event = {
        "activity_id": activity,
        "activity_name": activity_name,
        "category_uid": CATEGORY[0],
        "category_name": CATEGORY[1],
        "class_uid": event_class.uid,
        "class_name": event_class.name,
        "type_uid": event_class.uid * 100 + activity,
        "type_name": f"{event_class.name}: {activity_name}",
        "time": time,
        "start_time": time,
        "end_time": record.ended_at.isoformat(),
        "duration": round(record.duration_ms, 3),
        "severity_id": severity_id,
        "severity": SEVERITIES[severity_id],
        "status_id": status_id,
        "status": STATUSES[status_id],
        "message": record.name,
        "metadata": {
            "version": VERSION,
            "product": {"name": "ragd", "vendor_name": "ragd", "version": product_version()},
            "uid": str(uuid5(NAMESPACE, f"{record.trace_id}:{record.span_id}:{event_class.uid}:{index}")),
            "correlation_uid": record.trace_id,
            "original_time": time,
            "logged_time": record.ended_at.isoformat(),
        },
        "actor": _actor(record, context),
        "compliance": event_controls(event_class.kind),
        "field_compliance": field_controls(record),
        "unmapped": _unmapped(record),
    }
    if record.has_failed:
        event["status_code"] = str(record.attributes.get(telemetry.ERROR_TYPE) or "error")
        event["status_detail"] = record.status_description
    return event


def _actor(record: SpanRecord, context: RunContext) -> dict[str, Any]:
    """Who asked, as far as the trace tells: the user, the session, the label of the API key."""
    actor: dict[str, Any] = {"app_name": record.service or "ragd"}
    user = _known({"uid": find_value(record, context, telemetry.USER_ID)})
    user |= _known({"credential_uid": find_value(record, context, telemetry.API_KEY)})
    session = find_value(record, context, telemetry.SESSION_ID)
    if user:
        actor["user"] = user
    if session is not None:
        actor["session"] = {"uid": str(session)}
    return actor


def find_value(record: SpanRecord, context: RunContext, name: str) -> Any:
    value = record.attributes.get(name)
    return context.find(name) if value is None else value


def _known(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}


def _unmapped(record: SpanRecord) -> dict[str, Any]:
    """Where the event comes from: what OCSF has no field for."""
    values = {
        "span_id": record.span_id,
        "parent_span_id": record.parent_span_id,
        "span_kind": record.kind,
        "run_id": record.run_id,
        "collection": record.collection,
        "door": record.attributes.get(telemetry.DOOR),
    }
    return {name: value for name, value in values.items() if value}


def observable(name: str, kind: str, type_id: int, value: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "type_id": type_id, "value": str(value)}


def enrichment(name: str, kind: str, value: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "type": kind, "value": str(value), "data": dict(data), "provider": PROVIDER}


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is None: an optional field is there or it is not."""
    return {name: value for name, value in values.items() if value is not None}


def number(attributes: Mapping[str, Any], name: str) -> float | None:
    """A double, None when it is missing or no number."""
    value = attributes.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def count(attributes: Mapping[str, Any], name: str) -> int:
    """An integer, 0 when it is missing."""
    value = attributes.get(name)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0


def first_text(holders: Sequence[Mapping[str, Any]], name: str) -> str | None:
    """The first of these that has the name, as text."""
    return next((str(holder[name]) for holder in holders if holder.get(name) is not None), None)
