"""What decides between two runs: their difference in the primary measure and in the guardrails of the set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation_app.analysis.comparison.changes import MeasureChange, QuestionChange
from evaluation_app.analysis.comparison.yardsticks import Yardsticks
from evaluation_app.golden.criteria import Criteria
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.measures.statistics import SAME, Interval, sign_flip_p
from evaluation_app.models import EvaluationRun


@dataclass(frozen=True, slots=True)
class Finding:
    """One measure over the questions that both runs scored: the primary one, or a guardrail.

    difference: other - base. p: `sign_flip_p` of the weighted differences, of this pair alone. allowed: of the primary
    measure the smallest relevant effect, of a guardrail the largest drop. by_construction: why a gain says nothing.
    """

    measure: str
    title: str
    higher_is_better: bool
    difference: Interval
    p: float
    better: int
    worse: int
    same: int
    allowed: float
    by_construction: str = ""

    @property
    def gain(self) -> float:
        """The mean difference, above 0 for better."""
        return self.difference.mean if self.higher_is_better else -self.difference.mean

    @property
    def highest_gain(self) -> float:
        """The interval's end on the better side."""
        return self.difference.high if self.higher_is_better else -self.difference.low

    @property
    def is_relevant(self) -> bool:
        """Whether the mean difference reaches what is allowed, either way; rounding does not count."""
        return abs(self.gain) >= self.allowed - SAME

    @property
    def has_dropped(self) -> bool:
        """Whether it fell by more than is allowed; rounding does not count."""
        return -self.gain > self.allowed + SAME

    @property
    def moved(self) -> int:
        return self.better + self.worse

    @property
    def count(self) -> int:
        return self.moved + self.same


@dataclass(frozen=True, slots=True)
class Decisive:
    """primary: None where the runs cannot be compared by it, with the reason. guardrails: those that can be compared,
    in the catalogue's order."""

    primary: Finding | None
    guardrails: tuple[Finding, ...]
    reason: str = ""


def find_decisive(
    runs: tuple[EvaluationRun, EvaluationRun],
    criteria: Criteria,
    yardsticks: Yardsticks,
    changes: Sequence[MeasureChange],
    questions: Sequence[QuestionChange],
    weights: Sequence[float],
) -> Decisive:
    """runs: the base and the other. weights: of the questions, in their order."""
    allowed = criteria.guardrails_for(runs)
    primary = criteria.primary_for(runs)
    known = {change.name: change for change in changes}
    found = {
        name: _finding(known[name], allowed.get(name, criteria.relevant_effect), yardsticks, questions, weights)
        for name in known
        if (name == primary or name in allowed) and known[name].difference is not None
    }
    guardrails = tuple(finding for name, finding in found.items() if name != primary)
    if primary in found:
        return Decisive(found[primary], guardrails)
    return Decisive(None, guardrails, _missing(primary, criteria, known.get(primary)))


def _finding(
    change: MeasureChange,
    allowed: float,
    yardsticks: Yardsticks,
    questions: Sequence[QuestionChange],
    weights: Sequence[float],
) -> Finding:
    assert change.difference is not None
    weighted = [
        item.deltas[change.name] * weight
        for item, weight in zip(questions, weights, strict=True)
        if change.name in item.deltas
    ]
    return Finding(
        measure=change.name,
        title=change.title,
        higher_is_better=change.higher_is_better,
        difference=change.difference,
        p=sign_flip_p(weighted),
        better=change.better,
        worse=change.worse,
        same=change.same,
        allowed=allowed,
        by_construction=yardsticks.by_construction(measure_of(change.name)),
    )


def _missing(primary: str, criteria: Criteria, change: MeasureChange | None) -> str:
    if change is not None:
        return f"{change.title}: {change.reason or 'no question is scored in both runs'}"
    wanted = measure_of(criteria.primary_measure).title if criteria.primary_measure else "the primary metric"
    return f"{wanted} is not scored in both runs"
