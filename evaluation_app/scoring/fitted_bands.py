"""Thresholds fitted to a test set: from what its runs scored, so that right answers are not called poor.

Where enough answers are known to be right and wrong, a measure that separates them gets the bounds between them; one
that does not gets none, and stays grey. Where that is not known the bounds are quantiles, which say only how an answer
lies among the others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evaluation_app.measures.catalogue import CORRECT, Measure, by_construction, measure_of
from evaluation_app.measures.statistics import auroc
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenSet
from evaluation_app.scoring.modes import banded_measures

RUNS = 5  # the newest over the set's questions, by the judge of the newest one
EACH_LEAST = 5  # right answers, and wrong ones, below which separation is not measured
SEPARATES = 0.65  # AUROC from which on a measure gets bounds
TAIL = 0.05  # of right answers that may be poor, of wrong ones that may be good


@dataclass(frozen=True, slots=True)
class FittedBand:
    """auroc: how often a right answer scores better than a wrong one, ties half; None where quantiles were used.

    right and wrong: answers with a score; values: all of them, also where it is not known which they are.
    """

    measure: Measure
    good: float
    poor: float
    right: int
    wrong: int
    values: int
    auroc: float | None


@dataclass(frozen=True, slots=True)
class Fit:
    """bands: measure -> what was fitted. left_out: measure -> why it gets no bounds. answers: of all runs."""

    runs: Sequence[EvaluationRun] = ()
    answers: int = 0
    right: int = 0
    wrong: int = 0
    bands: Mapping[str, FittedBand] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Values:
    """The scores of one measure by what is known of their answers."""

    right: list[float] = field(default_factory=list)
    wrong: list[float] = field(default_factory=list)
    unknown: list[float] = field(default_factory=list)

    @property
    def all(self) -> list[float]:
        return [*self.right, *self.wrong, *self.unknown]


def fit_bands(golden_set: GoldenSet) -> Fit:
    """From the newest runs with answers over the set's present questions. Nothing is stored; empty without any run."""
    runs = fitting_runs(golden_set)
    if not runs:
        return Fit()
    values: dict[str, _Values] = defaultdict(_Values)
    counts = {True: 0, False: 0, None: 0}
    names = banded_measures(golden_set)
    rows = EvaluationItem.objects.filter(run__in=runs).exclude(outcome=EvaluationItem.Outcome.ERROR)
    for scores in rows.values_list("scores", flat=True):
        correctness = _value(scores, "correctness")
        is_right = None if correctness is None else correctness >= CORRECT
        counts[is_right] += 1
        for name in names:
            if (value := _value(scores, name)) is not None:
                known = values[name]
                (known.unknown if is_right is None else known.right if is_right else known.wrong).append(value)
    constant = by_construction(runs[0].answerer)
    bands: dict[str, FittedBand] = {}
    left_out: dict[str, str] = {}
    for name in names:
        if name in constant:
            left_out[name] = "true by construction for this answerer"
        elif name in values:
            fitted = _fit(measure_of(name), values[name])
            if isinstance(fitted, str):
                left_out[name] = fitted
            else:
                bands[name] = fitted
    return Fit(runs, sum(counts.values()), counts[True], counts[False], bands, left_out)


def fitting_runs(golden_set: GoldenSet) -> list[EvaluationRun]:
    """At most RUNS, newest first: finished, with answers, over the same questions, by the judge and the answerer of the
    newest one."""
    done = golden_set.runs.filter(state=EvaluationRun.State.SUCCEEDED).exclude(settings__contains={"answers": False})
    newest = done.order_by("-created_at", "-id").first()
    if newest is None:
        return []
    same = {name: getattr(newest, name) for name in ("set_digest", "judge", "judge_version", "answerer")}
    return list(done.filter(**same).order_by("-created_at", "-id")[:RUNS])


def _value(scores: Mapping[str, Mapping[str, float]], name: str) -> float | None:
    return scores[name].get("value") if name in scores else None


def _fit(measure: Measure, values: _Values) -> FittedBand | str:
    """The bounds, or why there are none. correctness is what right and wrong mean, so its bounds are given."""
    counts = len(values.right), len(values.wrong), len(values.all)
    if measure.name == "correctness":
        return FittedBand(measure, CORRECT, CORRECT, *counts, auroc=None)
    if len(set(values.all)) == 1:
        return "the same for every answer"
    sign = 1 if measure.higher_is_better else -1
    right, wrong = (sorted(sign * value for value in group) for group in (values.right, values.wrong))
    separation = None
    if min(len(right), len(wrong)) >= EACH_LEAST:
        separation = auroc([*right, *wrong], [True] * len(right) + [False] * len(wrong))
        if separation is not None and separation < SEPARATES:
            return f"does not separate right from wrong answers (AUROC {separation:.2f})"
        poor, good = _low(right), _high(wrong)
        if good < poor:
            poor = good = (good + poor) / 2
    else:
        everything = sorted(sign * value for value in values.all)
        poor, good = _low(right or everything), everything[len(everything) // 2]
        good = max(good, poor)
    return FittedBand(measure, *_rounded(good, poor), *counts, auroc=separation)


def _low(ordered: Sequence[float]) -> float:
    """The highest of the values below which at most TAIL of them lie."""
    return ordered[math.floor(TAIL * len(ordered))]


def _high(ordered: Sequence[float]) -> float:
    """The lowest of the values above which at most TAIL of them lie."""
    return ordered[len(ordered) - 1 - math.floor(TAIL * len(ordered))]


def _rounded(good: float, poor: float) -> tuple[float, float]:
    """To hundredths, away from each other, so that rounding calls no answer poor or good that was not."""
    upper, lower = math.ceil(round(100 * good, 6)) / 100, math.floor(round(100 * poor, 6)) / 100
    return abs(upper), abs(lower)
