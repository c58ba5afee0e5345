"""Spans added up by the hour and by the day: how many took how long and failed, what models read, wrote and cost.

The worker rolls up hours that are over. Whoever reads takes the hours after the last of them from the spans themselves
(`figures.py`), so that figures are never behind, only slower while no worker runs. What is rolled up outlives its
spans.

An hour is added up once for every set of what is told apart: of all spans of a type, of each collection, of each key,
of each collection and key, and for model calls the same by model. A page reads the one set that it shows. Environments
are always kept apart; whoever wants all of them adds them up.

Durations are kept as counts per bucket. Bucket b holds durations from BASE ** b to BASE ** (b + 1) milliseconds and
stands for their geometric middle, so a percentile is within 4.9 % of the span that it names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from collections_app.advisory_locks import LockSpace, try_lock, whole
from evaluation_app.models import SpanRollup

BASE = 1.1
ERROR_SHARE = math.sqrt(BASE) - 1
LOWEST_MS = 0.001
SETTLE = timedelta(minutes=5)  # spans of the last batches of an hour may come so long after it
HOUR = timedelta(hours=1)
RECENT = timedelta(hours=26)
KEEP_DAYS = 62

# what a set adds up over: the sum of these, as GROUPING(collection, model, api_key) gives it
SUMMED = {"collection": 4, "model": 2, "api_key": 1}
OVER_ALL = sum(SUMMED.values())
MODEL_TYPES = ("gen_ai.inference", "gen_ai.embeddings")  # the spans of model calls

BUCKET_SQL = f"floor(ln(greatest(duration_ms, {LOWEST_MS})) / ln({BASE}))::smallint"

# hours that hold more spans than were rolled up; one that holds fewer lost them to retention and stays as it is
STALE_HOURS = """
WITH stored AS (
    SELECT date_trunc('hour', started_at, 'UTC') AS hour, count(*) AS spans FROM spans
    WHERE started_at >= %(since)s AND started_at < %(before)s GROUP BY 1),
rolled AS (
    SELECT hour, sum(spans) AS spans FROM span_rollups
    WHERE summed_over = %(over_all)s AND hours = 1 AND hour >= %(since)s AND hour < %(before)s GROUP BY 1)
SELECT stored.hour FROM stored LEFT JOIN rolled USING (hour)
WHERE stored.spans > coalesce(rolled.spans, 0) ORDER BY stored.hour
"""
FORGET_HOUR = "DELETE FROM span_rollups WHERE hour = %(hour)s AND hours = 1"
ROLL_HOUR = f"""
WITH began AS (
    SELECT type, environment, collection, model, api_key, {BUCKET_SQL} AS bucket, status_code, input_tokens,
           output_tokens, cost_usd
    FROM spans WHERE started_at >= %(hour)s AND started_at < %(hour)s + interval '1 hour'),
counted AS (
    SELECT GROUPING(collection, model, api_key) AS summed_over, type, environment, collection, model, api_key, bucket,
           count(*) AS spans, count(*) FILTER (WHERE status_code = 'ERROR') AS failed,
           coalesce(sum(input_tokens), 0) AS input_tokens, coalesce(sum(output_tokens), 0) AS output_tokens,
           coalesce(sum(cost_usd), 0) AS cost_usd, count(cost_usd) AS priced
    FROM began GROUP BY type, environment, bucket, CUBE (collection, model, api_key))
INSERT INTO span_rollups (hour, hours, summed_over, type, environment, collection, model, api_key, buckets, counts,
                          spans, failed, input_tokens, output_tokens, cost_usd, priced)
SELECT %(hour)s, 1, summed_over, type, environment, coalesce(collection, ''), coalesce(model, ''),
       coalesce(api_key, ''), array_agg(bucket ORDER BY bucket), array_agg(spans ORDER BY bucket), sum(spans),
       sum(failed), sum(input_tokens), sum(output_tokens), sum(cost_usd), sum(priced)
FROM counted
WHERE summed_over = %(over_all)s OR (type <> '' AND summed_over & %(model)s <> 0) OR type = ANY(%(model_types)s)
GROUP BY summed_over, type, environment, collection, model, api_key
"""  # noqa: S608  (constants of this module)
# days that are over and whose hours hold more or fewer spans than was added up
STALE_DAYS = """
WITH hourly AS (
    SELECT date_trunc('day', hour, 'UTC') AS day, sum(spans) AS spans FROM span_rollups
    WHERE summed_over = %(over_all)s AND hours = 1 AND hour >= %(since)s AND hour < %(before)s GROUP BY 1),
daily AS (
    SELECT hour AS day, sum(spans) AS spans FROM span_rollups
    WHERE summed_over = %(over_all)s AND hours = 24 AND hour >= %(since)s AND hour < %(before)s GROUP BY 1)
SELECT hourly.day FROM hourly LEFT JOIN daily USING (day)
WHERE hourly.spans <> coalesce(daily.spans, 0) ORDER BY hourly.day
"""
FORGET_DAY = "DELETE FROM span_rollups WHERE hour = %(day)s AND hours = 24"
ROLL_DAY = """
WITH hourly AS (
    SELECT * FROM span_rollups WHERE hours = 1 AND hour >= %(day)s AND hour < %(day)s + interval '1 day'),
