"""How many spans of a filter began when, and how long they took: counts for bars, read as a search reads, in time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db import connection
from django.utils import timezone

from evaluation_app.models.spans import SpanQuerySet
from evaluation_app.spans.search.filters import SpanFilter
from evaluation_app.spans.search.search import SlowSearch, TimeWindows, first_and_last, matching
from ragd.telemetry.metrics import MS_BUCKETS

BUDGET_S = 0.25
BARS_MAX = 60
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # steps begin at whole multiples from here
STEPS = tuple(
    timedelta(seconds=seconds)
    for seconds in (1, 5, 15, 30, 60, 120, 300, 900, 1800, 3600, 7200, 21600, 43200, 86400, 604800, 2592000, 31536000)
)
COUNT_SPANS = """
SELECT date_bin(make_interval(secs => %s), started_at, %s), width_bucket(duration_ms, %s), status_code = 'ERROR',
       count(*)
FROM ({rows}) AS matching GROUP BY 1, 2, 3
"""


@dataclass(slots=True)
class SpanCounts:
    """Of the spans of a filter between since and until.

    begins: of each step, oldest first; total and failed: spans by the step's begin. durations: spans by bucket: 0 is
    below the first of MS_BUCKETS, which is in bucket 1. reached: None when all were counted; else spans that began
    before it were not, because the time was over.
    """

    step: timedelta
    begins: list[datetime]
    total: Counter[datetime] = field(default_factory=Counter)
    failed: Counter[datetime] = field(default_factory=Counter)
    durations: Counter[int] = field(default_factory=Counter)
    reached: datetime | None = None


def count_spans(span_filter: SpanFilter) -> SpanCounts:
    """In steps of a round length, BARS_MAX at most, between the filter's times, as far as they lie between the oldest
    span and now; without steps where nothing does. What is counted within BUDGET_S, newest first."""
    now, oldest = timezone.now(), first_and_last()[0]
    until = min(span_filter.until or now, now)
    since = max(span_filter.since or oldest, oldest)
    if since >= until:
        return SpanCounts(STEPS[0], [])
    step = step_of(until - since)
    counts = SpanCounts(step, _begins(since, until, step))

    def count(rows: SpanQuerySet, _: int) -> list[None]:
        sql, params = rows.values("started_at", "duration_ms", "status_code").query.sql_with_params()
        with connection.cursor() as cursor:
            cursor.execute(COUNT_SPANS.format(rows=sql), [step.total_seconds(), EPOCH, list(MS_BUCKETS), *params])
            for begin, bucket, has_failed, spans in cursor.fetchall():
                counts.total[begin] += spans
                counts.failed[begin] += spans * has_failed
                counts.durations[bucket] += spans
        return []

    stretches = TimeWindows(matching(span_filter).order_by(), span_filter.until, span_filter.since, budget_s=BUDGET_S)
    try:
        stretches.walk(1, count)
    except SlowSearch:
        counts.reached = until
    else:
        counts.reached = stretches.reached
    return counts


def step_of(length: timedelta) -> timedelta:
    """The shortest round step of which BARS_MAX cover the length, however it lies between them."""
    return next((step for step in STEPS if length <= step * (BARS_MAX - 1)), STEPS[-1])


def _begins(since: datetime, until: datetime, step: timedelta) -> list[datetime]:
    """Of the steps that cover the time from since to until, which is later."""
    begin = EPOCH + (since.astimezone(UTC) - EPOCH) // step * step
    return [begin + number * step for number in range(-((begin - until) // step))]
