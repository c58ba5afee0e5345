"""The tallies of a report that was made lately: looking at thousands of spans again says the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from collections_app.models import Report
from evaluation_app.spans.evidence.report import LOOKED_AT, EvidenceReport, build_report
from evaluation_app.spans.evidence.tallies import Range, Tallies, tally, tally_rows

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
