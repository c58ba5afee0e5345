"""The tables: aitf.json holds the rows as published, rules.json where a row applies and who may be a parent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Field:
    """One row. value_type: string, int, double, boolean or string[]. requirement: Required, Recommended or Optional.

    enum: the values allowed, () for any. low, high: the closed range of a number, None for any. event: the event that
    carries it instead of the span, "" for the span itself. controls: (framework, identifier) that the row names.
    applies: conditions, all of which must hold for a Recommended field to be expected; {}: always.
    """

    name: str
    value_type: str
    requirement: str
    enum: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    event: str = ""
    controls: tuple[tuple[str, str], ...] = ()
    applies: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SpanTable:
    """One type of span. name_format names attributes in braces. parents: types that may hold it; () for any or none."""

    type: str
    prefixes: tuple[str, ...]
    name_format: str
    kind: str
    parents: tuple[str, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class EventTable:
    name: str
    span_type: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """spans and events in the order of the documents. mapping: (class, field, attribute) of the second taxonomy."""

    spans: tuple[SpanTable, ...]
    events: tuple[EventTable, ...]
    mapping: tuple[tuple[str, str, str], ...]

    def type_of(self, name: str) -> SpanTable | None:
        """The table of a span by its name: the words before the first space. None: a span that no table governs."""
        first = name.partition(" ")[0]
        return next((table for table in self.spans if first in table.prefixes), None)


def read_tables() -> Tables:
    folder = files("ragd.conventions")
    rows = json.loads(folder.joinpath("aitf.json").read_text("utf-8"))
    rules = json.loads(folder.joinpath("rules.json").read_text("utf-8"))
    spans = []
    for span in rows["spans"]:
        rule, applies = rules["types"][span["span"]], rules["applies"].get(span["span"], {})
        fields = tuple(_field(row, rules["open_enums"], applies.get(row["name"], {})) for row in span["fields"])
        spans.append(
            SpanTable(
                type=span["span"],
                prefixes=tuple(rule["prefixes"]),
                name_format=span["name_format"],
                kind=span["kind"],
                parents=tuple(rule["parents"]),
                fields=fields,
            )
        )
    events = tuple(
        EventTable(event["event"], event["parent_span"], tuple(_field(row, [], {}) for row in event["fields"]))
        for event in rows["events"]
    )
    mapping = tuple((row["class"], row["field"], row["attribute"]) for row in rows["mapping"])
    return Tables(tuple(spans), events, mapping)


def _field(row: Mapping[str, Any], open_enums: list[str], applies: Mapping[str, Any]) -> Field:
    low, high = row.get("range", (None, None))
    return Field(
        name=row["name"],
        value_type=row["type"],
        requirement=row["requirement"],
        enum=() if row["name"] in open_enums else tuple(row.get("enum", ())),
        low=low,
        high=high,
        event=row.get("field_event", ""),
        controls=tuple((framework, number) for framework, number in row["controls"]),
        applies=applies,
    )


TABLES = read_tables()
