"""How often each row of the normative tables was recorded, over the spans of a time range."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection

from collections_app.domain.rows import read_statements
from evaluation_app.telemetry.evidence.controls import controls_of_row
from ragd import telemetry
from ragd.conventions import TABLES
from ragd.conventions.tables import Field, SpanTable
from ragd.conventions.validator import EVALUATION_NAME, EVALUATION_SCORE, PARAMETERS, SYSTEM, holds

SQL = read_statements(__file__)
LONGEST = 4000  # characters of JSON; parameters that a condition looks into are shorter
PAGE = 1000
EXAMPLES = 3
CONDITION_NAMES = (
    SYSTEM, PARAMETERS, EVALUATION_NAME, EVALUATION_SCORE, telemetry.REQUEST_STREAM, telemetry.COST_SOURCE,
    telemetry.SYSTEM_INSTRUCTIONS,
)  # fmt: skip

Attributes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Range:
    """From since, included, to until. within: (name, since when its spans count) of collections; None for all."""

    since: datetime
    until: datetime
    within: tuple[tuple[str, datetime], ...] | None = None

    def params(self) -> dict[str, Any]:
        names = None if self.within is None else [name for name, _ in self.within]
        made_at = [moment for _, moment in self.within or ()]
        return {"since": self.since, "until": self.until, "within": names, "made_at": made_at}


@dataclass(slots=True)
class Tally:
    """One row. spans: of its type, looked at. applies: how many of them it applies to; recorded: how many of those
    have it; hidden: of those, where the content switch replaced it. missing: (trace_id, span_id) of a few without."""

    row: Field
    span_type: str
    event: str
    spans: int = 0
    applies: int = 0
    recorded: int = 0
    hidden: int = 0
    missing: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Tallies:
    """counts: spans of each type in the range; seen: how many of them were looked at, the newest. truncated: spans
    that lost attributes to a limit."""

    rows: list[Tally]
    counts: dict[str, int]
    seen: dict[str, int]
    truncated: int

    @property
    def is_whole(self) -> bool:
        return self.seen == self.counts


def tally(requested: Range, limit: int | None) -> Tallies:
    """Look at the spans of the range, of each type at most `limit`, the newest; None: all of them."""
    types = [table.type for table in TABLES.spans]
    counts, truncated = dict.fromkeys(types, 0), 0
    with connection.cursor() as cursor:
        cursor.execute(SQL["count spans"], {**requested.params(), "types": types})
        for name, number, cut in cursor.fetchall():
            counts[name] = number
            truncated += cut
    rows: list[Tally] = []
    seen = dict.fromkeys(types, 0)
    for table in TABLES.spans:
        tallies = _rows_of(table)
        if counts[table.type]:
            for span in _read(table, requested, limit):
                seen[table.type] += 1
                for each in tallies:
                    span.count(each)
        rows += tallies
    return Tallies(rows, counts, seen, truncated)


def tally_rows() -> list[Tally]:
    """The rows of all types in the order in which `tally` gives them, nothing counted."""
    return [row for table in TABLES.spans for row in _rows_of(table)]


def _rows_of(table: SpanTable) -> list[Tally]:
    """The rows of a type that a control or a field of CoSAI names, those of its events included."""
    own = [Tally(row, table.type, row.event) for row in table.fields if controls_of_row(row)]
    events = [
        Tally(row, table.type, event.name)
        for event in TABLES.events
        if event.span_type == table.type
        for row in event.fields
        if controls_of_row(row)
    ]
    known = {(each.event, each.row.name) for each in own}
    return own + [each for each in events if (each.event, each.row.name) not in known]


@dataclass(frozen=True, slots=True)
class _SpanFacts:
    """One span, as far as the rows ask."""

    trace_id: str
    span_id: str
    failed: bool
    attributes: Attributes
    events: Sequence[tuple[str, Attributes]]
    children: Sequence[str]

    def count(self, into: Tally) -> None:
        into.spans += 1
        holders = self._holders(into)
        values = [holder.get(into.row.name) for holder in holders]
        is_there = any(_present(values)) if not _is_item(into) else bool(values) and all(_present(values))
        if not self._applies(into, has_events=bool(holders)):
            return
        into.applies += 1
        if is_there:
            into.recorded += 1
            into.hidden += any(_is_hidden(value) for value in values)
        elif len(into.missing) < EXAMPLES:
            into.missing.append((self.trace_id, self.span_id))

    def _holders(self, into: Tally) -> list[Attributes]:
        return [match for name, match in self.events if name == into.event] if into.event else [self.attributes]

    def _applies(self, into: Tally, *, has_events: bool) -> bool:
        """An event's rows apply to spans that have one, and those of documents wherever some were found."""
        if _is_item(into):
            known = into.event == telemetry.DOC_RETRIEVED and bool(
                self.attributes.get(telemetry.RETRIEVE_RESULTS_COUNT)
            )
            return has_events or known
        if into.row.requirement == "Optional":
            return self.attributes.get(into.row.name) is not None
        return all(
            holds(
                condition,
                value,
                attributes=self.attributes,
                failed=self.failed,
                events=self.events,
                children=self.children,
            )
            for condition, value in (into.row.applies or {}).items()
        )


