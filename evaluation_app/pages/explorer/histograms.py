"""The charts above the list of spans: how many began when, how long they took. A bar opens its range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils.translation import gettext

from collections_app.domain.formats import duration, round_duration
from evaluation_app.charts.series_charts import Picture, Series, Step, draw_bars
from evaluation_app.spans.search.filters import SpanFilter
from evaluation_app.spans.search.histograms import SpanCounts, count_spans
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
    title = f"{duration(low)} to {duration(high)}" if high else f"from {duration(low)}"
    return Step(round_duration(low) if bucket else "0", title, href)


def _label(begin: datetime, step: timedelta) -> str:
    if step >= DAY:
        return f"{begin.day} {begin:%b}"
    return f"{begin:%H:%M}" if step >= timedelta(minutes=1) else f"{begin:%H:%M:%S}"


def _title(begin: datetime, step: timedelta) -> str:
    end = (begin + step).astimezone(UTC)
    day = f"{begin.day} {begin:%b}"
    if step >= DAY:
        return day if step == DAY else f"{day} to {end.day} {end:%b}"
    return f"{day} {_label(begin, step)} to {_label(end, step)}"


def _count(value: float) -> str:
    return f"{value:,.0f}"
