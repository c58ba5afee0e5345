"""Figures of all spans of a period, summed up by hour and day, and what the models in use cost.

The worker rolls up hours that are over. Whoever reads takes the hours after the last of them from the spans themselves
(`figures.py`), so that figures are never behind, only slower while no worker runs. What is rolled up outlives its
spans.

An hour is added up once for every set of what is told apart: of all spans of a type, of each collection, of each key,
of each collection and key, and for model calls the same by model. A page reads the one set that it shows. Environments
are always kept apart; whoever wants all of them adds them up.

Durations are kept as counts per bucket. Bucket b holds durations from BASE ** b to BASE ** (b + 1) milliseconds and
stands for their geometric middle, so a percentile is within 4.9 % of the span that it names.

A period is a named one up to now, or a range from one time to another.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.contrib.auth.models import AnonymousUser, User
from django.db import connection, transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop

from collections_app.advisory_locks import LockSpace, try_lock, whole
from collections_app.domain.rows import read_statements
from collections_app.endpoints.endpoints import chat_endpoint
from collections_app.endpoints.prices import entered, find_cost, table_version
from collections_app.index.stores import embedder_for
from collections_app.models import Collection, ModelPrice
from evaluation_app.models import Span, SpanRollup
from evaluation_app.telemetry.explorer.span_links import PIPELINE_TYPE, STAGE_WORDS
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.telemetry import PRODUCTION

BASE = 1.1
ERROR_SHARE = math.sqrt(BASE) - 1
LOWEST_MS = 0.001
SETTLE = timedelta(minutes=5)  # spans of the last batches of an hour may come so long after it
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
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
    return SpanRollup.objects.filter(hour__lt=timezone.now() - KEEP_DAYS * DAY).delete()[0]


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
    """One type of span. buckets: how many by duration, see `BASE`; steps: the same for each step."""

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


def begin_with_data(
    figure_filter: FigureFilter, stages: dict[str, StageFigures]
) -> tuple[FigureFilter, dict[str, StageFigures]]:
    """Shorten a period without spans before it to where its spans begin, an hour at least, with finer steps.

    stages: its stage figures. Returns those of the shorter period with it.
    """
    period = figure_filter.period
    first = next((index for index in range(period.count) if any(stage.steps[index] for stage in stages.values())), 0)
    shorter = period_between(min(period.since + first * period.step, period.until - HOUR), period.until)
    if shorter.since <= period.since:
        return figure_filter, stages
    figure_filter = replace(figure_filter, period=shorter, rolled=read_rolled(shorter))
    return begin_with_data(figure_filter, stage_figures(figure_filter))


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


PERIOD = "30d"
SAMPLE = 1000  # tokens: a price that grows with the number of tokens is shown as it begins

Use = tuple[str, str, str]  # (operation, provider, model)


@dataclass(frozen=True, slots=True)
class PricedModel:
    """input, output: US dollars per million tokens, None where nobody prices them. is_tiered: more tokens cost more.

    source: "table", "override", "" for none. calls, spent_usd, tokens: in the period, as the overview counts them.
    system: "" where no span names it.
    """

    operation: str
    system: str
    model: str
    calls: int
    spent_usd: float
    unpriced_calls: int
    is_configured: bool
    tokens: int = 0
    source: str = ""
    input: float | None = None
    output: float | None = None
    is_tiered: bool = False

    @property
    def is_local(self) -> bool:
        return telemetry.is_local(self.system)

    @property
    def was_paid(self) -> bool:
        """Whether any call of it had a price."""
        return not self.is_local and self.calls > self.unpriced_calls

    @property
    def calls_href(self) -> str:
        """The spans of its calls that are still kept."""
        address = reverse("evaluation:activity", args=["spans"])
        return f"{address}?{urlencode({'type': self.operation, 'model': self.model})}"

    @property
    def enter_href(self) -> str:
        """The form that enters a price for it."""
        query = urlencode({"system": self.system, "model": self.model})
        return f"{reverse('admin:collections_app_modelprice_add')}?{query}"


def priced_models() -> list[PricedModel]:
    """The configured models and those that were called in the period, by provider, model, operation.

    Raises DatabaseError.
    """
    entered.read()
    configured = set(_configured())
    rows = {row.name: row for row in consumption(FigureFilter(period_until(PERIOD)), "model") if row.name}
    uses = configured | _recent_uses(rows.keys() - {model for _, _, model in configured})
    unused = Consumption("", [], [], [])
    return [
        _priced(use, rows.get(use[2], unused), use in configured)
        for use in sorted(uses, key=lambda use: (use[1], use[2], use[0]))
    ]


def _recent_uses(models: Iterable[str]) -> set[Use]:
    """Operation and provider of the newest call of each model."""
    spans = Span.objects.filter(type__in=MODEL_TYPES, model__in=list(models)).order_by("model", "-started_at")
    return {
        (str(attributes.get(telemetry.OPERATION_NAME, "")), str(attributes.get(telemetry.PROVIDER_NAME, "")), model)
        for model, attributes in spans.distinct("model").values_list("model", "attributes")
    }


def _configured() -> Iterable[Use]:
    models = Collection.objects.live().order_by().values_list("embed_model", "embed_dims").distinct()
    for model, dims in models:
        yield telemetry.EMBEDDINGS, embedder_for(model, dims).system, model
    answering = chat_endpoint()
    if answering is not None:
        yield telemetry.CHAT, telemetry.provider_of(urlsplit(answering.address).hostname), answering.model


def _priced(use: Use, calls: Consumption, is_configured: bool) -> PricedModel:
    operation, system, model = use
    unpriced = 0 if telemetry.is_local(system) else calls.calls - calls.priced
    tokens = calls.input_tokens + calls.output_tokens
    base = (operation, system, model, calls.calls, calls.cost_usd or 0.0, unpriced, is_configured, tokens)
    writes = SAMPLE if operation == telemetry.CHAT else 0
    cost = find_cost(system, model, SAMPLE, writes, 0)
    if cost is None:
        return PricedModel(*base)
    million = 1_000_000 / SAMPLE
    return PricedModel(
        *base,
        source=cost.source,
        input=cost.input * million,
        output=cost.output * million if writes else None,
        is_tiered=cost.input_per_million is None,
    )


def describe_prices(user: User | AnonymousUser) -> dict[str, Any]:
    """What the prices below the models show, to this reader."""
    rows = priced_models()
    return {
        "models": rows,
        "entered": list(ModelPrice.objects.all()),
        "table": table_version(),
        "spent": sum(row.spent_usd for row in rows),
        "unpriced": sum(row.unpriced_calls for row in rows),
        "may_enter": user.has_perm("collections_app.add_modelprice"),
    }
