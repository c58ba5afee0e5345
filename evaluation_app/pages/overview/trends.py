"""The four numbers of Home with what they were: documents, runs, median time, share of questions answered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.db.models import Aggregate, Count, FloatField, Q
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, TruncDate
from django.utils import timezone

from collections_app.models import Document
from evaluation_app.pages.overview.periods import period_until
from retrieval_app.models import QueryRun

DAYS = 14
ASKED = Q(kind=QueryRun.Kind.ASK)
ANSWERED = ASKED & Q(status=QueryRun.Status.OK)
TOOK_MS = Cast(KeyTextTransform("total", "timings_ms"), FloatField())


class Median(Aggregate):
    """The continuous median of an expression."""

    function = "PERCENTILE_CONT"
    template = "%(function)s(0.5) WITHIN GROUP (ORDER BY %(expressions)s)"
    output_field = FloatField()


@dataclass(frozen=True, slots=True)
class Trend:
    """now: the last 7 days, as the Traces page counts them (documents: all). before: as long before that.

    days: one value per day, oldest first, None where there is nothing to measure.
    """

    now: float | None
    before: float | None
    days: list[float | None]


@dataclass(frozen=True, slots=True)
class HomeTrends:
    """since: where the last 7 days begin."""

    since: datetime
    documents: Trend
    runs: Trend
    took_ms: Trend
    answered: Trend


def home_trends() -> HomeTrends:
    """Three queries, whatever is stored."""
    now = timezone.now()
    week, weeks = _run_figures(now), _runs_per_day(now)
    days = [(now - timedelta(days=DAYS - 1 - back)).date() for back in range(DAYS)]
    daily = [weeks.get(day, {}) for day in days]
    return HomeTrends(
        since=period_until("7d", now).since,
        documents=_documents(now, days),
        runs=Trend(week["now_total"], week["before_total"], [row.get("total", 0) for row in daily]),
        took_ms=Trend(week["now_median"], week["before_median"], [row.get("median") for row in daily]),
        answered=Trend(
            _share(week["now_answered"], week["now_asked"]),
            _share(week["before_answered"], week["before_asked"]),
            [_share(row.get("answered", 0), row.get("asked", 0)) for row in daily],
        ),
    )


def _run_figures(now: datetime) -> dict[str, Any]:
    week = period_until("7d", now)
    first = week.since - (week.until - week.since)
    spans = {"now": Q(created_at__gte=week.since), "before": Q(created_at__lt=week.since)}
    figures: dict[str, Aggregate] = {}
    for name, span in spans.items():
        figures[f"{name}_total"] = Count("pk", filter=span)
        figures[f"{name}_asked"] = Count("pk", filter=span & ASKED)
        figures[f"{name}_answered"] = Count("pk", filter=span & ANSWERED)
        figures[f"{name}_median"] = Median(TOOK_MS, filter=span)
    return QueryRun.objects.of_production().filter(created_at__gte=first).aggregate(**figures)


def _runs_per_day(now: datetime) -> dict[date, dict[str, Any]]:
    rows = (
        QueryRun.objects.of_production()
        .filter(created_at__gte=now - timedelta(days=DAYS))
        .order_by()
        .annotate(day=TruncDate("created_at"))
        .values("day")
        .annotate(total=Count("pk"), asked=Count("pk", filter=ASKED))
        .annotate(answered=Count("pk", filter=ANSWERED), median=Median(TOOK_MS))
    )
    return {row["day"]: dict(row) for row in rows}


def _documents(now: datetime, days: list[date]) -> Trend:
    """How many of today's documents were there at the end of each day."""
    known = Document.objects.filter(collection__deleted_at__isnull=True)
    made = {f"day_{index}": Count("pk", filter=Q(created_at__date__lte=day)) for index, day in enumerate(days)}
    counts = known.aggregate(total=Count("pk"), **made)
    return Trend(counts["total"], counts["day_6"], [counts[f"day_{index}"] for index in range(DAYS)])


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
