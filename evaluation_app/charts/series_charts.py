"""Pictures of series over equal steps of time: where lines, bands and bars stand, and the same numbers as a table.

Geometry alone: templates draw it. Heights are pixels of the plot, downwards; widths are percent of it, so that a
picture stretches with the page while its words keep their size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from django.utils.translation import gettext

from collections_app.domain.formats import localized


@dataclass(frozen=True, slots=True)
class Scale:
    """From low, at `bottom` pixels down, to high at `top`. log: a logarithmic one, of values above 0."""

    low: float
    high: float
    ticks: tuple[float, ...]
    bottom: float
    top: float
    log: bool = False

    def y(self, value: float) -> float:
        """Pixels down; what lies outside stands at the end."""
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return rounded(self.bottom - min(max(share, 0.0), 1.0) * (self.bottom - self.top))

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class AxisWord:
    """anchor: start, middle or end, as SVG has it."""

    x: float
    text: str
    anchor: str


def axis_words(labels: Sequence[str], most: int, *, always_last: bool = False) -> tuple[AxisWord, ...]:
    """At most so many labels of steps of equal width, x in percent, at equal distances from the first (or the last).

    A label that repeats the one before it is left out; one at an end of the axis is turned inwards.
    """
    count, stride = len(labels), max(1, math.ceil(len(labels) / most))
    words: list[AxisWord] = []
    for index in range((count - 1) % stride if always_last else 0, count, stride):
        if words and words[-1].text == labels[index]:
            continue
        middle = (index + 0.5) * 100 / count
        anchor = "start" if middle < 4 else "end" if middle > 96 else "middle"
        words.append(AxisWord({"start": 0.0, "end": 100.0}.get(anchor, rounded(middle)), labels[index], anchor))
    return tuple(words)


def line_path(points: Iterable[tuple[float, float]]) -> str:
    """One SVG path through all points."""
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in points)


def percent(value: float, low: float = 0.0, high: float = 1.0) -> float:
    """How far the value is on the way from low to high, 0 to 100."""
    return rounded(100 * min(max((value - low) / (high - low), 0.0), 1.0))


def rounded(value: float) -> float:
    return round(value, 2)


HEIGHT = 168  # px of the plot, as in static/css/charts.css
HEAD = 8  # px above the highest value
LABEL_GAP = 15  # px between two labels at the ends of lines
SHOWN_SERIES = 5  # a sixth colour and pattern stands for all the others together
AXIS_WORDS = 6
OTHERS = "others"

Spell = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of time. label stands under the axis, title tells the whole of it, href opens what happened in it."""

    label: str
    title: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """One value per step, None where nothing was measured. href opens what the whole series is made of."""

    name: str
    values: tuple[float | None, ...]
    href: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """What one step covers. readout: what is shown when it is pointed at. texts: the value of each series in words."""

    x: float
    width: float
    href: str
    title: str
    readout: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """number: from 1, for colour and dashes. path: SVG in a box of 1000 by HEIGHT. label_y: None without a value."""

    number: int
    name: str
    path: str
    label_y: float | None


@dataclass(frozen=True, slots=True)
class Block:
    """One part of a bar. number: from 1, chooses colour and pattern."""

    number: int
    x: float
    width: float
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Key:
    """One series in words: its number, name, sum and what opens it."""

    number: int
    name: str
    text: str
    href: str


