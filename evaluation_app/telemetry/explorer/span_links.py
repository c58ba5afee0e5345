"""Links into the span explorer, and what its list shows: charts, the beginning of texts, words for types of spans.

A bar of a chart opens its range.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db import OperationalError, connection, transaction
from django.db.models import F
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Left
from django.http import QueryDict
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.domain.formats import between, day_words, duration, localized, round_duration
from evaluation_app.charts.series_charts import Picture, Series, Step, draw_bars
from evaluation_app.models import Span
from evaluation_app.telemetry.search.search import SpanCounts, SpanFilter, count_spans, neighbours, parse_filter
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.telemetry import names
from ragd.telemetry.metrics import MS_BUCKETS

HEIGHT = 88  # px of the plots
WORDS = 4  # below each, which has half of the width
DAY = timedelta(days=1)
BELOW = 0.001  # ms below the next bar's first duration, since both bounds of the filter are included

Address = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Histograms:
    """reached: see `SpanCounts`."""

    volume: Picture
    latency: Picture
    reached: datetime | None


def draw_histograms(span_filter: SpanFilter, address: Address) -> Histograms:
    """address: of the page with these changes to its parameters."""
    counts = count_spans(span_filter)
    return Histograms(_volume(counts, span_filter, address), _latency(counts, span_filter, address), counts.reached)


def _volume(counts: SpanCounts, span_filter: SpanFilter, address: Address) -> Picture:
    steps = []
    for begin in counts.begins:
        since = max(begin, span_filter.since or begin)
        until = min(begin + counts.step, span_filter.until or begin + counts.step)
        href = address(since=since.isoformat(), until=until.isoformat())
        steps.append(Step(_label(begin, counts.step), _title(begin, counts.step), href))
    completed = tuple(float(counts.total[begin] - counts.failed[begin]) for begin in counts.begins)
    failed = tuple(float(counts.failed[begin]) for begin in counts.begins)
    return draw_bars(
        gettext("Spans over time, UTC."),
        steps,
        [Series(gettext("completed"), completed), Series(gettext("failed"), failed)],
        spell=_count, counts=True, height=HEIGHT, words=WORDS,
    )  # fmt: skip


def _latency(counts: SpanCounts, span_filter: SpanFilter, address: Address) -> Picture:
    """From the first to the last bucket that has spans."""
    known = sorted(counts.durations)
    buckets = range(known[0], known[-1] + 1) if known else range(0)
    steps = [_latency_step(bucket, span_filter, address) for bucket in buckets]
    values = tuple(float(counts.durations[bucket]) for bucket in buckets)
    return draw_bars(
        gettext("Spans by latency."),
        steps,
        [Series(gettext("spans"), values)],
        spell=_count,
        counts=True,
        height=HEIGHT,
        words=WORDS,
    )


def _latency_step(bucket: int, span_filter: SpanFilter, address: Address) -> Step:
    low = MS_BUCKETS[bucket - 1] if bucket else 0.0
    high = MS_BUCKETS[bucket] if bucket < len(MS_BUCKETS) else None
    least = max(low, span_filter.min_ms or 0.0)
    bounds = [each for each in (high and round(high - BELOW, 3), span_filter.max_ms) if each is not None]
    href = address(min_ms=f"{least:.10g}" if least else None, max_ms=f"{min(bounds):.10g}" if bounds else None)
    spell = localized(duration)
    title = between(spell(low), spell(high)) if high else gettext("from %(low)s") % {"low": spell(low)}
    return Step(round_duration(low) if bucket else "0", title, href)


def _label(begin: datetime, step: timedelta) -> str:
    if step >= DAY:
        return day_words(begin)
    return f"{begin:%H:%M}" if step >= timedelta(minutes=1) else f"{begin:%H:%M:%S}"


def _title(begin: datetime, step: timedelta) -> str:
    end = (begin + step).astimezone(UTC)
    day = day_words(begin)
    if step >= DAY:
        return day if step == DAY else between(day, day_words(end))
    return between(f"{day} {_label(begin, step)}", _label(end, step))


def _count(value: float) -> str:
    return f"{value:,.0f}"


BEGINNING = 200  # characters of an input or output that are read; the page clips them to its column
FIRST_TABLE = re.compile(r"\b(?:FROM|INTO|UPDATE)\s+\"?([A-Za-z_][\w.]*)", re.IGNORECASE)
HASH_PREFIX = "sha256:"


@dataclass(frozen=True, slots=True)
class SpanTexts:
    """How input and output begin, "" where the span recorded none or its hash alone. table: see `first_table`."""

    input: str = ""
    output: str = ""
    table: str = ""

    @property
    def shown(self) -> tuple[str, str]:
        return self.input, self.output


def read_texts(spans: Sequence[Span]) -> Mapping[int, SpanTexts]:
    """By the span's id. One query, by the times of the spans, which the primary key begins with; none for no span."""
    if not spans:
        return {}
    rows = Span.objects.filter(started_at__in={span.started_at for span in spans}).order_by()
    read = rows.values_list(
        "pk",
        Left(KeyTextTransform(names.INPUT_VALUE, F("attributes")), BEGINNING),
        Left(KeyTextTransform(names.OUTPUT_VALUE, F("attributes")), BEGINNING),
        KeyTextTransform(names.DB_QUERY_TEXT, F("attributes")),
    )
    return {pk: SpanTexts(_shown(given), _shown(made), first_table(statement)) for pk, given, made, statement in read}


