"""validate(): spans against the normative tables. It knows the tables as data: see `tables`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragd.conventions.tables import TABLES, Field, SpanTable, Tables

PLACE = re.compile(r"\{([^}]+)\}")
OWN_SYSTEMS = "ragd."
SpanDict = Mapping[str, Any]

TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "double": (int, float),
    "boolean": (bool,),
}


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong with one span. rule: presence, type, range, enum, name, kind, parent, status or time.

    field: the attribute, or "" for the span as a whole. requirement: of the row, "" where none is involved.
    """

    span_id: str
    span_name: str
    span_type: str
    rule: str
    field: str
    requirement: str
    message: str

    def as_dict(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class TypeReport:
    """The spans of one type. missing_recommended: how many of the conformant ones lack a Recommended field."""

    spans: int = 0
    conformant: int = 0
    violations: list[Violation] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """types: in the order of the tables, those that occurred. other: spans that no table governs. rows: the (type or
    event, field) rows of which a value was seen."""

    types: dict[str, TypeReport] = field(default_factory=dict)
    other: int = 0
    rows: set[tuple[str, str]] = field(default_factory=set)

    @property
    def spans(self) -> int:
        return sum(each.spans for each in self.types.values())

    @property
    def conformant(self) -> int:
        return sum(each.conformant for each in self.types.values())

    @property
    def violations(self) -> list[Violation]:
        return [violation for each in self.types.values() for violation in each.violations]


def validate(spans: Iterable[SpanDict], tables: Tables = TABLES) -> Report:
    """Check spans in the form of `GET /v1/runs/{run_id}/spans`, of any number of traces, in any order.

    A span is conformant when every Required field, and every Recommended one that applies, is there, every value has
    the row's type, range and enumeration, and name, kind, parent, status and times are right. A parent that is not
    among the spans is not judged. [] gives an empty report. Raises nothing for whatever the spans hold.
    """
    everything = list(spans)
    by_id = {(span.get("trace_id"), span.get("span_id")): span for span in everything}
    children: dict[tuple[Any, Any], list[SpanDict]] = defaultdict(list)
    for span in everything:
        children[(span.get("trace_id"), span.get("parent_span_id"))].append(span)
    report = Report()
    for table in tables.spans:
        found = [span for span in everything if tables.type_of(str(span.get("name", ""))) is table]
        if found:
            report.types[table.type] = TypeReport()
        for span in found:
            key = (span.get("trace_id"), span.get("span_id"))
            parent = by_id.get((span.get("trace_id"), span.get("parent_span_id")))
            check = _Check(span, table, tables, parent, children[key], report.rows)
            wrong = list(check.violations())
            each = report.types[table.type]
            each.spans += 1
            each.conformant += not wrong
            each.violations += wrong
    report.other = len(everything) - report.spans
    return report


@dataclass(frozen=True, slots=True)
class _Check:
    span: SpanDict
    table: SpanTable
    tables: Tables
    parent: SpanDict | None
    children: Sequence[SpanDict]
    rows: set[tuple[str, str]]

    @property
    def attributes(self) -> Mapping[str, Any]:
        return self.span.get("attributes") or {}

    @property
    def events(self) -> Sequence[Mapping[str, Any]]:
        return self.span.get("events") or ()

    @property
    def has_failed(self) -> bool:
        return bool((self.span.get("status") or {}).get("code") == "ERROR")

    def violations(self) -> Iterator[Violation]:
        yield from self._frame()
        for row in self.table.fields:
            holders = [self.attributes]
            if row.event:
                holders = [event.get("attributes") or {} for event in self.events if event.get("name") == row.event]
            yield from self._field(row, self.table.type, holders, applies=self._applies(row))
        for event in self.tables.events:
            if event.span_type == self.table.type:
                for holder in (item.get("attributes") or {} for item in self.events if item.get("name") == event.name):
                    for row in event.fields:
                        yield from self._field(row, event.name, [holder], applies=True)

    def _frame(self) -> Iterator[Violation]:
        """Name, kind, parent, status and times."""
        name, wanted = str(self.span.get("name", "")), self._wanted_name()
        if not re.fullmatch(wanted, name, re.DOTALL):
            yield self._wrong("name", "", f"the name must be {self.table.name_format!r}; it is {name!r}")
        if self.span.get("kind") != self.table.kind:
            yield self._wrong("kind", "", f"the kind must be {self.table.kind}; it is {self.span.get('kind')}")
        if self.parent is not None and self.table.parents:
            found = self.tables.type_of(str(self.parent.get("name", "")))
            if found is None or found.type not in self.table.parents:
                expected = " or ".join(self.table.parents)
                message = f"the parent must be {expected}; it is {self.parent.get('name')!r}"
                yield self._wrong("parent", "", message)
        status = self.span.get("status") or {}
        if status.get("code") not in ("OK", "ERROR"):
            yield self._wrong("status", "", f"the status must be OK or ERROR; it is {status.get('code')}")
        elif self.has_failed and not status.get("description"):
            yield self._wrong("status", "", "a failed span must describe its error in the status")
        if str(self.span.get("end", "")) < str(self.span.get("start", "")):
            yield self._wrong("time", "", f"it ends at {self.span.get('end')}, before its start")

    def _wanted_name(self) -> str:
        """A pattern: each attribute of the format by its value, or anything where neither span nor parent has it."""
        parts = PLACE.split(self.table.name_format)
        above = (self.parent or {}).get("attributes") or {}
        pattern = ""
        for number, part in enumerate(parts):
            if number % 2 == 0:
                pattern += re.escape(part)
            else:
                value = self.attributes.get(part, above.get(part))
                pattern += ".+" if value is None else re.escape(str(value))
        return pattern

    def _field(
        self, row: Field, owner: str, holders: Sequence[Mapping[str, Any]], *, applies: bool
    ) -> Iterator[Violation]:
        values = [holder[row.name] for holder in holders if holder.get(row.name) is not None]
        if not values:
            if row.requirement == "Required" or (row.requirement == "Recommended" and applies):
                where = f" on the event {row.event}" if row.event else ""
                yield self._wrong("presence", row.name, f"{row.name} is {row.requirement}{where} and missing", row)
            return
        self.rows.add((owner, row.name))
        for value in values:
            yield from self._value(row, value)

    def _value(self, row: Field, value: Any) -> Iterator[Violation]:
        if not _has_type(value, row.value_type):
            message = f"{row.name} must be {row.value_type}; it is {type(value).__name__} {str(value)[:80]!r}"
            yield self._wrong("type", row.name, message, row)
            return
        if row.low is not None and row.high is not None and not row.low <= value <= row.high:
            yield self._wrong("range", row.name, f"{row.name} must be {row.low} to {row.high}; it is {value}", row)
        given = value if isinstance(value, list | tuple) else [value]
        if row.enum and (unknown := [item for item in given if item not in row.enum]):
            message = f"{row.name} must be one of {', '.join(row.enum)}; it is {unknown[0]!r}"
            yield self._wrong("enum", row.name, message, row)

    def _applies(self, row: Field) -> bool:
        return all(self._holds(condition, value) for condition, value in (row.applies or {}).items())

    def _holds(self, condition: str, value: Any) -> bool:
        system = str(self.attributes.get("gen_ai.system", ""))
        if condition == "succeeded":
            return not self.has_failed
        if condition == "remote":
            return not system.startswith(OWN_SYSTEMS)
        if condition == "present":
            return value in self.attributes
        if condition == "true":
            return self.attributes.get(value) is True
        if condition == "above_zero":
            number = self.attributes.get(value)
            return isinstance(number, int | float) and number > 0
        if condition == "event":
            return any(event.get("name") == value for event in self.events)
        if condition == "child":
            types = (self.tables.type_of(str(child.get("name", ""))) for child in self.children)
            return any(found is not None and found.type == value for found in types)
        if condition == "stated":
            return f'"{value}"' in str(self.attributes.get("llm.invocation_parameters", ""))
        if condition == "evaluated":
            scores = (event.get("attributes") or {} for event in self.events)
            return any(
                score.get("gen_ai.evaluation.name") == value and score.get("gen_ai.evaluation.score.value") is not None
                for score in scores
            )
        raise ValueError(f"rules.json uses the condition {condition!r}, which the validator does not know")

    def _wrong(self, rule: str, name: str, message: str, row: Field | None = None) -> Violation:
        return Violation(
            span_id=str(self.span.get("span_id", "")),
            span_name=str(self.span.get("name", "")),
            span_type=self.table.type,
            rule=rule,
            field=name,
            requirement=row.requirement if row else "",
            message=message,
        )


def _has_type(value: Any, wanted: str) -> bool:
    if wanted == "string[]":
        return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    if isinstance(value, bool) and wanted != "boolean":
        return False
    return isinstance(value, TYPES[wanted])
