"""Which fields of the conventions the stored spans fill, and the switches that decide it.

The tallies of a report that was made lately: looking at thousands of spans again says the same.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop

from collections_app.domain.rows import read_statements
from collections_app.models import Status
from evaluation_app.telemetry.store.span_store import lost_spans
from ragd import telemetry
from ragd.conventions import TABLES
from ragd.conventions.tables import Field, SpanTable
from ragd.conventions.validator import EVALUATION_NAME, EVALUATION_SCORE, PARAMETERS, SYSTEM, holds


@dataclass(frozen=True, slots=True)
class Control:
    """One control. title: as its framework calls it. meaning: what it asks for or names, in our words."""

    framework: str
    number: str
    title: str
    meaning: str

    @property
    def anchor(self) -> str:
        """An id for a page: "eu-ai-act-art-13"."""
        return "-".join(f"{self.framework} {self.number}".lower().replace(".", " ").split())


TABLE = tomllib.loads(Path(__file__).with_name("controls.toml").read_text(encoding="utf-8"))
FRAMEWORKS: dict[str, str] = TABLE["frameworks"]
COSAI = "CoSAI WS2"
COSAI_FIELDS: dict[str, tuple[str, ...]] = {}  # attribute -> fields
for _, _field, _attribute in TABLES.mapping:
    COSAI_FIELDS[_attribute] = (*COSAI_FIELDS.get(_attribute, ()), _field)
COSAI_CLASSES = {name: (class_name, attribute) for class_name, name, attribute in TABLES.mapping}
KNOWN: dict[str, dict[str, list[str]]] = TABLE["controls"]  # framework -> number -> [title, meaning]


def control_of(framework: str, number: str) -> Control:
    """The control that a table row names; one that is not known has its number for a title and no meaning."""
    if framework == COSAI and number in COSAI_CLASSES:
        class_name, attribute = COSAI_CLASSES[number]
        meaning = gettext("Recorded as %(attribute)s.") % {"attribute": attribute}
        return Control(framework, number, class_name, meaning)
    title, meaning = KNOWN.get(framework, {}).get(number, (number, ""))
    return Control(framework, number, title, meaning)


def controls_of_row(row: Field) -> tuple[tuple[str, str], ...]:
    """(framework, control) of a row of the tables, with the fields of CoSAI that its attribute fills."""
    return (*row.controls, *((COSAI, name) for name in COSAI_FIELDS.get(row.name, ())))


def controls_of_tables() -> list[Control]:
    """Every control that a row of the tables names, each once, by framework and number."""
    rows = [row for span in TABLES.spans for row in span.fields] + [
        row for each in TABLES.events for row in each.fields
    ]
    named = {pair for row in rows for pair in controls_of_row(row)}
    order = list(FRAMEWORKS)
    return [control_of(*pair) for pair in sorted(named, key=lambda pair: (order.index(pair[0]), pair[1]))]


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
            for span in _read_spans(table, requested, limit):
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


def _read_spans(table: SpanTable, requested: Range, limit: int | None) -> Iterator[_SpanFacts]:
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


Advice = tuple[str, str]  # the reason, what to do

ADVICE: Mapping[str, Mapping[str, Advice]] = {
    table: {name: (reason, deed) for name, (reason, deed) in rows.items()}
    for table, rows in tomllib.loads(Path(__file__).with_name("advice.toml").read_text(encoding="utf-8")).items()
}
NOTHING: Advice = (gettext_noop("Nothing was searched or asked in this range."), gettext_noop("Choose a longer range."))
OPTIONAL: Advice = (
    gettext_noop("It is optional, and no call stated or reported it."),
    gettext_noop("Nothing to do, unless a policy asks for it."),
)
NOT_EVERYWHERE: Advice = (
    gettext_noop("It should be on these spans, and is not."),
    gettext_noop("Open one of them, or let ragd check spans name each violation. Spans of older versions may lack it."),
)
LOOKED_AT = 1000  # spans per type that the page looks at, the newest, unless it is asked for all
COMPLETE, PARTLY, MISSING, IDLE = "complete", "partly", "missing", "idle"


def advise(each: Tally) -> Advice:
    """For a row that was not recorded wherever it applies, or that applies nowhere."""
    row = each.row
    if not each.spans:
        return ADVICE["no_spans"].get(each.span_type, NOTHING)
    if each.applies:
        return NOT_EVERYWHERE
    if each.event and not row.event:
        return ADVICE["events"].get(each.event, OPTIONAL)
    if row.name in ADVICE["fields"]:
        return ADVICE["fields"][row.name]
    conditions = ADVICE["conditions"]
    return next((conditions[name] for name in row.applies or () if name in conditions), OPTIONAL)


@dataclass(frozen=True, slots=True)
class FieldEvidence:
    """One field on one type of span. event: which event of it carries the field, "" for the span itself.

    spans: how many of the type were looked at; applies: how many of them the field applies to; recorded: how many of
    those have it; hidden: of those, where the content switch put a digest or a fixed word for the text.
    state: complete, partly, missing, or idle: it applies to no span of the range. reason, advice: "" when complete.
    examples: (trace_id, span_id) of a few spans that lack it.
    """

    name: str
    span_type: str
    event: str
    requirement: str
    spans: int
    applies: int
    recorded: int
    hidden: int
    state: str
    reason: str
    advice: str
    examples: Sequence[tuple[str, str]]

    @property
    def is_gap(self) -> bool:
        """Whether somebody should look: it is missing where it applies."""
        return self.state in (PARTLY, MISSING)

    @property
    def percent(self) -> int:
        """0 to 100, rounded down, so that only what is complete shows 100; 0 where it applies nowhere."""
        return 100 * self.recorded // self.applies if self.applies else 0


@dataclass(frozen=True, slots=True)
class ControlEvidence:
    control: Control
    fields: Sequence[FieldEvidence]

    @property
    def state(self) -> str:
        """complete: every field that applies is; idle: none applies; else partly, or missing when nothing is there."""
        live = [each for each in self.fields if each.state != IDLE]
        if not live:
            return IDLE
        if all(each.state == COMPLETE for each in live):
            return COMPLETE
        return PARTLY if any(each.recorded for each in live) else MISSING


@dataclass(frozen=True, slots=True)
class FrameworkEvidence:
    name: str
    about: str
    controls: Sequence[ControlEvidence]

    def count(self, state: str) -> int:
        return sum(each.state == state for each in self.controls)

    @property
    def complete(self) -> int:
        return self.count(COMPLETE)

    @property
    def idle(self) -> int:
        return self.count(IDLE)

    @property
    def lacking(self) -> int:
        return self.count(PARTLY) + self.count(MISSING)


@dataclass(frozen=True, slots=True)
class EvidenceReport:
    """counts, seen: spans of each type in the range, and how many of them were looked at, the newest."""

    span_range: Range
    made_at: datetime
    frameworks: Sequence[FrameworkEvidence]
    counts: dict[str, int]
    seen: dict[str, int]
    is_whole: bool
    truncated: int
    lost: int
    capture: str
    leaves: str

    @property
    def spans(self) -> int:
        return sum(self.counts.values())

    @property
    def looked_at(self) -> int:
        return sum(self.seen.values())

    @property
    def gaps(self) -> list[FieldEvidence]:
        """What is missing where it applies, each field of a type once, in the order of the tables."""
        return self._fields(lambda each: each.is_gap)

    @property
    def idle(self) -> list[FieldEvidence]:
        """What applies to nothing in the range, each once."""
        return self._fields(lambda each: each.state == IDLE)

    def _fields(self, is_wanted: Any) -> list[FieldEvidence]:
        result = {
            (each.span_type, each.event, each.name): each
            for framework in self.frameworks
            for control in framework.controls
            for each in control.fields
            if is_wanted(each)
        }
        return list(result.values())


def build_report(
    requested: Range, *, limit: int | None = LOOKED_AT, tallies: Tallies | None = None, made_at: datetime | None = None
) -> EvidenceReport:
    """limit: spans of each type to look at, the newest; None for all, which takes about a second per 10,000 spans.
    tallies, made_at: what was counted of the range, and when; None: counted now."""
    tallies = tallies or tally(requested, limit)
    fields = [(each, _evidence(each)) for each in tallies.rows]
    return EvidenceReport(
        span_range=requested,
        made_at=made_at or timezone.now(),
        frameworks=[_framework(name, about, fields) for name, about in FRAMEWORKS.items()],
        counts=tallies.counts,
        seen=tallies.seen,
        is_whole=tallies.is_whole,
        truncated=tallies.truncated,
        lost=lost_spans(),
        capture=settings.RAGD_CAPTURE_CONTENT,
        leaves=settings.RAGD_OTLP_CONTENT,
    )


def _framework(name: str, about: str, fields: Sequence[tuple[Tally, FieldEvidence]]) -> FrameworkEvidence:
    numbers = [control.number for control in controls_of_tables() if control.framework == name]
    controls = [
        ControlEvidence(
            control_of(name, number),
            [evidence for each, evidence in fields if (name, number) in controls_of_row(each.row)],
        )
        for number in numbers
    ]
    return FrameworkEvidence(name, about, controls)


def _evidence(each: Tally) -> FieldEvidence:
    state = _state(each)
    reason, advice = ("", "") if state == COMPLETE else advise(each)
    return FieldEvidence(
        name=each.row.name,
        span_type=each.span_type,
        event=each.event,
        requirement=each.row.requirement,
        spans=each.spans,
        applies=each.applies,
        recorded=each.recorded,
        hidden=each.hidden,
        state=state,
        reason=reason,
        advice=advice,
        examples=tuple(each.missing),
    )


def _state(each: Tally) -> str:
    if not each.applies:
        return IDLE
    if each.recorded == each.applies:
        return COMPLETE
    return PARTLY if each.recorded else MISSING


KEPT = timedelta(hours=1)
REFRESHED = timedelta(minutes=45)  # by the worker, before it is too old
USUAL_DAYS = 30
USUAL = {"since": f"{USUAL_DAYS}d"}
KEPT_FROM = 1000  # spans looked at: fewer are counted each time, which is quick
PREFIX = "evidence:"
COUNTS = ("spans", "applies", "recorded", "hidden", "missing")


def kept_report(
    words: Mapping[str, str], requested: Range, limit: int | None = LOOKED_AT, *, again: bool = False
) -> EvidenceReport:
    """The report of a range as the address states it (words), from what was counted within KEPT, else counted now.
    again: counted now in any case."""
    name = _name(words, limit)
    stored = None if again else Status.objects.results().filter(name=name, made_at__gte=timezone.now() - KEPT).first()
    tallies = _read_tallies(stored.values) if stored else None
    if stored is None or tallies is None:
        return _count(name, requested, limit)
    return build_report(_read_range(stored.values, requested), tallies=tallies, made_at=stored.made_at)


def refresh_usual() -> bool:
    """Count what the page shows first once more, where that is older than REFRESHED; whether it was. Forgets the
    reports that are too old."""
    now = timezone.now()
    Status.objects.results().filter(name__startswith=PREFIX, made_at__lt=now - KEPT).delete()
    name = _name(USUAL, LOOKED_AT)
    if Status.objects.results().filter(name=name, made_at__gte=now - REFRESHED).exists():
        return False
    _count(name, Range(now - timedelta(days=USUAL_DAYS), now + timedelta(seconds=1)), LOOKED_AT)
    return True


def _name(words: Mapping[str, str], limit: int | None) -> str:
    stated = USUAL | {name: words[name] for name in ("since", "until", "collection") if words.get(name)}
    return PREFIX + hashlib.sha256(f"{sorted(stated.items())} {limit}".encode()).hexdigest()[:40]


def _count(name: str, requested: Range, limit: int | None) -> EvidenceReport:
    tallies, now = tally(requested, limit), timezone.now()
    values = {
        "rows": [
            [row.span_type, row.event, row.row.name, *(getattr(row, count) for count in COUNTS)] for row in tallies.rows
        ],
        "counts": tallies.counts, "seen": tallies.seen, "truncated": tallies.truncated,
        "since": requested.since.isoformat(), "until": requested.until.isoformat(),
    }  # fmt: skip
    if sum(tallies.seen.values()) >= KEPT_FROM:
        now = Status.objects.keep(Status.Kind.RESULT, name, values).made_at
    return build_report(requested, tallies=tallies, made_at=now)


def _read_tallies(values: Mapping[str, Any]) -> Tallies | None:
    """None where another version counted other rows."""
    rows = tally_rows()
    stored = values.get("rows", [])
    if [[row.span_type, row.event, row.row.name] for row in rows] != [each[:3] for each in stored]:
        return None
    for row, (_, _, _, spans, applies, recorded, hidden, missing) in zip(rows, stored, strict=True):
        row.spans, row.applies, row.recorded, row.hidden = spans, applies, recorded, hidden
        row.missing = [(trace_id, span_id) for trace_id, span_id in missing]
    return Tallies(rows, values["counts"], values["seen"], values["truncated"])


def _read_range(values: Mapping[str, Any], requested: Range) -> Range:
    since, until = (datetime.fromisoformat(values[name]) for name in ("since", "until"))
    return Range(since, until, requested.within)
