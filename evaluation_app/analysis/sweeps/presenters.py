"""What the page of a sweep draws: the heat map of two fields, and intervals on one axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation_app.analysis.comparison.run_reader import measure_of
from evaluation_app.analysis.sweeps.plan_grid import TITLES, spell_value
from evaluation_app.analysis.sweeps.ranking import RankedPlan, Ranking
from evaluation_app.charts.axes import percent
from evaluation_app.measures.statistics import Interval

STEP = 0.05
LEVELS = 8  # shades of the heat map, in static/css/evaluation.css


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the map. row: the best plan there by rank, None without one. plans: how many share the place."""

    row: RankedPlan | None
    plans: int
    level: int


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The mean by two fields. columns: values of the first across; rows: values of the second with their cells.

    folded: whether a cell is the best of several plans, which differ in other fields.
    """

    across: str
    down: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    low: float
    high: float
    folded: bool


@dataclass(frozen=True, slots=True)
class Axis:
    """A stretch of the measure's scale: 0 and 1 are far apart when all plans lie close together."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Line:
    """A plan of the table with its interval on the axis, in percent."""

    rank: int
    row: RankedPlan
    low: float | None
    high: float | None
    dot: float | None


def show_lines(ranking: Ranking) -> tuple[list[Line], Axis]:
    """The plans in order with their intervals. The axis holds all of them, in steps of 0.05."""
    known = [row.interval for row in ranking.rows if row.interval is not None]
    axis = _axis(known)
    lines = []
    for rank, row in enumerate(ranking.rows, 1):
        result = row.interval
        positions = (
            (None, None, None)
            if result is None
            else tuple(percent(value, axis.low, axis.high) for value in (result.low, result.high, result.mean))
        )
        lines.append(Line(rank, row, *positions))
    return lines, axis


def _axis(intervals: Sequence[Interval]) -> Axis:
    if not intervals:
        return Axis(0.0, 1.0)
    low = math.floor(min(each.low for each in intervals) / STEP + 1e-9) * STEP
    high = math.ceil(max(each.high for each in intervals) / STEP - 1e-9) * STEP
    return Axis(round(low, 2), round(max(high, low + STEP), 2))


def map_fields(ranking: Ranking, requested: Sequence[str]) -> tuple[str, str] | None:
    """The two fields of the map: those that are wanted as far as the sweep varies them. None where it varies one."""
    names = [name for name in dict.fromkeys((*requested, *ranking.fields)) if name in ranking.fields]
    return (names[0], names[1]) if len(names) > 1 else None


def draw_map(ranking: Ranking, across: str, down: str, plans: Sequence[Mapping[str, Any]]) -> HeatMap:
    """The best mean at each pair of values; values stand in the order of the sweep's plans."""
    columns, downs = _values(plans, across), _values(plans, down)
    ranked = [row for row in ranking.rows if row.standing in ("best", "level", "worse")]
    known = [row.mean.value for row in ranked if row.mean.value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    locations: dict[tuple[str, str], list[RankedPlan]] = {}
    for row in ranked:  # best first
        locations.setdefault((row.values[across], row.values[down]), []).append(row)
    flipped = not measure_of(ranking.measure).higher_is_better
    rows = tuple(
        (value, tuple(_cell(locations.get((column, value), []), low, high, flipped) for column in columns))
        for value in downs
    )
    return HeatMap(
        TITLES[across],
        TITLES[down],
        tuple(columns),
        rows,
        low,
        high,
        any(len(match) > 1 for match in locations.values()),
    )


def _values(plans: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(spell_value(name, plan.get(name)) for plan in plans))


def _cell(results: Sequence[RankedPlan], low: float, high: float, flipped: bool) -> Cell:
    best = results[0] if results else None
    if best is None or best.mean.value is None:
        return Cell(best, len(results), 0)
    share = (best.mean.value - low) / (high - low) if high > low else 1.0
    share = 1.0 - share if flipped else share
    return Cell(best, len(results), 1 + min(LEVELS - 1, int(share * LEVELS)))
