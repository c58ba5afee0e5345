"""Reads of the span store by filter: pages, neighbours, counts by value, the slowest. Newest first, ties by id.

A search goes back in time window by window and stops when it has what was asked for or when its time is over: then it
says how far it came, and its cursor goes on from there.

How many spans of a filter began when, and how long they took: counts for bars, read as a search reads, in time.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import partial
from typing import TypeVar
from uuid import UUID

from django.db import OperationalError, connection, transaction
from django.db.models import Q
from django.utils import timezone
from psycopg.errors import QueryCanceled

from collections_app.access.models import EVERYTHING, CollectionScope
from collections_app.domain.formats import parse_moment
from evaluation_app.models import Span
from evaluation_app.models.spans import SpanQuerySet
from evaluation_app.telemetry.search.language import (
    known_attributes,
    known_types,
    parse_expression,
    seen_types,
    words_match,
)
from evaluation_app.telemetry.store.exporter import (
    OI_KINDS,
    OTEL_KINDS,
    OWN_TYPES,
    TABLE_TYPES,
    TYPES_BY_PREFIX,
    split_words,
)
from ragd.errors import InvalidInput
from ragd.telemetry import ENVIRONMENTS
from ragd.telemetry.metrics import MS_BUCKETS

STATUSES = ("ok", "error", "unset")
# parameters: those that may be given many times, with the field of SpanFilter, then the others
SEVERAL = {
    "type": "types", "kind": "kinds", "collection": "collections", "model": "models", "api_key": "api_keys",
    "status": "statuses", "service": "services", "environment": "environments",
}  # fmt: skip
SINGLE = ("name", "min_ms", "max_ms", "since", "until", "text", "where", "trace_id", "run_id")
FIELDS = (*SEVERAL, *SINGLE)
ALL = "all"  # environments: as if none was given, where a page would take production
VALUES_MAX = 50
TEXT_MAX = 2000


@dataclass(frozen=True, slots=True)
class SpanFilter:
    """Which spans are wanted. Every field narrows; within one tuple any value will do; the default wants all.

    types: of the span tables or own names. kinds: of OpenInference or OpenTelemetry. statuses: ok, error, unset.
    name: what the span's name begins with. min_ms, max_ms: bounds of the duration, both included. since is included,
    until is not. text: words that all must occur, see `words_match`. where: an expression of the filter language.
    environments: production, evaluation, playground, interface, all. since_text, until_text: as they were given
    ("24h"), for addresses. within: what the caller may see.
    """

    types: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    name: str = ""
    min_ms: float | None = None
    max_ms: float | None = None
    since: datetime | None = None
    until: datetime | None = None
    since_text: str = ""
    until_text: str = ""
    text: str = ""
    where: str = ""
    trace_id: str = ""
    run_id: UUID | None = None
    within: CollectionScope = EVERYTHING

    def as_params(self) -> list[tuple[str, str]]:
        """(name, value) of an address that gives this filter again; [] for the default. `within` is left out."""
        pairs = [(name, value) for name, field in SEVERAL.items() for value in getattr(self, field)]
        texts = {"min_ms": _plain(self.min_ms), "max_ms": _plain(self.max_ms)}
        for name, text, moment in (("since", self.since_text, self.since), ("until", self.until_text, self.until)):
            texts[name] = text or (moment.isoformat() if moment else "")
        single = [(name, texts.get(name) or str(getattr(self, name) or "")) for name in SINGLE]
        return pairs + [(name, value) for name, value in single if value]

    def without(self, *names: str) -> SpanFilter:
        """The same filter with these fields (of the dataclass) at their defaults."""
        default = SpanFilter()
        return replace(self, **{name: getattr(default, name) for name in names})

    def only_of(self, scope: CollectionScope) -> SpanFilter:
        """The same filter for a caller who may see these collections only."""
        return replace(self, within=scope)


def parse_filter(value: Mapping[str, str | Sequence[str]], *, also: Collection[str] = ()) -> SpanFilter:
    """The filter that an address or request states: name -> value, or values. A QueryDict will do. Empty values count
    as not given.

    type, kind, collection, model, api_key, status, service and environment may be given many times. since and until are
    ISO 8601 (UTC unless stated) or an age: `30m`, `24h`, `7d`. also: names that are the caller's own.
    Raises InvalidInput, naming the field, for an unknown name (and lists the known ones) or an unacceptable value.
    """
    values = {name: result for name in value if name not in also and (result := _values(value, name))}
    for name in values:
        if name not in FIELDS:
            raise InvalidInput(f"spans have no filter {name!r}; there are {', '.join(FIELDS)}", field=name)
    one = {name: result[-1] for name, result in values.items()}
    where = one.get("where", "")
    if where:
        parse_expression(where)
    return SpanFilter(
        types=_types(values.get("type", [])),
        kinds=_known("kind", [kind.upper() for kind in values.get("kind", [])], (*OI_KINDS, *OTEL_KINDS)),
        collections=tuple(values.get("collection", [])),
        models=tuple(values.get("model", [])),
        api_keys=tuple(values.get("api_key", [])),
        statuses=_known("status", [status.lower() for status in values.get("status", [])], STATUSES),
        services=tuple(values.get("service", [])),
        environments=_known("environment", values.get("environment", []), (*ENVIRONMENTS, ALL)),
        name=one.get("name", ""),
        min_ms=_number("min_ms", one.get("min_ms")),
        max_ms=_number("max_ms", one.get("max_ms")),
        since=parse_moment("since", one.get("since", "")),
        until=parse_moment("until", one.get("until", "")),
        since_text=one.get("since", ""),
        until_text=one.get("until", ""),
        text=_text(one.get("text", "")),
        where=where,
        trace_id=one.get("trace_id", "").lower(),
        run_id=_uuid(one.get("run_id", "")),
    )


def filter_condition(span_filter: SpanFilter) -> Q:
    """The whole filter but its times as a condition on Span. Raises InvalidInput for a `where` that does not parse."""
    condition = Q()
    columns = {
        "type": span_filter.types, "collection": span_filter.collections,
        "model": span_filter.models, "api_key": span_filter.api_keys,
        "status_code": [status.upper() for status in span_filter.statuses], "service": span_filter.services,
        "environment": () if ALL in span_filter.environments else span_filter.environments,
    }  # fmt: skip
    for column, values in columns.items():
        if values:
            condition &= Q(**{column: values[0]}) if len(values) == 1 else Q(**{f"{column}__in": list(values)})
    condition &= span_filter.within.by_name("collection", "started_at")
    if span_filter.kinds:
        condition &= kind_is(span_filter.kinds)
    if span_filter.name:
        condition &= Q(name__startswith=span_filter.name)
    if span_filter.min_ms is not None:
        condition &= Q(duration_ms__gte=span_filter.min_ms)
    if span_filter.max_ms is not None:
        condition &= Q(duration_ms__lte=span_filter.max_ms)
    if span_filter.trace_id:
        condition &= Q(trace_id=span_filter.trace_id)
    if span_filter.run_id:
        condition &= Q(run_id=span_filter.run_id)
    if span_filter.text:
        condition &= Q(words_match(span_filter.text))
    return condition & parse_expression(span_filter.where) if span_filter.where else condition


def kind_is(kinds: Iterable[str]) -> Q:
    kinds = list(kinds)
    of_inference, of_telemetry = [k for k in kinds if k in OI_KINDS], [k for k in kinds if k in OTEL_KINDS]
    condition = Q(oi_kind__in=of_inference) if of_inference else Q()
    return condition | Q(kind__in=of_telemetry) if of_telemetry else condition


def _values(values: Mapping[str, str | Sequence[str]], name: str) -> list[str]:
    several = values.getlist(name) if hasattr(values, "getlist") else values[name]
    listed = [several] if isinstance(several, str) else list(several)
    result = [value.replace("\x00", "").strip() for value in listed if value]
    if len(result) > VALUES_MAX or any(len(value) > TEXT_MAX for value in result):
        raise InvalidInput(f"{name} takes at most {VALUES_MAX} values of {TEXT_MAX} characters", field=name)
    return [value for value in dict.fromkeys(result) if value]


def _types(values: Iterable[str]) -> tuple[str, ...]:
    """A type, or the word with which its spans' names begin ("rag.retrieve", "chat")."""
    result = [TYPES_BY_PREFIX.get(each, each) for each in values]
    known = (*TABLE_TYPES, *OWN_TYPES)
    if set(result) - set(known):
        known = tuple(dict.fromkeys((*known, *seen_types())))
    return _known("type", result, known)


