"""Figures of all spans of a period: how long each stage takes, what fails, what models read, write and cost, by what.

A period is a named one up to now, or a range from one time to another.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop

from evaluation_app.telemetry.explorer.span_links import PIPELINE_TYPE, STAGE_WORDS
from evaluation_app.telemetry.overview.rollups import (  # fmt: skip
    BUCKET_SQL,
    KEEP_DAYS,
    MODEL_TYPES,
    lower_edge,
    percentile,
    rolled_until,
    summed_over,
)
from ragd.errors import InvalidInput
from ragd.telemetry import PRODUCTION

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Period:
    """A time in equal steps, which begin at round times. The last step may not be over. name: "" for a range."""

    name: str
    words: str
    step: timedelta
    count: int
    since: datetime
    until: datetime

    def begins(self) -> list[datetime]:
        return [self.since + number * self.step for number in range(self.count)]

    @property
    def is_rolled(self) -> bool:
        """Whether whole hours are enough for its steps."""
        return self.step >= HOUR

    def previous(self) -> Period:
        """As many steps before it, the last one as far as this one's."""
        length = self.count * self.step
        return replace(self, since=self.since - length, until=self.until - length)


PERIODS: dict[str, tuple[str, timedelta, int]] = {
    "1h": (gettext_noop("Last hour"), timedelta(minutes=2), 30),
    "24h": (gettext_noop("24 hours"), HOUR, 24),
    "7d": (gettext_noop("7 days"), timedelta(hours=6), 28),
    "30d": (gettext_noop("30 days"), DAY, 30),
}
USUAL_PERIOD = "24h"
# a range of at most so much has steps of so much, which begin at whole multiples of the third
RANGES = (
    (timedelta(hours=2), timedelta(minutes=2), timedelta(minutes=1)),
    (timedelta(days=2), HOUR, HOUR),
    (timedelta(days=14), timedelta(hours=6), HOUR),
    (timedelta(days=KEEP_DAYS), DAY, DAY),
)


def period_until(name: str, now: datetime | None = None) -> Period:
    """The named period up to now. Raises KeyError for a name that is none."""
    words, step, count = PERIODS[name]
    until = (now or timezone.now()).astimezone(UTC)
    last = floor_to(until, step)
    return Period(name, gettext(words), step, count, last - (count - 1) * step, until)


