"""validate(): spans against the normative tables, which it knows as data (`tables`); `holds`: when a row applies.

What a check of spans found.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ragd.conventions.tables import LIST_MARK, TABLES, VOCABULARIES, Field, SpanTable, Tables


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong with one span. rule: presence, type, range, enum, shape, index, name, kind, parent, link, status or
    time.

    field: the attribute, or "" for the span as a whole. requirement: of the row, "" where none is involved.
    """

    span_id: str
    span_name: str
    span_type: str
    rule: str
    field: str
    requirement: str
    message: str
    trace_id: str = ""

    def as_dict(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class TypeReport:
    """The spans of one type, how many of them are conformant, and what is wrong with the others."""

    spans: int = 0
    conformant: int = 0
    violations: list[Violation] = field(default_factory=list)

    @property
    def share(self) -> float:
        """0..1 of the spans; 1.0 where there are none."""
        return self.conformant / self.spans if self.spans else 1.0


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
    def share(self) -> float:
        """0..1 of the governed spans; 1.0 where there are none."""
        return self.conformant / self.spans if self.spans else 1.0

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong with any span; true where there are none."""
        return self.conformant == self.spans

    @property
    def violations(self) -> list[Violation]:
        """By type in the order of the tables, then as the spans came."""
        return [violation for each in self.types.values() for violation in each.violations]

    def merge(self, other: Report) -> None:
        """Take over what another check found, so that many spans can be checked a part at a time."""
        for name, each in other.types.items():
            own = self.types.setdefault(name, TypeReport())
            own.spans += each.spans
            own.conformant += each.conformant
            own.violations += each.violations
        self.other += other.other
        self.rows |= other.rows

    def as_dict(self) -> Mapping[str, Any]:
        """Plain data: {"spans", "conformant", "other", "types": [{"type", "spans", "conformant", "violations"}]}."""
        return {
            "spans": self.spans,
            "conformant": self.conformant,
            "other": self.other,
            "types": [
                {
                    "type": name,
                    "spans": each.spans,
                    "conformant": each.conformant,
                    "violations": [violation.as_dict() for violation in each.violations],
                }
                for name, each in self.types.items()
            ],
        }


OWN_SYSTEMS = "ragd."
SYSTEM, PARAMETERS = "gen_ai.system", "llm.invocation_parameters"
EVALUATION_NAME, EVALUATION_SCORE = "gen_ai.evaluation.name", "gen_ai.evaluation.score.value"

Attributes = Mapping[str, Any]
PLACE = re.compile(r"\{([^}]+)\}")
ITEM = re.compile(r"(.+?)\.(\d+)\.(.+)", re.DOTALL)
HASHED = re.compile(r"sha256:[0-9a-f]{64}")
REDACTED = "__REDACTED__"
SpanDict = Mapping[str, Any]
TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "json": (str,),
    "int": (int,),
    "double": (int, float),
    "boolean": (bool,),
}

LISTS = {"string[]": "string", "double[]": "double"}


def holds(
    condition: str,
    value: Any,
    *,
    attributes: Attributes,
    failed: bool,
    events: Sequence[tuple[str, Attributes]],
    children: Sequence[str],
) -> bool:
    """Whether one condition holds for a span, or for the event whose attributes these are.

    succeeded, failed; remote: the model is not of this program; present, without, true, above_zero: of the attribute
    `value`, without also of several; event: the span has one of that name; child: a span of that type stands in it;
    stated: the parameter was sent; evaluated: that metric has a score. children: the types of the spans in it.
    Raises ValueError for a condition that there is not: the tables are wrong then.
    """
    match condition:
        case "succeeded":
            return not failed
        case "failed":
            return failed
        case "remote":
            return not str(attributes.get(SYSTEM, "")).startswith(OWN_SYSTEMS)
        case "present":
            return value in attributes
        case "without":
            return not any(name in attributes for name in ([value] if isinstance(value, str) else value))
        case "true":
            return attributes.get(value) is True
        case "above_zero":
            number = attributes.get(value)
            return isinstance(number, int | float) and number > 0
        case "event":
            return any(name == value for name, _ in events)
        case "child":
            return value in children
        case "stated":
            return f'"{value}"' in str(attributes.get(PARAMETERS, ""))
        case "evaluated":
            return any(
                match.get(EVALUATION_NAME) == value and match.get(EVALUATION_SCORE) is not None for _, match in events
            )
    raise ValueError(f"the tables use the condition {condition!r}, which the validator does not know")


def validate(spans: Iterable[SpanDict], tables: Tables = TABLES) -> Report:
    """Check spans in the form of `GET /v1/runs/{run_id}/spans`, of any number of traces, in any order.

    A span is conformant when every Required field, and every Recommended and Conditional one that applies, is there,
    every value has the row's type, range and enumeration, and name, kind, parent, status and times are right. What the
    content switch replaced counts as there. A parent that is not among the spans is not judged. [] gives an empty
    report. Raises nothing for whatever the spans hold.
    """
    everything = [span for span in spans if isinstance(span, Mapping)]
    by_id = {_span_key(span, "span_id"): span for span in everything}
    children: dict[tuple[str, str], list[SpanDict]] = defaultdict(list)
    governed: dict[str, list[SpanDict]] = defaultdict(list)
    carriers = {event.name: SpanTable(event.name, (), "", "", (), ()) for event in tables.events if not event.span_type}
    for span in everything:
        children[_span_key(span, "parent_span_id")].append(span)
        if table := tables.table_of(span) or _carrier(span, carriers):
            governed[table.type].append(span)
    report = Report(other=len(everything) - sum(map(len, governed.values())))
    for table in (*tables.spans, *carriers.values()):
        value = governed.get(table.type)
        if not value:
            continue
        each = report.types[table.type] = TypeReport(spans=len(value))
        for span in value:
            parent = by_id.get(_span_key(span, "parent_span_id")) if span.get("parent_span_id") else None
            inside = children.get(_span_key(span, "span_id"), [])
            wrong = list(_Check(span, table, tables, parent, inside, report.rows).violations())
            each.conformant += not wrong
            each.violations += wrong
    return report


def validate_all(spans: Iterable[SpanDict]) -> dict[str, Report]:
    """One report per vocabulary, by its name; the first is that of the normative tables."""
    everything = list(spans)
    return {tables.name: validate(everything, tables) for tables in VOCABULARIES}


def _span_key(span: SpanDict, name: str) -> tuple[str, str]:
    """(trace, span) as `name` tells the latter; what is not given is the empty text."""
    return str(span.get("trace_id") or ""), str(span.get(name) or "")


def _carrier(span: SpanDict, carriers: Mapping[str, SpanTable]) -> SpanTable | None:
    names = [name for name, _ in events_of(span)] if carriers else []
    return next((carriers[name] for name in names if name in carriers), None)


@dataclass(frozen=True)
class _Check:
    """One span against its table. rows: takes up what was seen."""

    span: SpanDict
    table: SpanTable
    tables: Tables
    parent: SpanDict | None
    children: Sequence[SpanDict]
    rows: set[tuple[str, str]]

    @cached_property
    def attributes(self) -> Attributes:
        return attributes_of(self.span)

    @cached_property
    def events(self) -> list[tuple[str, Attributes]]:
        return events_of(self.span)

    @cached_property
    def lists(self) -> Mapping[str, Mapping[int, Mapping[str, Any]]]:
        """The flattened lists: prefix -> number of the item -> what follows the number -> value."""
        result: dict[str, dict[int, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
        for name, value in self.attributes.items():
            if item := ITEM.fullmatch(name):
                result[item[1]][int(item[2])][item[3]] = value
        return result

    @property
    def status(self) -> Mapping[str, Any]:
        value = self.span.get("status")
        return value if isinstance(value, Mapping) else {}

    def violations(self) -> Iterator[Violation]:
        yield from self._frame()
        for row in self.table.fields:
            if LIST_MARK in row.name:
                yield from self._list(row)
                continue
            holders = [self.attributes]
            if row.event:
                holders = [attributes for name, attributes in self.events if name == row.event]
            yield from self._field(row, self.table.type, holders, applies=self._applies(row, self.attributes))
        for event in self.tables.events:
            if event.span_type in ("", self.table.type):
                for holder in (attributes for name, attributes in self.events if name == event.name):
                    for row in event.fields:
                        yield from self._field(row, event.name, [holder], applies=self._applies(row, holder))
        yield from self._numbers()

    def _frame(self) -> Iterator[Violation]:
        """Name, kind, parent, links, status and times."""
        name = str(self.span.get("name", ""))
        if self.table.name_format and not re.fullmatch(self._wanted_name(), name, re.DOTALL):
            yield self._wrong("name", "", f"the name must be {self.table.name_format!r}; it is {name!r}")
        if self.table.kind and self.span.get("kind") != self.table.kind:
            yield self._wrong("kind", "", f"the kind must be {self.table.kind}; it is {self.span.get('kind')}")
        if self.parent is not None and self.table.parents:
            result = self.tables.table_of(self.parent)
            if result is None or result.type not in self.table.parents:
                expected = " or ".join(self.table.parents)
                message = f"the parent must be {expected}; it is {self.parent.get('name')!r}"
                yield self._wrong("parent", "", message)
        found_links = self.span.get("links")
        links = found_links if isinstance(found_links, list | tuple) else ()
        if self.table.root_links is not None and not self.span.get("parent_span_id"):
            if len(links) != self.table.root_links:
                message = f"without a parent it must have exactly {self.table.root_links} link; it has {len(links)}"
                yield self._wrong("link", "", message)
        code = self.status.get("code")
        if code not in ("OK", "ERROR"):
            yield self._wrong("status", "", f"the status must be OK or ERROR; it is {code}")
        elif code == "ERROR" and not self.status.get("description"):
            yield self._wrong("status", "", "a failed span must describe its error in the status")
        if str(self.span.get("end", "")) < str(self.span.get("start", "")):
            yield self._wrong("time", "", f"it ends at {self.span.get('end')}, before its start")

    def _wanted_name(self) -> str:
        """A pattern: each attribute of the format by its value, or anything where neither span nor parent has it."""
        parts = PLACE.split(self.table.name_format)
        above = attributes_of(self.parent or {})
        pattern = ""
        for number, part in enumerate(parts):
            if number % 2 == 0:
                pattern += re.escape(part)
            else:
                value = self.attributes.get(part, above.get(part))
                pattern += ".+" if value is None else re.escape(str(value))
        return pattern

    def _list(self, row: Field) -> Iterator[Violation]:
        """A row of a flattened list: each item of the list is judged on its own."""
        prefix, _, suffix = row.name.partition(LIST_MARK)
        for number, item in sorted(self.lists.get(prefix, {}).items()):
            yield from self._field(row, self.table.type, [{row.name: item.get(suffix)}], applies=True, number=number)

    def _numbers(self) -> Iterator[Violation]:
        """The items of a flattened list are numbered 0, 1, 2 without a gap."""
        for prefix in sorted({row.name.partition(LIST_MARK)[0] for row in self.table.fields if LIST_MARK in row.name}):
            numbers = sorted(self.lists.get(prefix, {}))
            if numbers != list(range(len(numbers))):
                message = f"{prefix} must be numbered from 0 without a gap; it has {numbers[:10]}"
                yield self._wrong("index", prefix, message)

    def _field(
        self, row: Field, owner: str, holders: Sequence[Attributes], *, applies: bool, number: int | None = None
    ) -> Iterator[Violation]:
        name = row.name if number is None else row.name.replace(LIST_MARK, f".{number}.", 1)
        values = [holder[row.name] for holder in holders if holder.get(row.name) is not None]
        if not values:
            requested = row.requirement in ("Recommended", "Conditional") and applies
            if row.requirement == "Required" or requested:
                where = f" on the event {row.event}" if row.event else ""
                yield self._wrong("presence", name, f"{name} is {row.requirement}{where} and missing", row)
            return
        if row.requirement == "Forbidden":
            yield self._wrong("presence", name, f"{name} must not be on a span of this type", row)
            return
        self.rows.add((owner, row.name))
        for value in values:
            yield from self._value(row, name, value)

    def _value(self, row: Field, name: str, value: Any) -> Iterator[Violation]:
        if row.value_type in ("json", "double[]") and is_redacted(value):
            return
        if not has_type(value, row.value_type):
            message = f"{name} must be {row.value_type}; it is {type(value).__name__} {str(value)[:80]!r}"
            yield self._wrong("type", name, message, row)
            return
        if row.low is not None and row.high is not None and not row.low <= value <= row.high:
            yield self._wrong("range", name, f"{name} must be {row.low} to {row.high}; it is {value}", row)
        provided = value if isinstance(value, list | tuple) else [value]
        if row.enum and (unknown := [item for item in provided if item not in row.enum]):
            message = f"{name} must be one of {', '.join(row.enum)}; it is {unknown[0]!r}"
            yield self._wrong("enum", name, message, row)
        if row.items and (missing := _missing_key(value, row.items)):
            message = f"{name} must be a JSON array of objects with {', '.join(row.items)}; {missing}"
            yield self._wrong("shape", name, message, row)

    def _applies(self, row: Field, holder: Attributes) -> bool:
        return all(
            holds(
                condition,
                value,
                attributes=holder,
                failed=self.status.get("code") == "ERROR",
                events=self.events,
                children=[
                    result.type for child in self.children if (result := self.tables.table_of(child)) is not None
                ],
            )
            for condition, value in (row.applies or {}).items()
        )

    def _wrong(self, rule: str, name: str, message: str, row: Field | None = None) -> Violation:
        return Violation(
            span_id=str(self.span.get("span_id", "")),
            span_name=str(self.span.get("name", "")),
            span_type=self.table.type,
            rule=rule,
            field=name,
            requirement=row.requirement if row else "",
            message=message,
            trace_id=str(self.span.get("trace_id", "")),
        )


def attributes_of(item: Mapping[str, Any]) -> Attributes:
    value = item.get("attributes")
    return value if isinstance(value, Mapping) else {}


def events_of(span: SpanDict) -> list[tuple[str, Attributes]]:
    value = span.get("events")
    listed = value if isinstance(value, list | tuple) else ()
    return [(str(event.get("name")), attributes_of(event)) for event in listed if isinstance(event, Mapping)]


def is_redacted(value: Any) -> bool:
    """Whether the content switch put this in the place of a text."""
    return isinstance(value, str) and (value == REDACTED or HASHED.fullmatch(value) is not None)


def has_type(value: Any, requested: str) -> bool:
    if requested in LISTS:
        return isinstance(value, list | tuple) and all(has_type(item, LISTS[requested]) for item in value)
    if isinstance(value, bool) and requested != "boolean":
        return False
    if not isinstance(value, TYPES[requested]):
        return False
    return requested != "json" or _is_json(str(value))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _missing_key(text: str, keys: Sequence[str]) -> str:
    """What is wrong with the array, "" when nothing is."""
    parsed = json.loads(text)
    if not isinstance(parsed, list):
        return f"it is {type(parsed).__name__}"
    for number, item in enumerate(parsed):
        if not isinstance(item, dict):
            return f"item {number} is {type(item).__name__}"
        if missing := [key for key in keys if key not in item]:
            return f"item {number} has no {missing[0]}"
    return ""