def _known(field: str, results: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    values = tuple(dict.fromkeys(results))
    for value in values:
        if value not in known:
            close = get_close_matches(value, known, 1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise InvalidInput(f"there is no {field} {value!r}; there are {', '.join(known)}{meant}", field=field)
    return values


def _number(field: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise InvalidInput(f"{field} must be a number of milliseconds from 0, not {text!r}", field=field)
    return value


def _text(text: str) -> str:
    if text and not split_words(text):
        raise InvalidInput(f"text must hold a letter or a digit to look for, not only {text!r}", field="text")
    return text


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        raise InvalidInput(f"run_id must be a UUID, not {text!r}", field="run_id") from None


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if value < 1e6 else str(value)


# each from an end of the index; min() and max() would read every row under row-level security
FIRST_AND_LAST = """
SELECT (SELECT started_at FROM spans ORDER BY started_at LIMIT 1),
       (SELECT started_at FROM spans ORDER BY started_at DESC LIMIT 1)
"""
LIMIT_TIME = "SELECT current_setting('statement_timeout'), set_config('statement_timeout', %(limit)s, true)"
SET_TIMEOUT = "SELECT set_config('statement_timeout', %(limit)s, true)"
BUDGET_S = 3.0  # of one search
FIRST_STEP = timedelta(days=1)
SHORTEST_STEP = timedelta(minutes=1)
# a stretch that takes less is followed by one that is so many times as long, one that takes more by a shorter one
INSTANT_S, QUICK_S, SLOW_S = 0.01, 0.1, 0.5
MUCH_LARGER, LARGER, SMALLER = 64, 4, 16  # by the last a stretch is cut that took too long
STATEMENT_MIN_S = 0.25  # which a statement has in any case, so that a busy machine finds something
TRIES = 4  # so many stretches may take too long in one search

Found = TypeVar("Found")
__all__ = [
    "Facets", "Neighbours", "SlowSearch", "SpanFilter", "SpanPage", "environment_counts",
    "facet_counts", "known_attributes", "known_types", "neighbours", "parse_filter", "search_spans",
    "slowest_spans",
]  # fmt: skip

DEFAULT_LIMIT = 50
LIMIT_MAX = 500


class SlowSearch(OperationalError):
    """Not even a short stretch of time could be searched within the time that a search has."""


@dataclass(slots=True)
class TimeWindows:
    """A walk through `rows` from `start` (None: the newest span) back in time to `end` (None: the oldest), or forward
    to the newest. The rows are those after `end` already.

    reached: None when the walk came to the end or found enough; else how far it came when its time was over.
    """

    rows: SpanQuerySet
    start: datetime | None = None
    end: datetime | None = None
    forward: bool = False
    budget_s: float = BUDGET_S
    reached: datetime | None = None

    def walk(self, requested: int, read: Callable[[SpanQuerySet, int], list[Found]]) -> list[Found]:
        """At most `wanted` items of what `read(rows of a stretch, how many are wanted still)` gives, in its order.

        Raises SlowSearch when the time was over before the first stretch was read.
        """
        founds: list[Found] = []
        until = time.monotonic() + self.budget_s
        first, last = first_and_last()
        first = max(first, self.end or first)
        at, near, step = self.start or last, None, FIRST_STEP
        while True:
            try:
                far = at + step if self.forward else at - step
                is_last = far >= last if self.forward else far <= first
            except OverflowError:  # the calendar ends there
                far, is_last = at, True
            began = time.monotonic()
            left_s = until - began
            try:
                if left_s <= 0:
                    raise TimeoutError
                rows = self._between(near, None if is_last else far)
                limit_s = max(STATEMENT_MIN_S, min(left_s, self.budget_s / TRIES))
                founds += in_time(partial(read, rows, requested - len(founds)), limit_s)
            except TimeoutError:
                if left_s > 0 and step > SHORTEST_STEP:
                    step /= SMALLER
                    continue
                if near is None:
                    raise SlowSearch(f"no results within {self.budget_s:g} s") from None
                self.reached = near
                return founds
            if is_last or len(founds) >= requested:
                return founds
            took = time.monotonic() - began
            step *= MUCH_LARGER if took < INSTANT_S else LARGER if took < QUICK_S else 1
            step /= LARGER if took > SLOW_S else 1
            at = near = far

    def _between(self, near: datetime | None, far: datetime | None) -> SpanQuerySet:
        """From near (not included) to far (included); None: no bound."""
        after, before = ("gt", "lte") if self.forward else ("lt", "gte")
        bounds = {f"started_at__{after}": near, f"started_at__{before}": far}
        return self.rows.filter(**{name: value for name, value in bounds.items() if value is not None})


def first_and_last() -> tuple[datetime, datetime]:
    """When the oldest and the newest span began; now, where there is none."""
    with connection.cursor() as cursor:
        cursor.execute(FIRST_AND_LAST)
        ((first, last),) = cursor.fetchall()
    now = timezone.now()
    return first or now, last or now


def in_time(action: Callable[[], Found], limit_s: float) -> Found:
    """What the action returns. Raises TimeoutError when one of its statements takes longer than that."""
    limit = str(max(1, int(limit_s * 1000)))
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(LIMIT_TIME, {"limit": limit})  # PostgreSQL evaluates the list from left to right
            ((before, _),) = cursor.fetchall()
            result = action()
            cursor.execute(SET_TIMEOUT, {"limit": before})  # a transaction around this one goes on with its own
            return result
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise TimeoutError(f"no answer within {limit_s:.1f} s") from None
        raise


@dataclass(frozen=True, slots=True)
class SpanPage:
    """Spans, newest first. next_cursor goes on behind the last one; None: there are no more.

    searched_until: None when the page is whole; else the search ran out of time there, and older spans were not looked
    at (next_cursor looks on).
    """

    spans: list[Span]
    next_cursor: str | None
    searched_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The next span of the filter in each direction; None at an end."""

    newer: Span | None
    older: Span | None


@dataclass(frozen=True, slots=True)
class Facets:
    """by_field: field of SpanFilter (types, kinds, collections, models, api_keys, statuses) -> [(value, spans)], most
    first. counted: how many spans were looked at, the newest that match; is_whole: whether those are all."""

    by_field: Mapping[str, list[tuple[str, int]]]
    counted: int
    is_whole: bool


def search_spans(
    span_filter: SpanFilter, cursor: str | None = None, limit: int = DEFAULT_LIMIT, *, with_content: bool = False
) -> SpanPage:
    """One page. with_content: attributes, events and links too.

    Raises InvalidInput for a limit or cursor, SlowSearch when not even the newest minutes could be searched in time.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput(f"limit must be from 1 to {LIMIT_MAX}, not {limit}", field="limit")
    rows, start = _newest(matching(span_filter, with_content=with_content)), span_filter.until
    if cursor:
        position = _decode(cursor)
        rows, start = rows.filter(_behind(*position)), position[0]
    stretches = TimeWindows(rows, start, span_filter.since)
    result = stretches.walk(limit + 1, _read)
    if stretches.reached is not None:
        return SpanPage(result, _encode(stretches.reached, 0), stretches.reached)
    return SpanPage(result[:limit], _encode(*_place(result[limit - 1])) if len(result) > limit else None)


def matching(span_filter: SpanFilter, *, with_content: bool = False) -> SpanQuerySet:
    """Every span of the filter, in no order."""
    rows = Span.objects.filter(filter_condition(span_filter))
    if span_filter.since is not None:
        rows = rows.filter(started_at__gte=span_filter.since)
    if span_filter.until is not None:
        rows = rows.filter(started_at__lt=span_filter.until)
    return rows if with_content else rows.without_content()


def neighbours(span_filter: SpanFilter, span: Span) -> Neighbours:
    """Before and after a span in the filtered list, also when the span itself is not in it; without content."""
    rows, position = matching(span_filter), _place(span)
    after = rows.filter(_before(*position)).order_by("started_at", "id")
    newer = TimeWindows(after, span.started_at, forward=True).walk(1, _read)
    older = TimeWindows(_newest(rows.filter(_behind(*position))), span.started_at, span_filter.since).walk(1, _read)
    return Neighbours(newer[0] if newer else None, older[0] if older else None)


def slowest_spans(span_filter: SpanFilter, limit: int = 10) -> list[Span]:
    """The longest first, ties newest first; without content. Raises SlowSearch."""
    rows = matching(span_filter).order_by("-duration_ms", "-started_at", "-id")
    try:
        return in_time(lambda: _read(rows, limit), BUDGET_S)
    except TimeoutError:
        raise SlowSearch(f"the slowest were not found within {BUDGET_S:g} s") from None


FACET_COLUMNS = {
    "types": "type", "kinds": "oi_kind", "collections": "collection", "models": "model", "api_keys": "api_key",
    "statuses": "status_code",
}  # fmt: skip
FACET_ROWS = 5_000
FACET_BUDGET_S, OWN_BUDGET_S = 0.25, 0.15  # of all fields together, and of one that the filter states
COUNT_VALUES = "SELECT {columns}, count(*) FROM ({rows}) newest GROUP BY {columns}"


def facet_counts(span_filter: SpanFilter) -> Facets:
    """How many of the newest FACET_ROWS matching spans have each value. A field that the filter states is counted as if
    it did not, so that its other values can be chosen."""
    counts, is_whole = _count_values(span_filter, FACET_COLUMNS.values(), FACET_BUDGET_S)
    by_field = {}
    for name, column in FACET_COLUMNS.items():
        own = (
            _count_values(span_filter.without(name), [column], OWN_BUDGET_S)[0]
            if getattr(span_filter, name)
            else counts
        )
        values = Counter(own[column])
        del values[""]
        by_field[name] = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    return Facets(by_field, sum(counts["status_code"].values()), is_whole)


def environment_counts(span_filter: SpanFilter) -> dict[str, int]:
    """environment -> spans, as if the filter stated none; of the newest FACET_ROWS, or fewer where time was over."""
    counts, _ = _count_values(span_filter.without("environments"), ["environment"], FACET_BUDGET_S)
    return dict(counts["environment"])


def _count_values(
    span_filter: SpanFilter, columns: Iterable[str], budget_s: float
) -> tuple[dict[str, Counter[str]], bool]:
    """column -> value -> spans, of the newest FACET_ROWS that match or as time allows; whether those are all."""
    columns = list(columns)
    counts: dict[str, Counter[str]] = {column: Counter() for column in columns}

    def count(rows: SpanQuerySet, left: int) -> list[None]:
        sql, params = rows.values(*columns)[:left].query.sql_with_params()
        total = 0
        with connection.cursor() as cursor:
            cursor.execute(COUNT_VALUES.format(columns=", ".join(columns), rows=sql), params)
            for *values, spans in cursor.fetchall():
                total += spans
                for column, value in zip(columns, values, strict=True):
                    counts[column][value] += spans
        return [None] * total

    stretches = TimeWindows(_newest(matching(span_filter)), span_filter.until, span_filter.since, budget_s=budget_s)
    try:
        result = len(stretches.walk(FACET_ROWS, count))
    except SlowSearch:
        return counts, False
    return counts, result < FACET_ROWS and stretches.reached is None


def _newest(rows: SpanQuerySet) -> SpanQuerySet:
    return rows.order_by("-started_at", "-id")


def _read(rows: SpanQuerySet, requested: int) -> list[Span]:
    return list(rows[:requested])


def _place(span: Span) -> tuple[datetime, int]:
    return span.started_at, span.pk


def _behind(started_at: datetime, pk: int) -> Q:
    return Q(started_at__lte=started_at) & (Q(started_at__lt=started_at) | Q(pk__lt=pk))


def _before(started_at: datetime, pk: int) -> Q:
    return Q(started_at__gte=started_at) & (Q(started_at__gt=started_at) | Q(pk__gt=pk))


def _encode(started_at: datetime, pk: int) -> str:
    text = json.dumps([started_at.isoformat(), pk], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _decode(cursor: str) -> tuple[datetime, int]:
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        moment, pk = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        started_at = datetime.fromisoformat(moment)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        started_at, pk = None, None
    if started_at is None or started_at.tzinfo is None or not isinstance(pk, int) or abs(pk) >= 2**63:
        raise InvalidInput(
            "cursor is not one that a search of spans gave; take next_cursor from the page before, or leave it out",
            field="cursor",
        )
    return started_at, pk


HISTOGRAM_BUDGET_S = 0.25
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

    stretches = TimeWindows(
        matching(span_filter).order_by(), span_filter.until, span_filter.since, budget_s=HISTOGRAM_BUDGET_S
    )
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