durations AS (
    SELECT summed_over, type, environment, collection, model, api_key, array_agg(bucket ORDER BY bucket) AS buckets,
           array_agg(count ORDER BY bucket) AS counts
    FROM (
        SELECT summed_over, type, environment, collection, model, api_key, bucket, sum(count) AS count
        FROM hourly, unnest(buckets, counts) AS part (bucket, count) GROUP BY 1, 2, 3, 4, 5, 6, 7) AS parts
    GROUP BY 1, 2, 3, 4, 5, 6),
sums AS (
    SELECT summed_over, type, environment, collection, model, api_key, sum(spans) AS spans, sum(failed) AS failed,
           sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd,
           sum(priced) AS priced
    FROM hourly GROUP BY 1, 2, 3, 4, 5, 6)
INSERT INTO span_rollups (hour, hours, summed_over, type, environment, collection, model, api_key, buckets, counts,
                          spans, failed, input_tokens, output_tokens, cost_usd, priced)
SELECT %(day)s, 24, summed_over, type, environment, collection, model, api_key, buckets, counts, spans, failed,
       input_tokens, output_tokens, cost_usd, priced
FROM sums JOIN durations USING (summed_over, type, environment, collection, model, api_key)
"""
OLDEST_SPAN = "SELECT min(started_at) FROM spans"


def roll_up(*, everything: bool = False) -> int:
    """Roll up the hours that are over and hold spans that are not counted yet; returns how many hours. Then the days.

    Those of the last 26 hours; everything: of all time, for spans that ended long after they began or were brought
    in from elsewhere. Each hour is a transaction of its own, the oldest first, so that none before the newest one is
    left out; so is each day. Does nothing while another process does it.
    """
    before = (timezone.now() - SETTLE).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    until = rolled_until()
    since = _first_hour() if everything or until is None else min(before - RECENT, until)
    if since is None or since >= before:
        return 0
    hours = _moments(STALE_HOURS, since, before)
    for count, hour in enumerate(hours):
        values = {"hour": hour, "over_all": OVER_ALL, "model": SUMMED["model"], "model_types": list(MODEL_TYPES)}
        if not _replace(FORGET_HOUR, ROLL_HOUR, values):
            return count
    for day in _moments(STALE_DAYS, since.replace(hour=0), before.replace(hour=0)):
        if not _replace(FORGET_DAY, ROLL_DAY, {"day": day}):
            break
    return len(hours)


def _first_hour() -> datetime | None:
    with connection.cursor() as cursor:
        cursor.execute(OLDEST_SPAN)
        oldest: datetime | None = cursor.fetchone()[0]
    return oldest and oldest.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _moments(statement: str, since: datetime, before: datetime) -> list[datetime]:
    with connection.cursor() as cursor:
        cursor.execute(statement, {"since": since, "before": before, "over_all": OVER_ALL})
        return [moment for (moment,) in cursor.fetchall()]


def _replace(forget: str, roll: str, values: Mapping[str, Any]) -> bool:
    """Whether it was this process that did it."""
    with transaction.atomic(), connection.cursor() as cursor:
        if not try_lock(whole(LockSpace.SPAN_ROLLUP)):
            return False
        cursor.execute(forget, values)
        cursor.execute(roll, values)
    return True


def rolled_until(hours: int = 1) -> datetime | None:
    """What began before this moment is in the rollups of 1 or 24 hours, but what came late; None: nothing is."""
    newest = SpanRollup.objects.filter(summed_over=OVER_ALL, hours=hours).order_by("-hour")
    began = newest.values_list("hour", flat=True).first()
    return began and began + hours * HOUR


def forget_old_rollups() -> int:
    """Delete what is older than 62 days, twice the longest period of the overview; returns how many rows."""
    return SpanRollup.objects.filter(hour__lt=timezone.now() - timedelta(days=KEEP_DAYS)).delete()[0]


def summed_over(told_apart: Iterable[str]) -> int:
    """The set that tells apart by these columns alone."""
    return OVER_ALL - sum(SUMMED[column] for column in set(told_apart))


def percentile(buckets: Mapping[int, int], share: float) -> float | None:
    """The duration in ms that `share` of the spans do not exceed, by the nearest rank, within ERROR_SHARE of it.

    buckets: how many spans by bucket, in any order. None without spans.
    """
    total = sum(buckets.values())
    if not total:
        return None
    rank, seen = max(1, math.ceil(share * total - 1e-9)), 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= rank:
            return float(BASE ** (bucket + 0.5))
    raise AssertionError("the counts add up to their sum")


def lower_edge(buckets: Mapping[int, int], count: int) -> float:
    """A duration in ms that at least `count` spans reach, as high as the buckets can tell; 0 for all of them."""
    seen = 0
    for bucket in sorted(buckets, reverse=True):
        seen += buckets[bucket]
        if seen >= count:
            return float(BASE**bucket)
    return 0.0
