"""What moved between two runs: per measure, and per question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from evaluation_app.analysis.comparison.run_reader import Asked
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.measures.scores import Mean
from evaluation_app.measures.statistics import SAME, Interval, Verdict


@cache
def _is_higher_better(measure: str) -> bool:
    return measure_of(measure).higher_is_better


@dataclass(frozen=True, slots=True)
class Move:
    """A measure whose score differs. delta: after - before; gain: the same, above 0 for better."""

    measure: str
    delta: float
    gain: float

    @property
    def title(self) -> str:
        return measure_of(self.measure).title


@dataclass(frozen=True)
class QuestionChange:
    """One question in both runs. deltas: measure -> after - before, of those that both scored and may be compared."""

    position: int
    question: str
    category: str
    before: Asked
    after: Asked
    deltas: Mapping[str, float]

    @cached_property
    def moves(self) -> list[Move]:
        """The measures whose scores differ: losses, then gains, the largest first; ties in the catalogue's order."""
        moved = [Move(name, delta, self._gain(name)) for name, delta in self.deltas.items() if abs(delta) > SAME]
        return sorted(moved, key=lambda item: (item.gain > 0, -abs(item.gain)))

    @property
    def worst(self) -> float:
        """The largest loss in any measure, below 0; else the smallest gain; 0 when nothing moved."""
        return min((item.gain for item in self.moves), default=0.0)

    @property
    def broke(self) -> bool:
        """Whether asking it failed in the later run alone."""
        return self.after.is_error and not self.before.is_error

    @cached_property
    def is_worse(self) -> bool:
        return self.broke or any(item.gain < 0 for item in self.moves)

    @cached_property
    def is_better(self) -> bool:
        return any(item.gain > 0 for item in self.moves)

    @property
    def lost(self) -> bool:
        """It was passing and does not any more."""
        return self.before.passed and not self.after.passed

    @property
    def won(self) -> bool:
        return self.after.passed and not self.before.passed

    def gain_in(self, measure: str) -> float | None:
        return self._gain(measure) if measure in self.deltas else None

    def _gain(self, measure: str) -> float:
        delta = self.deltas[measure]
        return delta if _is_higher_better(measure) else -delta


@dataclass(frozen=True, slots=True)
class MeasureChange:
    """One measure in both runs.

    base and other: the mean of all questions of each run, with its coverage. difference: other - base over the
    questions that are scored in both (`difference.count`), None without any. better, worse, same: so many of those.
    reason: why the two are not compared, "" when they are.
    """

    name: str
    title: str
    higher_is_better: bool
    base: Mean
    other: Mean
    difference: Interval | None
    verdict: Verdict
    better: int = 0
    worse: int = 0
    same: int = 0
    reason: str = ""
