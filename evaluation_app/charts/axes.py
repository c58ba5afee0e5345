"""What all pictures share: a scale with its ticks, words under an axis, paths through points, rounded numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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