def period_between(since: datetime | None, until: datetime | None, now: datetime | None = None) -> Period:
    """From since, rounded down to the minute, hour or day that its steps begin at, to until, which is now at most and
    where it is None. Raises InvalidInput (field since or until)."""
    now = (now or timezone.now()).astimezone(UTC)
    if since is None:
        raise InvalidInput("since is needed for a time range that ends at until", field="since")
    since, until = since.astimezone(UTC), min(until or now, now).astimezone(UTC)
    if since >= until:
        raise InvalidInput("since must be before until, and before now", field="since")
    for longest, step, align in RANGES:
        if until - since <= longest:
            begin = floor_to(since, align)
            return Period("", gettext("Time range"), step, -((begin - until) // step), begin, until)
    raise InvalidInput(f"a time range has at most {KEEP_DAYS} days, which figures are kept for", field="since")


def floor_to(moment: datetime, step: timedelta) -> datetime:
    """The last whole multiple of the step, counted in UTC, that is not after the moment."""
    return EPOCH + (moment.astimezone(UTC) - EPOCH) // step * step


SHARES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
SLOWEST = 10
# what consumption is told apart by: the word in the address -> (column, words)
DIMENSIONS = {
    "model": ("model", gettext_lazy("Model")),
    "collection": ("collection", gettext_lazy("Collection")),
    "key": ("api_key", gettext_lazy("API key")),
}

PART = """
(%(collection)s = '' OR collection = %(collection)s) AND (%(key)s = '' OR api_key = %(key)s)
      AND (%(environment)s = '' OR environment = %(environment)s)
""".strip()
# days that are rolled up, then hours; the spans that began after them are added
ROLLED = f"""
rolled AS (
    SELECT *, date_bin(%(step)s, hour, %(since)s) AS step FROM span_rollups
    WHERE summed_over = %(summed_over)s
      AND ((hours = 24 AND hour >= %(since)s AND hour < %(day_edge)s)
        OR (hours = 1 AND hour >= %(day_edge)s AND hour < %(edge)s))
      AND {PART})
"""  # noqa: S608  (constants)
BEGAN = f"""
began AS (
    SELECT *, {BUCKET_SQL} AS bucket, date_bin(%(step)s, started_at, %(since)s) AS step FROM spans
    WHERE started_at >= greatest(%(since)s, %(edge)s) AND started_at < %(until)s AND type <> ''
      AND {PART})
"""  # noqa: S608  (constants)
# how many took how long, as {bucket: spans}
STAGES = f"""
WITH {ROLLED}, {BEGAN},
parts AS (
    SELECT step, type, bucket, sum(count)::bigint AS spans
    FROM rolled, unnest(buckets, counts) AS part (bucket, count) WHERE type <> '' GROUP BY 1, 2, 3
    UNION ALL
    SELECT step, type, bucket, count(*) FROM began GROUP BY 1, 2, 3),
failures AS (
    SELECT step, type, failed FROM rolled
    UNION ALL
    SELECT step, type, count(*) FILTER (WHERE status_code = 'ERROR') FROM began GROUP BY 1, 2)
SELECT step, type, durations, failed
FROM (SELECT step, type, jsonb_object_agg(bucket, spans) AS durations
      FROM (SELECT step, type, bucket, sum(spans) AS spans FROM parts GROUP BY 1, 2, 3) AS whole GROUP BY 1, 2) AS took
JOIN (SELECT step, type, sum(failed)::bigint AS failed FROM failures GROUP BY 1, 2) AS went USING (step, type)
"""  # noqa: S608  (constants)
CONSUMPTION = {
    name: f"""
WITH {ROLLED}, {BEGAN}
SELECT step, {column}, sum(spans)::bigint, sum(input_tokens)::bigint, sum(output_tokens)::bigint, sum(cost_usd),
       sum(priced)::bigint
FROM rolled WHERE type = ANY(%(types)s) GROUP BY 1, 2
UNION ALL
SELECT step, {column}, count(*), coalesce(sum(input_tokens), 0)::bigint, coalesce(sum(output_tokens), 0)::bigint,
       coalesce(sum(cost_usd), 0), count(cost_usd)
FROM began WHERE type = ANY(%(types)s) GROUP BY 1, 2
"""  # noqa: S608  (constants)
    for name, (column, _) in DIMENSIONS.items()
}
SLOWEST_QUERIES = f"""
SELECT trace_id, span_id, name, started_at, duration_ms, status_code, collection, run_id FROM spans
WHERE started_at >= %(since)s AND started_at < %(until)s AND duration_ms >= %(at_least)s AND type = %(type)s
  AND {PART}
ORDER BY duration_ms DESC, trace_id, span_id LIMIT %(limit)s
"""  # noqa: S608  (constants)


@dataclass(slots=True)
class StageFigures:
    """One type of span. buckets: how many by duration, see `rollups`; steps: the same for each step."""

    type: str
    steps: list[Counter[int]]
    failed_steps: list[int]
    buckets: Counter[int] = field(default_factory=Counter)

    @property
    def label(self) -> str:
        return str(STAGE_WORDS.get(self.type, self.type))

    @property
    def spans(self) -> int:
        return self.buckets.total()

    @property
    def failed(self) -> int:
        return sum(self.failed_steps)

    @property
    def failed_share(self) -> float | None:
        return self.failed / self.spans if self.spans else None

    @property
    def p50(self) -> float | None:
        return percentile(self.buckets, 0.5)

    @property
    def p90(self) -> float | None:
        return percentile(self.buckets, 0.9)

    @property
    def p99(self) -> float | None:
        return percentile(self.buckets, 0.99)

    def over_time(self, share: float) -> tuple[float | None, ...]:
        """The percentile of each step, None for one without spans."""
        return tuple(percentile(step, share) for step in self.steps)

    def add(self, index: int, durations: Mapping[str, int], failed: int) -> None:
        """durations: how many spans by bucket, as JSON has it."""
        buckets = {int(bucket): spans for bucket, spans in durations.items()}
        self.steps[index].update(buckets)
        self.buckets.update(buckets)
        self.failed_steps[index] += failed


@dataclass(slots=True)
class Consumption:
    """What the model calls of one model, collection or key read, wrote and cost, per step and together.

    name: "" where the spans name none. cost_usd: of the priced calls alone.
    """

    name: str
    input_steps: list[int]
    output_steps: list[int]
    cost_steps: list[float]
    calls: int = 0
    priced: int = 0

    @property
    def input_tokens(self) -> int:
        return sum(self.input_steps)

    @property
    def output_tokens(self) -> int:
        return sum(self.output_steps)

    @property
    def cost_usd(self) -> float | None:
        """None where no call has a known price."""
        return sum(self.cost_steps) if self.priced else None


@dataclass(frozen=True, slots=True)
class SlowQuery:
    trace_id: str
    span_id: str
    name: str
    started_at: datetime
    duration_ms: float
    status_code: str
    collection: str
    run_id: Any


@dataclass(frozen=True, slots=True)
class Rolled:
    """What began before these moments is read from the rollups, by the hour and by the day; None: nothing is."""

    hours: datetime | None = None
    days: datetime | None = None


def read_rolled(period: Period) -> Rolled:
    """As far as the steps of the period allow; two queries at most."""
    return Rolled(
        hours=rolled_until() if period.is_rolled else None, days=rolled_until(24) if period.step >= DAY else None
    )


@dataclass(frozen=True, slots=True)
class FigureFilter:
    """The part of all spans that is looked at; "" for all collections, all keys, all environments. rolled: None: each
    statement asks for it again."""

    period: Period
    collection: str = ""
    key: str = ""
    environment: str = PRODUCTION
    rolled: Rolled | None = None

    def previous(self) -> FigureFilter:
        return replace(self, period=self.period.previous())

    def values(self, *told_apart: str) -> dict[str, Any]:
        """Of a statement that tells apart by these columns."""
        columns = [*told_apart, *(["collection"] if self.collection else []), *(["api_key"] if self.key else [])]
        since, until = self.period.since, self.period.until
        rolled = self.rolled or read_rolled(self.period)
        edge = min(rolled.hours or since, floor_to(until, HOUR))
        day_edge = min(rolled.days or since, floor_to(edge, DAY))
        return {
            "since": since,
            "until": until,
            "step": self.period.step,
            "edge": edge,
            "day_edge": max(since, day_edge),
            "summed_over": summed_over(columns),
            "collection": self.collection,
            "key": self.key,
            "environment": self.environment,
        }

    def index_of(self, step: datetime) -> int:
        return (step - self.period.since) // self.period.step


def stage_figures(figure_filter: FigureFilter) -> dict[str, StageFigures]:
    """Every type with spans in the period, in the order of the work; the whole query always, first."""
    empty = range(figure_filter.period.count)
    result: dict[str, StageFigures] = {}
    for step, name, durations, failed in [(None, PIPELINE_TYPE, "{}", 0), *_rows(STAGES, figure_filter.values())]:
        stage = result.get(name)
        if stage is None:
            stage = result[name] = StageFigures(name, [Counter() for _ in empty], [0 for _ in empty])
        if step is not None:
            stage.add(figure_filter.index_of(step), json.loads(durations), failed)
    order = list(STAGE_WORDS)
    return dict(sorted(result.items(), key=lambda item: (_index(order, item[0]), item[0])))


def _index(order: Sequence[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def consumption(figure_filter: FigureFilter, by: str) -> list[Consumption]:
    """What models read, wrote and cost by `by`, a name of DIMENSIONS; the most tokens first, ties by name."""
    result: dict[str, Consumption] = {}
    count = figure_filter.period.count
    values = figure_filter.values(DIMENSIONS[by][0]) | {"types": list(MODEL_TYPES)}
    for step, name, calls, read, written, cost, priced in _rows(CONSUMPTION[by], values):
        part = result.setdefault(name, Consumption(name, [0] * count, [0] * count, [0.0] * count))
        position = figure_filter.index_of(step)
        part.input_steps[position] += read
        part.output_steps[position] += written
        part.cost_steps[position] += cost
        part.calls += calls
        part.priced += priced
    return sorted(result.values(), key=lambda part: (-part.input_tokens - part.output_tokens, part.name))


def slowest_queries(figure_filter: FigureFilter, whole: StageFigures) -> list[SlowQuery]:
    """The ten slowest queries, the slowest first. whole: the figures of the whole query in the same period."""
    values = figure_filter.values() | {"type": PIPELINE_TYPE, "limit": SLOWEST}
    at_least = lower_edge(whole.buckets, SLOWEST) * 0.999
    rows = _rows(SLOWEST_QUERIES, values | {"at_least": at_least})
    if len(rows) < SLOWEST and at_least:  # the slowest that were counted are past their retention
        rows = _rows(SLOWEST_QUERIES, values | {"at_least": 0})
    return [SlowQuery(*row) for row in rows]


def _rows(statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())
