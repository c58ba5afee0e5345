"""Pictures of scores: distributions over bands, means with intervals over runs, one mean on its scale, two figures.

Geometry alone: templates draw it. Across, numbers are percent of the plot; down, pixels of it. A picture by two
figures, such as latency across and quality down, tells those that nothing beats in both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import numpy as np
from django.utils.translation import gettext

from collections_app.domain.formats import between, counted, localized
from evaluation_app.charts.series_charts import (
    AxisWord,
    Scale,
    axis_words,
    line_path,
    log_scale,
    percent,
    plain_scale,
    rounded,
)
from evaluation_app.measures.catalogue import Band, Measure

BINS = 20
DISTRIBUTION_HEIGHT = 104  # px of the plot, as in static/css/evaluation.css
TREND_HEIGHT = 132
HEAD = 6  # px above the highest bar or dot
LEAST_REACH = 0.2  # of a trend's scale, so that noise does not look like a cliff
TICK_STEPS = (0.05, 0.1, 0.2, 0.25)
MOST_TICKS = 5
AXIS_WORDS = 5

Address = Callable[[float, float], str]


@localized
def format_value(value: float | None) -> str:
    """Two digits after the point; three where two would say 0 or 1 of what is neither. An en dash for None."""
    if value is None:
        return "–"
    shown = f"{value:.2f}"
    if abs(value) not in (0, 1) and shown.removeprefix("-") in ("0.00", "1.00"):
        return f"{math.trunc(value * 1000) / 1000:.3f}" if abs(value) >= 0.001 else gettext("under 0.001")
    return shown.replace("-0.00", "0.00")


@localized
def tick_words(value: float) -> str:
    return f"{value:g}"


@dataclass(frozen=True, slots=True)
class Bar:
    """How many scores lie from low to high (the last bar holds high too). band: of its middle, "" without bands."""

    low: float
    high: float
    count: int
    band: Band | str
    x: float
    width: float
    y: float
    height: float
    href: str
    readout: str


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a band ends. at: percent across, or pixels down."""

    at: float
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Distribution:
    """reference: an outline in a box of 1000 by `height`, of what others have scored; "" for none. ticks: of
    the counts."""

    name: str
    title: str
    bars: tuple[Bar, ...]
    bounds: tuple[Bound, ...]
    mean_at: float | None
    reference: str
    scored: int
    ticks: tuple[Bound, ...] = ()
    height: int = DISTRIBUTION_HEIGHT

    @property
    def is_empty(self) -> bool:
        return self.scored == 0


def draw_distribution(
    measure: Measure,
    values: Sequence[float],
    *,
    mean: float | None = None,
    reference: Sequence[float] | None = None,
    address: Address | None = None,
) -> Distribution:
    """BINS bars over 0 to 1; 0.15 lies in the fourth, whatever its last bit says. reference: BINS shares that add up to
    1, drawn to the same area as the bars.

    address: what opens the scores from low to high. A score outside of 0 to 1 stands in the bar at that end.
    """
    bins = np.clip(np.floor(np.asarray(values, dtype=float) * BINS + 1e-9), 0, BINS - 1).astype(int)
    counts: list[int] = np.bincount(bins, minlength=BINS).tolist()
    outline = [share * len(values) for share in reference] if reference and values else []
    highest = max([*counts, *outline], default=0) or 1
    bars = tuple(_bar(measure, index, count, highest, address) for index, count in enumerate(counts))
    summary = f"{measure.title}: {counted(len(values), gettext('score,scores'))}"
    return Distribution(
        name=measure.name,
        title=f"{summary}, {gettext('mean %(mean)s') % {'mean': format_value(mean)}}" if mean is not None else summary,
        bars=bars,
        bounds=tuple(Bound(percent(at), name, format_value(at)) for name, at in bounds_of(measure)),
        mean_at=None if mean is None else percent(mean),
        reference=_outline(outline, highest),
        scored=len(values),
        ticks=tuple(
            Bound(rounded(DISTRIBUTION_HEIGHT - (DISTRIBUTION_HEIGHT - HEAD) * count / highest), "", f"{count:g}")
            for count in plain_scale(float(highest), 1.0).ticks
            if count <= highest
        ),
    )


def bounds_of(measure: Measure) -> list[tuple[str, float]]:
    """(name, where) of the band's ends, each place once: where it passes goes before where it fails.

    [] for a measure without bands.
    """
    known = [("pass", measure.good), ("fail", measure.poor)] if measure.has_bands else []
    result: dict[float, str] = {}
    for name, at in known:
        if at is not None:
            result.setdefault(at, name)
    return [(name, at) for at, name in result.items()]


