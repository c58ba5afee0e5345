"""The figures of one run as pages show them: a measure's mean with its interval, band, coverage and what it is compared
with. Read from the run's summary, so that no item has to be read.

A mean is placed among the published labels of RAGBench, counted by a benchmark (ragbench_share): the validation rows of
seven sets, labelled by GPT-4, with lengths in sentences. Each set counts alike."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from django.utils.translation import gettext, gettext_noop

from evaluation_app.judges.estimates import Accuracy, accuracy_of, is_weak
from evaluation_app.measures.catalogue import DIMENSIONS, HEADLINE, Band, Measure, by_construction, measure_of, order_of
from evaluation_app.models import EvaluationRun
from evaluation_app.scoring.modes import Bands

GROUPS = {
    "retrieval": gettext_noop("Retrieval"),
    "trace": gettext_noop("Context and answer"),
    "answer": gettext_noop("Expected answer"),
    "erag": gettext_noop("Document contribution"),
    "noise": gettext_noop("Noise"),
    "outcome": gettext_noop("Outcome"),
}
FILLED_TO = 4  # a page that begins with few headline measures shows others beside them
JUDGED_GROUPS = ("trace", "noise")
TABLE = Path(__file__).with_name("ragbench.json")
STEPS = 100  # scores are counted by hundredths, so a percentile is exact to one


@cache
def stored_counts() -> Mapping[str, Mapping[str, Sequence[int]]]:
    """Measure -> set -> how many rows are at 0.00, 0.01, ... 1.00."""
    values: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    counts: Mapping[str, Mapping[str, Sequence[int]]] = values["measures"]
    return counts


def percentile_of(name: str, value: float) -> float | None:
    """The share of rows that score less, with half of those that score the same to a hundredth; 0 to 1.

    None for a measure that RAGBench has no labels of.
    """
    sets = stored_counts().get(name)
    if not sets:
        return None
    index = min(max(round(value * STEPS), 0), STEPS)
    shares = [(sum(counts[:index]) + counts[index] / 2) / sum(counts) for counts in sets.values()]
    return sum(shares) / len(shares)


def shares_of(name: str, bins: int) -> Sequence[float] | None:
    """Which share of rows lies in each of so many equal bins of 0 to 1; the last holds 1.0. None as above."""
    sets = stored_counts().get(name)
    if not sets:
        return None
    shares = [0.0] * bins
    for counts in sets.values():
        for index, count in enumerate(counts):
            shares[min(index * bins // STEPS, bins - 1)] += count / sum(counts) / len(sets)
    return shares


@dataclass(frozen=True, slots=True)
class Figure:
    """value: None where nothing was scored. low, high: its 95 % interval, None where there is none.

    base: the mean of the run that this one is held against. percentile: see `percentile_of`. by_construction: whether
    the run's answerer cannot have another one. judge: whose figure it is, "" for a measure that needs none.
    """

    measure: Measure
    value: float | None
    low: float | None
    high: float | None
    scored: int
    unscorable: int
    errors: int
    threshold: float | None = None
    base: float | None = None
    percentile: float | None = None
    by_construction: bool = False
    judge: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether every scored question has the same value, so that the mean separates none."""
        return self.scored > 1 and self.low is not None and self.low == self.high

    @property
    def name(self) -> str:
        return self.measure.name

    @property
    def total(self) -> int:
        return self.scored + self.unscorable + self.errors

    @property
    def is_complete(self) -> bool:
        return self.scored == self.total

    @property
    def band(self) -> Band | None:
        return None if self.value is None or self.by_construction else self.measure.band(self.value)

    @property
    def change(self) -> float | None:
        return None if self.value is None or self.base is None else self.value - self.base

    @property
    def is_better(self) -> bool | None:
        """None where nothing changed, or nothing is known of before."""
        if self.change is None or abs(self.change) < 1e-9:
            return None
        return (self.change > 0) == self.measure.higher_is_better

    @property
    def misses_threshold(self) -> bool:
        """Whether there is a threshold that the mean does not reach; what has no mean does not reach it."""
        if self.threshold is None:
            return False
        if self.value is None:
            return True
        return self.value < self.threshold if self.measure.higher_is_better else self.value > self.threshold