@dataclass(frozen=True, slots=True)
class NumberRow:
    title: str
    href: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart that is ready to be drawn: lines with a band, or bars. is_empty: there is no value at all."""

    title: str
    ticks: tuple[Tick, ...]
    words: tuple[AxisWord, ...]
    columns: tuple[Column, ...]
    lines: tuple[Line, ...] = ()
    band: str = ""
    blocks: tuple[Block, ...] = ()
    keys: tuple[Key, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[NumberRow, ...] = ()
    is_empty: bool = False
    height: int = HEIGHT


def draw_lines(
    title: str,
    steps: Sequence[Step],
    series: Sequence[Series],
    *,
    spell: Spell,
    spell_tick: Spell | None = None,
    log: bool = False,
) -> Picture:
    """Lines, broken where nothing was measured, with a band between the first and the last of them.

    log: a logarithmic scale from a whole power of ten, for values above 0; else the scale begins at 0. spell_tick: of
    the round numbers of the scale, `spell` where it is not stated.
    """
    spell, spell_tick = localized(spell), localized(spell_tick or spell)
    known = [value for each in series for value in each.values if value is not None]
    scale = log_scale(known) if log else plain_scale(max(known, default=0.0))
    lines = tuple(
        Line(number, each.name, _path(each.values, scale), _last_y(each.values, scale))
        for number, each in enumerate(series, 1)
    )
    return Picture(
        title=title,
        ticks=tuple(Tick(scale.y(value), spell_tick(value)) for value in scale.ticks),
        words=axis_words([step.label for step in steps], AXIS_WORDS),
        columns=_columns(steps, series, spell),
        lines=_apart(lines),
        band=_band(series[0].values, series[-1].values, scale) if len(series) > 1 else "",
        head=tuple(each.name for each in series),
        rows=_rows(steps, series, spell),
        is_empty=not known,
    )


def draw_bars(
    title: str,
    steps: Sequence[Step],
    series: Sequence[Series],
    *,
    spell: Spell,
    counts: bool = False,
    height: int = HEIGHT,
    words: int = AXIS_WORDS,
) -> Picture:
    """Stacked bars, the first series lowest. More than six series: the smallest are drawn as one, "others".

    counts: the values are whole numbers, and so are the ticks. height: px of the plot. words: at most so many
    labels below it.
    """
    spell = localized(spell)
    shown = fold_series(series)
    totals = [sum(each.values[index] or 0.0 for each in shown) for index in range(len(steps))]
    scale = plain_scale(max(totals, default=0.0), 1.0 if counts else 0.0, height)
    width = 100 / max(len(steps), 1)
    blocks = []
    for index in range(len(steps)):
        below = 0.0
        for number, each in enumerate(shown, 1):
            value = each.values[index] or 0.0
            if value > 0:
                top, bottom = scale.y(below + value), scale.y(below)
                blocks.append(Block(number, rounded((index + 0.14) * width), rounded(0.72 * width), top, bottom - top))
            below += value
    keys = [Key(number, each.name, spell(_total(each)), each.href) for number, each in enumerate(shown, 1)]
    return Picture(
        title=title,
        ticks=tuple(Tick(scale.y(value), spell(value)) for value in scale.ticks),
        words=axis_words([step.label for step in steps], words),
        columns=_columns(steps, shown, spell),
        blocks=tuple(blocks),
        keys=tuple(reversed(keys)),  # as they lie upon each other
        head=tuple(each.name for each in shown),
        rows=_rows(steps, shown, spell),
        is_empty=not any(totals),
        height=height,
    )


def fold_series(series: Sequence[Series]) -> list[Series]:
    """The series with a value, the largest first, ties by name; from the sixth on the rest as one, "others"."""
    ordered = sorted((each for each in series if _total(each) > 0), key=lambda each: (-_total(each), each.name))
    if len(ordered) <= SHOWN_SERIES + 1:
        return ordered
    rest = ordered[SHOWN_SERIES:]
    sums = tuple(
        sum(values) for values in zip(*([value or 0.0 for value in each.values] for each in rest), strict=True)
    )
    return [*ordered[:SHOWN_SERIES], Series(f"{len(rest)} {OTHERS}", sums)]


def plain_scale(highest: float, least: float = 0.0, height: int = HEIGHT) -> Scale:
    """From 0 to the next round number, with three to five ticks that are at least `least` apart."""
    if highest <= 0:
        return Scale(0.0, 1.0, (0.0,), height, HEAD)
    rough = highest / 4
    power = 10.0 ** math.floor(math.log10(rough))
    factors = (1, 2, 5, 10) if least else (1, 2, 2.5, 5, 10)
    unit = max(next(factor * power for factor in factors if factor * power >= rough * 0.999), least)
    count = math.ceil(highest / unit - 1e-9)
    return Scale(0.0, count * unit, tuple(number * unit for number in range(count + 1)), height, HEAD)


def log_scale(values: Sequence[float]) -> Scale:
    """From the power of ten below the lowest value to the 1, 2 or 5 above the highest, a tick at each power."""
    above = [value for value in values if value > 0]
    if not above:
        return Scale(1.0, 10.0, (1.0, 10.0), HEIGHT, HEAD, log=True)
    first = math.floor(math.log10(min(above)) + 1e-9)
    power = 10.0 ** math.floor(math.log10(max(above)) + 1e-9)
    high = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= max(above) * 0.999)
    high = max(high, 2 * 10.0**first)
    decades = range(first, math.floor(math.log10(high) + 1e-9) + 1)
    ticks = [10.0**exponent for exponent in decades]
    if len(ticks) <= 2:
        ticks = [factor * tick for tick in ticks for factor in (1, 2, 5) if factor * tick <= high * 1.001]
    return Scale(10.0**first, high, tuple(ticks), HEIGHT, HEAD, log=True)


def _places(values: Sequence[float | None], scale: Scale) -> list[list[tuple[float, float]]]:
    """The known values as points, in runs without a gap."""
    width = 1000 / max(len(values), 1)
    points = [
        (None if value is None else (rounded((index + 0.5) * width), scale.y(value)))
        for index, value in enumerate(values)
    ]
    runs = [list(run) for known, run in groupby(points, key=lambda point: point is not None) if known]
    return [[point for point in run if point is not None] for run in runs]


def _path(values: Sequence[float | None], scale: Scale) -> str:
    """A value between two gaps is a line across its step: a point would be too small to be seen."""
    width = rounded(1000 / max(len(values), 1))
    return "".join(
        line_path(run) if len(run) > 1 else f"M{rounded(run[0][0] - width / 2):g},{run[0][1]:g}h{width:g}"
        for run in _places(values, scale)
    )


def _band(low: Sequence[float | None], high: Sequence[float | None], scale: Scale) -> str:
    both = [(one, other) for one, other in zip(low, high, strict=True)]
    lower = _places([one if other is not None else None for one, other in both], scale)
    upper = _places([other if one is not None else None for one, other in both], scale)
    return "".join(
        line_path([*below, *reversed(above)]) + "Z" for below, above in zip(lower, upper, strict=True) if len(below) > 1
    )


def _last_y(values: Sequence[float | None], scale: Scale) -> float | None:
    return next((scale.y(value) for value in reversed(values) if value is not None), None)


def _apart(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The lines with their labels moved so far apart that they can be read, within the plot."""
    placed = sorted((line for line in lines if line.label_y is not None), key=lambda line: -(line.label_y or 0.0))
    moved: dict[int, float] = {}
    floor = float(HEIGHT)
    for line in placed:  # from below
        moved[line.number] = min(line.label_y or 0.0, floor)
        floor = moved[line.number] - LABEL_GAP
    ceiling = float(HEAD)
    for line in reversed(placed):  # from above: those that were pushed out come back in
        moved[line.number] = max(moved[line.number], ceiling)
        ceiling = moved[line.number] + LABEL_GAP
    return tuple(Line(line.number, line.name, line.path, moved.get(line.number)) for line in lines)


def _columns(steps: Sequence[Step], series: Sequence[Series], spell: Spell) -> tuple[Column, ...]:
    width = 100 / max(len(steps), 1)
    columns = []
    for index, step in enumerate(steps):
        known = [(each.name, each.values[index]) for each in series]
        details = [f"{name} {spell(value)}" for name, value in known if value is not None]
        readout = f"{step.title}: {', '.join(details) or gettext('nothing')}"
        texts = tuple("–" if value is None else spell(value) for _, value in known)
        columns.append(Column(rounded(index * width), rounded(width), step.href, step.title, readout, texts))
    return tuple(columns)


def _rows(steps: Sequence[Step], series: Sequence[Series], spell: Spell) -> tuple[NumberRow, ...]:
    """One row per step with a value other than 0, in order; an en dash where a series has none."""
    rows = []
    for index, step in enumerate(steps):
        values = [each.values[index] for each in series]
        if any(values):
            rows.append(NumberRow(step.title, step.href, tuple("–" if it is None else spell(it) for it in values)))
    return tuple(rows)


def _total(series: Series) -> float:
    return sum(value or 0.0 for value in series.values)