def _bar(measure: Measure, index: int, count: int, highest: int | float, address: Address | None) -> Bar:
    low, high = index / BINS, (index + 1) / BINS
    # the last bar is the one of 1.0, which alone passes where nothing less does
    stands_for = 1.0 if index == BINS - 1 else (low + high) / 2 if index else 0.0
    height = rounded((DISTRIBUTION_HEIGHT - HEAD) * count / highest)
    height = max(height, 2.0) if count else 0.0
    width = 100 / BINS
    return Bar(
        low=low,
        high=high,
        count=count,
        band=measure.band(stands_for) or "",
        x=rounded(index * width + 0.08 * width),
        width=rounded(0.84 * width),
        y=rounded(DISTRIBUTION_HEIGHT - height),
        height=height,
        href=address(low, high) if address and count else "",
        readout=f"{spell_interval(low, high)}: {count}",
    )


def _outline(levels: Sequence[float], highest: float) -> str:
    """Steps over the bars as one path; "" without levels."""
    if not levels:
        return ""
    width = 1000 / len(levels)
    parts = [f"M0,{DISTRIBUTION_HEIGHT}"]
    for index, level in enumerate(levels):
        y = rounded(DISTRIBUTION_HEIGHT - (DISTRIBUTION_HEIGHT - HEAD) * level / highest)
        parts.append(f"L{rounded(index * width):g},{y:g}H{rounded((index + 1) * width):g}")
    return "".join([*parts, f"V{DISTRIBUTION_HEIGHT}"])


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One run. group: what must be alike for two runs to be compared (the digest of the set)."""

    title: str
    label: str
    href: str
    value: float | None
    low: float | None = None
    high: float | None = None
    group: str = ""
    is_baseline: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    low_y: float | None
    high_y: float | None
    href: str
    readout: str
    is_baseline: bool
    is_last: bool
    band: Band | str


@dataclass(frozen=True, slots=True)
class Trend:
    """paths: the line between runs that may be compared, in a box of 1000 by `height`. cuts: where the set changed."""

    name: str
    title: str
    ticks: tuple[Bound, ...]
    dots: tuple[Dot, ...]
    path: str
    cuts: tuple[float, ...]
    bounds: tuple[Bound, ...]
    baseline_y: float | None
    words: tuple[AxisWord, ...]
    rows: tuple[tuple[str, str, str, str], ...]
    height: int = TREND_HEIGHT

    @property
    def is_empty(self) -> bool:
        return not self.dots


def draw_trend(measure: Measure, points: Sequence[TrendPoint], *, baseline: float | None = None) -> Trend:
    """Runs from the oldest to the newest at equal distances. baseline: the mean that they are held against.

    The scale covers all means, intervals and the baseline, from one step below to one above, within 0 to 1 where the
    means are; a band's end outside of it is not drawn. A run without a mean has no dot and breaks the line.
    """
    known = [point for point in points if point.value is not None]
    span = [value for point in known for value in (point.value, point.low, point.high) if value is not None]
    scale = trend_scale([*span, *([baseline] if baseline is not None else [])])
    width = 100 / max(len(points), 1)
    positions = [(index + 0.5) * width for index in range(len(points))]
    dots = tuple(
        _dot(measure, point, rounded(x), scale, is_last=point is known[-1])
        for point, x in zip(points, positions, strict=True)
        if point.value is not None
    )
    cuts = [rounded((index + 1) * width) for index, (one, two) in enumerate(pairwise(points)) if one.group != two.group]
    return Trend(
        name=measure.name,
        title=gettext("%(measure)s over %(runs)s, oldest first")
        % {"measure": measure.title, "runs": counted(len(known), gettext("run,runs"))},
        ticks=tuple(Bound(scale.y(at), "", tick_words(at)) for at in scale.ticks),
        dots=dots,
        path=_line(points, positions, scale),
        cuts=tuple(cuts),
        bounds=tuple(Bound(scale.y(at), name, format_value(at)) for name, at in bounds_of(measure) if scale.holds(at)),
        baseline_y=None if baseline is None else scale.y(baseline),
        words=axis_words([point.label for point in points], AXIS_WORDS, always_last=True),
        rows=tuple((point.title, point.href, format_value(point.value), spell_interval(point.low, point.high))
                   for point in reversed(points)),
    )  # fmt: skip


def spell_interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "–"
    return between(format_value(low), format_value(high))


def _dot(measure: Measure, point: TrendPoint, x: float, scale: Scale, *, is_last: bool) -> Dot:
    value = point.value or 0.0
    interval = spell_interval(point.low, point.high)
    summary = f"{point.title}: {format_value(value)}"
    if interval != "–":
        summary += ", " + gettext("95 %% interval %(interval)s") % {"interval": interval}
    return Dot(
        x=x,
        y=scale.y(value),
        low_y=None if point.low is None else scale.y(point.low),
        high_y=None if point.high is None else scale.y(point.high),
        href=point.href,
        readout=summary + (", " + gettext("the baseline") if point.is_baseline else ""),
        is_baseline=point.is_baseline,
        is_last=is_last,
        band=measure.band(value) or "",
    )


def _line(points: Sequence[TrendPoint], positions: Sequence[float], scale: Scale) -> str:
    """Broken where a run has no mean and where the group changes; a run alone has no line."""
    parts = []
    pairs = list(zip(points, positions, strict=True))
    for _, run in groupby(pairs, key=lambda pair: (pair[0].group, pair[0].value is None)):
        placed = [(x, point.value) for point, x in run if point.value is not None]
        if len(placed) > 1:
            parts.append(line_path((rounded(10 * x), scale.y(value)) for x, value in placed))
    return "".join(parts)


def trend_scale(values: Sequence[float]) -> Scale:
    """From a round number below all values to one above, at least LEAST_REACH apart; 0 to 1 for no value."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    missing = max(LEAST_REACH - (high - low), 0.0) / 2
    low, high = max(low - missing, min(low, 0.0)), min(high + missing, max(high, 1.0))
    step = next((step for step in TICK_STEPS if (high - low) / step <= MOST_TICKS - 1), TICK_STEPS[-1])
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(round(number * step, 2) for number in range(first, max(last, first + 1) + 1))
    return Scale(ticks[0], ticks[-1], ticks, TREND_HEIGHT - HEAD, HEAD)