def first_table(statement: Any) -> str:
    """The first table that a statement names; "" without one and for what is no text."""
    match = FIRST_TABLE.search(statement) if isinstance(statement, str) else None
    return match[1] if match else ""


def is_kept(text: str) -> bool:
    """Whether it is the text itself: the content switch keeps a mark or a hash instead."""
    return text != telemetry.REDACTED and not (text.startswith(HASH_PREFIX) and len(text) == 71)


def _shown(text: str | None) -> str:
    return text if text and is_kept(text) else ""


Condition = str | float | datetime | Sequence[str] | None
READ_BRIEFLY = "SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = '8s'"
CAME_FROM = ("from", "spans")
OWN_NAMES = ("from", "tab", "view", "span_id")
PIPELINE_TYPE = "aitf.rag.pipeline"
# the stages in the order of the work, and their words; others follow by name
STAGE_WORDS = {
    PIPELINE_TYPE: gettext_lazy("Pipeline (root)"),
    "aitf.rag.query": gettext_lazy("Question"),
    "gen_ai.embeddings": gettext_lazy("Embeddings"),
    "aitf.rag.retrieve": gettext_lazy("Retrieval"),
    names.LEXICAL: gettext_lazy("Keyword search"),
    names.VECTOR: gettext_lazy("Vector search"),
    names.HOP: gettext_lazy("Hop"),
    names.FUSE: gettext_lazy("Fusion"),
    "aitf.rag.rerank": gettext_lazy("Reranking"),
    names.COMPRESS: gettext_lazy("Compression"),
    "gen_ai.inference": gettext_lazy("Chat"),
    "aitf.rag.evaluate": gettext_lazy("Evaluation"),
    names.INGEST: gettext_lazy("Ingest"),
    names.FETCH: gettext_lazy("Fetch"),
    names.UNPACK: gettext_lazy("Extract"),
    names.PARSE: gettext_lazy("Parse"),
    names.CHUNK: gettext_lazy("Chunk"),
    names.STORE: gettext_lazy("Store"),
    names.FILL: gettext_lazy("Build index version"),
    names.BUILD_INDEX: gettext_lazy("Build index"),
    names.PROBE: gettext_lazy("Measure index version"),
}


def explorer_address(**conditions: Condition) -> str:
    """The explorer with these conditions, named as `parse_filter` reads them.

    A sequence stands for any of its values; None and "" leave a condition out.
    """
    pairs = [(name, text) for name, value in conditions.items() for text in _texts(value) if text]
    return reverse("evaluation:activity", args=["spans"]) + (f"?{urlencode(pairs)}" if pairs else "")


def step_conditions(begin: datetime, step: timedelta, until: datetime) -> dict[str, Condition]:
    """since and until of one step of a period; the last one ends with the period."""
    return {"since": begin, "until": min(begin + step, until)}


def _texts(value: Condition) -> list[str]:
    if value is None:
        return []
    if isinstance(value, datetime):
        return [value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")]
    if isinstance(value, float | int):
        return [f"{value:g}"]
    return [value] if isinstance(value, str) else list(value)


@contextmanager
def read_briefly() -> Iterator[None]:
    """Statements inside wait for a lock 2 s at most and take 8 s at most; else django.db.OperationalError."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(READ_BRIEFLY)
        yield


@dataclass(frozen=True, slots=True)
class NeighbourLinks:
    """Addresses of the spans beside one in the list, "" at an end: before is newer, after is older. back: the list."""

    before: str
    after: str
    back: str


def span_href(span: Span) -> str:
    return reverse("evaluation:trace", args=[span.trace_id], query={"view": "span", "span_id": span.span_id})


def span_address(span: Span, span_filter: SpanFilter) -> str:
    """The page of a span of the list, with the filter behind it."""
    return f"{span_href(span)}&{urlencode([CAME_FROM, *span_filter.as_params()])}"


def nearby_matches(span: Span, query: QueryDict) -> NeighbourLinks | None:
    """None for who came from elsewhere, for a filter that says nothing, and for a search that takes too long."""
    name, origin = CAME_FROM
    if query.get(name) != origin:
        return None
    try:
        span_filter = parse_filter(query, also=OWN_NAMES)
        beside = neighbours(span_filter, span)
    except (InvalidInput, OperationalError):
        return None
    return NeighbourLinks(
        before=span_address(beside.newer, span_filter) if beside.newer else "",
        after=span_address(beside.older, span_filter) if beside.older else "",
        back=reverse("evaluation:activity", args=["spans"], query=span_filter.as_params()),
    )