def _is_item(each: Tally) -> bool:
    """Whether the row is one of an event that may stand many times on a span, and that every one must have."""
    return bool(each.event) and not each.row.event


def _present(values: Sequence[Any]) -> Iterator[bool]:
    return (value is not None for value in values)


def _is_hidden(value: Any) -> bool:
    return isinstance(value, str) and (value == telemetry.REDACTED or value.startswith("sha256:"))


def _read(table: SpanTable, requested: Range, limit: int | None) -> Iterator[_SpanFacts]:
    names, events = _named_by(table)
    params = requested.params() | {
        "type": table.type,
        "at": None,
        "behind": None,
        "longest": LONGEST,
        "cut": '"text"',
        "names": sorted(names),
        "events": sorted(events),
    }
    asks_children = any("child" in (row.applies or {}) for row in table.fields)
    left = limit
    while left is None or left > 0:
        size = PAGE if left is None else min(left, PAGE)
        with connection.cursor() as cursor:
            cursor.execute(SQL["read spans"], {**params, "limit": size})
            rows = cursor.fetchall()
        children = _children({row[0] for row in rows}) if asks_children else {}
        for trace_id, span_id, status, _, _, attributes, events in rows:
            yield _SpanFacts(
                trace_id=trace_id,
                span_id=span_id,
                failed=status == "ERROR",
                attributes=_loaded(attributes) or {},
                events=[(name, values or {}) for name, values in _loaded(events) or ()],
                children=children.get((trace_id, span_id), ()),
            )
        if len(rows) < size:
            return
        params |= {"at": rows[-1][3], "behind": rows[-1][4]}
        left = None if left is None else left - size


def _named_by(table: SpanTable) -> tuple[set[str], set[str]]:
    """(attributes, events) that the rows of a type and their conditions look at: a span holds far more of both."""
    of_events = [event for event in TABLES.events if event.span_type == table.type]
    conditions = [row.applies or {} for row in table.fields]
    looks = ("present", "true", "above_zero", "without")
    stated = [each[name] for each in conditions for name in looks if name in each]
    asked = {name for value in stated for name in ([value] if isinstance(value, str) else value)}
    events = {row.event for row in table.fields if row.event} | {event.name for event in of_events}
    events |= {str(each["event"]) for each in conditions if "event" in each}
    events |= {telemetry.EVALUATION_RESULT for each in conditions if "evaluated" in each}
    rows = {row.name for row in table.fields} | {row.name for event in of_events for row in event.fields}
    return rows | asked | set(CONDITION_NAMES), events


def _children(traces: set[str]) -> Mapping[tuple[str, str], Sequence[str]]:
    result: dict[tuple[str, str], list[str]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(
            SQL["read children"], {"traces": sorted(traces), "types": [table.type for table in TABLES.spans]}
        )
        for trace_id, parent, span_type in cursor.fetchall():
            result[(trace_id, parent)].append(span_type)
    return result


def _loaded(value: Any) -> Any:
    """Django's connection gives jsonb as text."""
    return json.loads(value) if isinstance(value, str) else value
