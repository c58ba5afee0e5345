"""What a run amounts to: means over its items, thresholds that are missed, and the figures that pages show.

A mean is placed among the published labels of RAGBench, counted by a benchmark (ragbench_share): the validation rows of
seven sets, labelled by GPT-4, with lengths in sentences. Each set counts alike.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from django.utils.translation import gettext, gettext_noop

from evaluation_app.judges.feature_model import Accuracy, accuracy_of, is_weak
from evaluation_app.measures.catalogue import (
    CUTS,
    DIMENSIONS,
    HEADLINE,
    RUBRIC,
    Band,
    Measure,
    by_construction,
    failures,
    find,
    measure_of,
    order_of,
)
from evaluation_app.measures.scores import Score, mean
from evaluation_app.measures.statistics import bootstrap_mean
from evaluation_app.models import EvaluationRun
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.scoring.modes import Bands
from ragd.errors import InvalidInput


class ScoredQuestion(Protocol):
    """What a verdict reads of an item."""

    @property
    def outcome(self) -> str: ...
    @property
    def scores(self) -> Any: ...
    @property
    def golden(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Miss:
    """A threshold that was not reached. value: None where nothing could be scored."""

    measure: str
    bound: float
    value: float | None
    reason: str


def check_thresholds(thresholds: Mapping[str, Any], settings: RunSettings) -> dict[str, float]:
    """Thresholds of a run as plain numbers, by measure. InvalidInput for what a run of these settings cannot reach.

    Which is: an unknown measure, a cut other than the run's, a measure whose judge or answers are switched off, and a
    bound that is no finite number.
    """
    selected: dict[str, float] = {}
    for name, bound in thresholds.items():
        _check_measured(name, settings)
        if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not math.isfinite(bound):
            raise InvalidInput(f"the threshold of {name} must be a finite number, not {bound!r}", field="thresholds")
        selected[name] = float(bound)
    return selected


def _check_measured(name: str, settings: RunSettings) -> None:
    group, base = find(name).group, name.partition("@")[0].removeprefix("chunk_")
    if base in CUTS and not name.endswith(f"@{settings.cut}"):
        raise InvalidInput(
            f"a threshold of {name} is never reached by a run whose cut is {settings.cut}; state "
            f"{name.partition('@')[0]}@{settings.cut}, or another cut",
            field="thresholds",
        )
    if name.startswith(RUBRIC) and name.removeprefix(RUBRIC) not in {each["name"] for each in settings.rubrics}:
        raise InvalidInput(
            f"a threshold of {name} needs that rubric, and the test set has none of this name; add it to the set",
            field="thresholds",
        )
    wanting = {
        "trace": None if settings.judge != "none" else "a judge",
        "answer": None if settings.answers else "answers",
        "noise": None if settings.judge != "none" else "a judge",
        "erag": None if settings.contributions else "contributions",
    }.get(group)
    if wanting:
        raise InvalidInput(
            f"a threshold of {name} needs {wanting}, and this run has none; switch that on, or leave {name} out",
            field="thresholds",
        )


def reaches(name: str, value: float, bound: float) -> bool:
    """Whether the value is at least the bound, or at most, where less is better."""
    return value >= bound if find(name).higher_is_better else value <= bound


def question_misses(
    item: ScoredQuestion, thresholds: Mapping[str, float], measured: Set[str] | None = None
) -> list[Miss] | None:
    """What a question misses, [] when it passes, None when no threshold speaks of it.

    thresholds: of the run; the question's own go over them. A score that failed is a miss. What cannot be scored is one
    only where the question itself demands it. A measure that the run does not have at all speaks of nobody.
    measured: the only measures whose thresholds count; None: all.
    """
    own: Mapping[str, float] = item.golden.get("thresholds") or {}
    misses: list[Miss] = []
    spoken = False
    for name, bound in {**thresholds, **own}.items():
        if measured is not None and name not in measured:
            continue
        score = item.scores.get(name)
        if score is None and item.outcome != "error":
            continue
        state = score["state"] if score else "error"
        if state == "unscorable" and name not in own:
            continue
        spoken = True
        value = score.get("value") if score else None
        if value is None:
            misses.append(Miss(name, bound, None, (score or {}).get("reason") or "the question failed"))
        elif not reaches(name, value, bound):
            misses.append(Miss(name, bound, value, f"{value:.4g} does not reach {bound:g}"))
    return misses if spoken else None


def run_misses(summary: Mapping[str, Any], thresholds: Mapping[str, float]) -> list[Miss]:
    """The thresholds of a run that its means do not reach, in their order."""
    misses = []
    for name, bound in thresholds.items():
        mean = summary.get("measures", {}).get(name)
        value = mean["value"] if mean else None
        if value is None:
            misses.append(Miss(name, bound, None, "nothing was scored"))
        elif not reaches(name, value, bound):
            misses.append(Miss(name, bound, value, f"{value:.4g} does not reach {bound:g}"))
    return misses


def misses_of(run: EvaluationRun) -> list[Miss]:
    """`run_misses` of a run that has ended; [] before, and without any figure."""
    return run_misses(run.summary, run.thresholds) if run.summary and not run.is_active else []


def run_verdict(summary: Mapping[str, Any], thresholds: Mapping[str, float], failed: int) -> bool | None:
    """False where an item failed, a mean misses its threshold or a question one of its own; None: none is set."""
    if failed:
        return False
    own = summary.get("own_thresholds", {"passed": 0, "failed": 0})
    if not thresholds and not own["passed"] + own["failed"]:
        return None
    return not run_misses(summary, thresholds) and not own["failed"]


class SummedItem(Protocol):
    """What a summary reads of an item; `EvaluationItem` has it."""

    @property
    def scores(self) -> Any: ...
    @property
    def category(self) -> str: ...
    @property
    def weight(self) -> float: ...
    @property
    def outcome(self) -> str: ...
    @property
    def modes(self) -> list[str]: ...
    @property
    def golden(self) -> Any: ...
    @property
    def details(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Line:
    """The few values of an item that a summary is made of, kept while a run goes on."""

    scores: Mapping[str, Mapping[str, Any]]
    category: str
    weight: float
    outcome: str
    modes: list[str]
    golden: Mapping[str, Any]
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, item: SummedItem) -> Line:
        golden = {name: item.golden.get(name) for name in ("thresholds", "by_construction")}
        details = {"store_state": item.details.get("store_state")}
        return cls(item.scores, item.category, item.weight, item.outcome, item.modes, golden, details)


def summarize(
    items: Iterable[SummedItem],
    settings: RunSettings,
    *,
    thresholds: Mapping[str, float] | None = None,
    intervals: bool = True,
    answerer: str = "",
) -> dict[str, Any]:
    """The figures of a run as plain JSON.

    measures: name -> the mean, weighted by the questions' weights, as `Mean.as_dict()` with "low" and "high" of its
    95 % bootstrap interval, in the catalogue's order; both None without a scored value or when intervals is False.
    categories: category -> name -> mean without interval. outcomes, modes: how many items, most frequent first, ties
    by name. cut and unit: of the settings, so that the figures explain themselves. passed_questions and
    failed_questions: by the run's thresholds with the questions' own over them; one of which no threshold speaks counts
    in neither. own_thresholds: {"passed", "failed"}, of questions that have some, by these alone. store_states: how
    many different contents of the collection the questions met; more than 1: it changed meanwhile. failing: how many
    items fail (`EvaluationItem.is_failing`). by_construction: the measures that cannot vary for the answerer.
    found_by_construction: how many questions were suggested because a search had found their document, which flatters
    hit and its kin. Without items all is empty.
    """
    lines = list(items)
    named: dict[str, list[tuple[Score, float]]] = defaultdict(list)
    by_category: dict[str, dict[str, list[tuple[Score, float]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        for name, values in line.scores.items():
            pair = (Score.from_dict(dict(values)), line.weight)
            named[name].append(pair)
            by_category[line.category][name].append(pair)
    names = sorted(named, key=order_of)
    verdicts = [question_misses(line, thresholds or {}) for line in lines]
    own = [question_misses(line, {}) for line in lines]
    return {
        "measures": {name: _measure(named[name], intervals) for name in names},
        "categories": {
            category: {name: _mean(match[name]) for name in names if name in match}
            for category, match in sorted(by_category.items())
        },
        "outcomes": _count(line.outcome for line in lines),
        "modes": _count(mode for line in lines for mode in line.modes),
        "failing": sum(line.outcome == "error" or bool(failures(line.modes)) for line in lines),
        "by_construction": sorted(by_construction(answerer)),
        "found_by_construction": sum(bool(line.golden.get("by_construction")) for line in lines),
        "passed_questions": sum(misses == [] for misses in verdicts),
        "failed_questions": sum(bool(misses) for misses in verdicts),
        "own_thresholds": {"passed": sum(misses == [] for misses in own), "failed": sum(bool(each) for each in own)},
        "cut": settings.cut,
        "unit": settings.unit,
        "store_states": len({str(state) for line in lines if (state := line.details.get("store_state"))}),
    }


def _mean(pairs: Sequence[tuple[Score, float]]) -> dict[str, Any]:
    return mean([score for score, _ in pairs], [weight for _, weight in pairs]).as_dict()


def _measure(pairs: Sequence[tuple[Score, float]], intervals: bool) -> dict[str, Any]:
    result: dict[str, Any] = _mean(pairs) | {"low": None, "high": None}
    if intervals and result["value"] is not None:
        known = [(score.value, weight) for score, weight in pairs if score.value is not None]
        interval = bootstrap_mean([value for value, _ in known], weights=[weight for _, weight in known])
        if interval is not None:
            result |= {"low": interval.low, "high": interval.high}
    return result


def _count(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda pair: (-pair[1], pair[0])))


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
        """None where nothing changed in the three places that are shown, or nothing is known of before."""
        if self.change is None or abs(self.change) < 0.0005:
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
