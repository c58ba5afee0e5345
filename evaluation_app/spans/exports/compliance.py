"""Which controls an event speaks to: those of its kind as a whole, and those of each field that it recorded.

The two are kept apart, because the sources that name them differ: a mapper of events names controls per kind of event,
the span tables name them per field, and where both speak they do not agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evaluation_app.spans.exports.records import SpanRecord
from ragd.conventions import TABLES
from ragd.conventions.tables import Field

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
        for framework, number in row.controls:
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
