"""The tables: aitf.json holds the rows as published, rules.json where a row applies and who may be a parent.

The second and third vocabulary, openinference.json and otel.json, hold both in one file each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

LIST_MARK = ".N."  # stands in a field's name for the number of a list's item


@dataclass(frozen=True, slots=True)
class Field:
    """One row. value_type: string, int, double, boolean, string[], double[], or json, a string that holds JSON.

    requirement: Required, Recommended, Conditional (required where it applies) or Optional. enum: the values allowed,
    () for any. low, high: the closed range of a number, None for any. event: the event that carries it instead of the
    span, "" for the span itself. controls: (framework, identifier) that the row names. applies: conditions, all of
    which must hold for a Recommended or Conditional field to be expected; {}: always. items: the keys that each object
    of a JSON array must have, () for any JSON. A name with ".N." stands for one field per item of a flattened list.
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
    items: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpanTable:
    """One type of span. prefixes: the first words of its name, or the values of the attribute that tells the types.

    name_format names attributes in braces, "" for any name; kind "" for any. parents: types that may hold it; () for
    any or none. root_links: how many links it must have where it has no parent, None for any number.
    """

    type: str
    prefixes: tuple[str, ...]
    name_format: str
    kind: str
    parents: tuple[str, ...]
    fields: tuple[Field, ...]
    root_links: int | None = None


@dataclass(frozen=True, slots=True)
class EventTable:
    """One event. span_type: the type of span that carries it, "" for any."""

    name: str
    span_type: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """spans and events in the order of the documents. mapping: (class, field, attribute) of the second taxonomy.

    key: the attribute whose value tells the type of a span; "": the first word of its name does.
    """

    name: str
    spans: tuple[SpanTable, ...]
    events: tuple[EventTable, ...]
    mapping: tuple[tuple[str, str, str], ...] = ()
    key: str = ""

    def type_of(self, name: str) -> SpanTable | None:
        """The table of a span by its name: the words before the first space. None: a span that no table governs."""
        first = name.partition(" ")[0]
        return next((table for table in self.spans if first in table.prefixes), None)

    def table_of(self, span: Mapping[str, Any]) -> SpanTable | None:
        """The table of a span in the form of the API, by its name or by the attribute that is the key."""
        if not self.key:
            return self.type_of(str(span.get("name", "")))
        attributes = span.get("attributes")
        value = attributes.get(self.key) if isinstance(attributes, Mapping) else None
        return next((table for table in self.spans if value in table.prefixes), None)

    @property
    def rows(self) -> list[tuple[str, str]]:
        """(type or event, field) of every row of spans and events, in order."""
        return [
            (owner, field.name)
            for owner, fields in [
                *((table.type, table.fields) for table in self.spans),
                *((event.name, event.fields) for event in self.events),
            ]
            for field in fields
        ]


def read_tables() -> Tables:
    """The normative tables."""
    rows, rules = _read("aitf.json"), _read("rules.json")
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
        EventTable(event["event"], event["parent_span"], tuple(_field(row) for row in event["fields"]))
        for event in rows["events"]
    )
    mapping = tuple((row["class"], row["field"], row["attribute"]) for row in rows["mapping"])
    return Tables("AITF", tuple(spans), events, mapping)


def read_vocabulary(file: str) -> Tables:
    """A vocabulary beside the normative one, whose spans are told apart by an attribute."""
    rows = _read(file)
    shared = [_field(row) for row in rows["shared"]]
    spans = tuple(
        SpanTable(
            type=span["span"],
            prefixes=tuple(span["values"]),
            name_format="",
            kind=span.get("kind", ""),
            parents=(),
            fields=(*shared, *(_field(row) for row in span["fields"])),
            root_links=span.get("root_links"),
        )
        for span in rows["spans"]
    )
    events = tuple(
        EventTable(event["event"], "", tuple(_field(row) for row in event["fields"])) for event in rows["events"]
    )
    return Tables(rows["name"], spans, events, key=rows["key"])


def _read(file: str) -> Any:
    return json.loads(files("ragd.conventions").joinpath(file).read_text("utf-8"))


def _field(
    row: Mapping[str, Any], open_enums: tuple[str, ...] | list[str] = (), applies: Mapping[str, Any] | None = None
) -> Field:
    low, high = row.get("range", (None, None))
    return Field(
        name=row["name"],
        value_type=row["type"],
        requirement=row["requirement"],
        enum=() if row["name"] in open_enums else tuple(row.get("enum", ())),
        low=low,
        high=high,
        event=row.get("field_event", ""),
        controls=tuple((framework, number) for framework, number in row.get("controls", ())),
        applies=row.get("applies", {}) if applies is None else applies,
        items=tuple(row.get("items", ())),
    )


TABLES = read_tables()
OPENINFERENCE = read_vocabulary("openinference.json")
OTEL = read_vocabulary("otel.json")
VOCABULARIES = (TABLES, OPENINFERENCE, OTEL)
