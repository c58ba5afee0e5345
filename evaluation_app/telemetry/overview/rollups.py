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
from collections_app.domain.rows import read_statements
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

SQL = read_statements(__file__, bucket=BUCKET_SQL)


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
    hours = _moments(SQL["stale hours"], since, before)
    for count, hour in enumerate(hours):
        values = {"hour": hour, "over_all": OVER_ALL, "model": SUMMED["model"], "model_types": list(MODEL_TYPES)}
        if not _replace(SQL["forget hour"], SQL["roll hour"], values):
            return count
    for day in _moments(SQL["stale days"], since.replace(hour=0), before.replace(hour=0)):
        if not _replace(SQL["forget day"], SQL["roll day"], {"day": day}):
            break
    return len(hours)


def _first_hour() -> datetime | None:
    with connection.cursor() as cursor:
        cursor.execute(SQL["oldest span"])
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
