"""A picture of things by two figures, such as latency across and quality down, with those that nothing beats in both.

Geometry alone, as in the other charts: across, numbers are percent of the plot; down, pixels of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evaluation_app.charts.axes import AxisWord, Scale, line_path
from evaluation_app.charts.score_charts import trend_scale
from evaluation_app.charts.series_charts import log_scale, plain_scale

HEIGHT = 220  # px of the plot, as in static/css/evaluation.css
HEAD = 10
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
    down = replace(trend_scale([point.value for point in points]), bottom=float(HEIGHT - HEAD), top=float(HEAD))
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
        ticks=tuple((down.y(at), f"{at:g}") for at in down.ticks),
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