def coverage_parts(counts: Mapping[str, int]) -> list[tuple[str, int, float, float]]:
    """(name, count, from, width) in percent of what is there, in the given order; what is none is left out."""
    total, at, parts = sum(counts.values()), 0.0, []
    for name, count in counts.items():
        if count:
            width = 100 * count / total
            parts.append((name, count, rounded(at), rounded(width)))
            at += width
    return parts


HEIGHT = 220  # px of the plot, as in static/css/evaluation.css
SCATTER_HEAD = 10
LOG_FROM = 20.0  # so many times the least is the most: the scale across is logarithmic


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    """cost: what is better the lower, above 0. value: the other figure. mark: a few characters beside the dot."""

    title: str
    mark: str
    href: str
    cost: float
    value: float


@dataclass(frozen=True, slots=True)
class ScatterDot:
    """is_optimal: no other point is as good in both figures and better in one."""

    x: float
    y: float
    mark: str
    href: str
    readout: str
    title: str
    texts: tuple[str, str]
    is_optimal: bool


@dataclass(frozen=True, slots=True)
class Scatter:
    """dots: by cost, ties as given. front: a line through the optimal ones, in a box of 1000 by `height`."""

    title: str
    dots: tuple[ScatterDot, ...]
    ticks: tuple[tuple[float, str], ...]
    words: tuple[AxisWord, ...]
    front: str
    height: int = HEIGHT


def draw_scatter(
    title: str,
    points: Sequence[ScatterPoint],
    *,
    spell_cost: Callable[[float], str],
    spell_value: Callable[[float], str],
    spell_tick: Callable[[float], str],
    higher_is_better: bool = True,
) -> Scatter | None:
    """None for fewer than two points. spell_tick: of the scale of costs."""
    if len(points) < 2:
        return None
    ordered = sorted(points, key=lambda point: point.cost)
    costs = [point.cost for point in ordered]
    across = log_scale(costs) if costs[0] > 0 and costs[-1] / costs[0] >= LOG_FROM else plain_scale(costs[-1])
    across = replace(across, bottom=0.0, top=100.0)
    down = replace(
        trend_scale([point.value for point in points]), bottom=float(HEIGHT - SCATTER_HEAD), top=float(SCATTER_HEAD)
    )
    optimal = find_optimal([(point.cost, point.value if higher_is_better else -point.value) for point in ordered])
    dots = []
    for point, is_optimal in zip(ordered, optimal, strict=True):
        texts = (spell_value(point.value), spell_cost(point.cost))
        readout = f"{point.title}: {', '.join(texts)}"
        x, y = across.y(point.cost), down.y(point.value)
        dots.append(ScatterDot(x, y, point.mark, point.href, readout, point.title, texts, is_optimal))
    front = [(10 * dot.x, dot.y) for dot in dots if dot.is_optimal]
    return Scatter(
        title=title,
        dots=tuple(dots),
        ticks=tuple((down.y(at), tick_words(at)) for at in down.ticks),
        words=_words(across, spell_tick),
        front=line_path(front) if len(front) > 1 else "",
    )


def find_optimal(points: Sequence[tuple[float, float]]) -> list[bool]:
    """(cost, gain) -> whether no other has at most that cost and at least that gain, and is better in one of them.

    Equal points are alike.
    """
    return [
        not any(
            other != point and other[0] <= point[0] and other[1] >= point[1] for other in points
        )
        for point in points
    ]  # fmt: skip


def _words(scale: Scale, spell: Callable[[float], str]) -> tuple[AxisWord, ...]:
    words = []
    for at in scale.ticks:
        x = scale.y(at)
        words.append(AxisWord(x, spell(at), "start" if x < 4 else "end" if x > 96 else "middle"))
    return tuple(words)