def run_figures(run: EvaluationRun, bands: Bands, base: EvaluationRun | None = None) -> list[Figure]:
    """Every measure of the run's summary in the catalogue's order, and those that only have a threshold.

    base: a run over the same questions; one over others lends no base.
    """
    means = means_of(run.summary)
    bases = means_of(base.summary) if base is not None and base.set_digest == run.set_digest else {}
    names = sorted({*means, *run.thresholds}, key=order_of)
    constant = by_construction(run.answerer)
    figures = (
        make_figure(name, means.get(name, {}), bands, run.thresholds.get(name), bases.get(name)) for name in names
    )
    return [
        replace(figure, by_construction=figure.name in constant, judge=judge_of(figure.measure, run.judge_identity))
        for figure in figures
    ]


def judge_of(measure: Measure, judge: str) -> str:
    """The judge that the measure rests on, as in `accuracy_of`; "" for one that rests on none."""
    return judge if measure.group in JUDGED_GROUPS and judge != "none" else ""


def question_bands(judge: str, bands: Bands) -> Bands:
    """The bands for single questions: without the measures by which the judge is weak per question."""
    return {name: pair for name, pair in bands.items() if not is_weak(judge, name)}


def judge_accuracy(figures: Iterable[Figure]) -> list[tuple[Figure, Accuracy]]:
    """The judged figures of which it was measured how right their judge is, in the given order."""
    known = ((figure, accuracy_of(figure.judge, figure.name)) for figure in figures if figure.judge)
    return [(figure, accuracy) for figure, accuracy in known if accuracy is not None]


def make_figure(
    name: str,
    values: Mapping[str, Any],
    bands: Bands,
    threshold: float | None = None,
    base: Mapping[str, Any] | None = None,
) -> Figure:
    """values: `Mean.as_dict()`, with low and high where there is an interval."""
    value = values.get("value")
    return Figure(
        measure=measure_of(name, bands),
        value=value,
        low=values.get("low"),
        high=values.get("high"),
        scored=values.get("scored", 0),
        unscorable=values.get("unscorable", 0),
        errors=values.get("errors", 0),
        threshold=threshold,
        base=base.get("value") if base else None,
        percentile=percentile_of(name, value) if value is not None else None,
    )


def means_of(summary: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    result: Mapping[str, Mapping[str, Any]] = summary.get("measures", {})
    return result


def grouped(figures: Sequence[Figure]) -> list[tuple[str, list[Figure]]]:
    """(title of the group, its figures) in the order of GROUPS; groups without any are left out."""
    groups = [
        (gettext(title), [item for item in figures if item.measure.group == key]) for key, title in GROUPS.items()
    ]
    return [(title, members) for title, members in groups if members]


def first_names(names: Iterable[str], count: int, answerer: str = "") -> list[str]:
    """What a page begins with, at most `count`: the headline measures in their order, without those that the answerer
    has by construction; filled up to FILLED_TO by the others in the catalogue's order."""
    constant = by_construction(answerer)
    known = [name for name in sorted(names, key=order_of) if name not in constant]
    headline = sorted(
        (name for name in known if name.partition("@")[0] in HEADLINE),
        key=lambda name: HEADLINE.index(name.partition("@")[0]),
    )
    others = [name for name in known if name not in headline]
    return [*headline, *others[: max(FILLED_TO - len(headline), 0)]][:count]


def overview_names(names: Collection[str], answerer: str = "") -> list[str]:
    """What the page of a run or a set shows first: correctness and the four dimensions of TRACe, filled up to as many
    by other measures where some of these were not measured."""
    first = [name for name in ("correctness", *DIMENSIONS) if name in names]
    others = [name for name in first_names(names, len(HEADLINE), answerer) if name not in first]
    return [*first, *others][: 1 + len(DIMENSIONS)]


def coverage_of(figures: Sequence[Figure]) -> dict[str, int]:
    """How many scores of all measures are scored, unscorable and errors."""
    return {
        "scored": sum(item.scored for item in figures),
        "unscorable": sum(item.unscorable for item in figures),
        "errors": sum(item.errors for item in figures),
    }
