"""The evidence report: per framework and control the fields that were recorded, and for a gap what to do about it.

The tallies of a report that was made lately: looking at thousands of spans again says the same.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from collections_app.models import Report
from evaluation_app.telemetry.evidence.controls import (
    FRAMEWORKS,
    Control,
    control_of,
    controls_of_row,
    controls_of_tables,
)
from evaluation_app.telemetry.evidence.tallies import Range, Tallies, Tally, tally, tally_rows
from evaluation_app.telemetry.store.span_reads import lost_spans

Advice = tuple[str, str]  # the reason, what to do

ADVICE: Mapping[str, Mapping[str, Advice]] = {
    table: {name: (reason, deed) for name, (reason, deed) in rows.items()}
    for table, rows in tomllib.loads(Path(__file__).with_name("advice.toml").read_text(encoding="utf-8")).items()
}
NOTHING: Advice = ("Nothing was searched or asked in this range.", "Choose a longer range.")
OPTIONAL: Advice = ("It is optional, and no call stated or reported it.", "Nothing to do, unless a policy asks for it.")
NOT_EVERYWHERE: Advice = (
    "It should be on these spans, and is not.",
    "Open one of them, or let ragd check spans name each violation. Spans of older versions may lack it.",
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
    requested: Range,
    *,
    limit: int | None = LOOKED_AT,
    tallies: Tallies | None = None,
    made_at: datetime | None = None,
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
    stored = None if again else Report.objects.filter(name=name, made_at__gte=timezone.now() - KEPT).first()
    tallies = _read(stored.values) if stored else None
    if stored is None or tallies is None:
        return _count(name, requested, limit)
    return build_report(_read_range(stored.values, requested), tallies=tallies, made_at=stored.made_at)


def refresh_usual() -> bool:
    """Count what the page shows first once more, where that is older than REFRESHED; whether it was. Forgets the
    reports that are too old."""
    now = timezone.now()
    Report.objects.filter(name__startswith=PREFIX, made_at__lt=now - KEPT).delete()
    name = _name(USUAL, LOOKED_AT)
    if Report.objects.filter(name=name, made_at__gte=now - REFRESHED).exists():
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
        Report.objects.update_or_create(name=name, defaults={"values": values, "made_at": now})
    return build_report(requested, tallies=tallies, made_at=now)


def _read(values: Mapping[str, Any]) -> Tallies | None:
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
