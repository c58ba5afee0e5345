"""What a run amounts to: the means over its items, the thresholds that it and its questions miss."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

from evaluation_app.measures.catalogue import CUTS, RUBRIC, by_construction, find, order_of
from evaluation_app.measures.modes import failures
from evaluation_app.measures.scores import Score, mean
from evaluation_app.measures.statistics import bootstrap_mean
from evaluation_app.models import EvaluationRun
from evaluation_app.scoring.run_settings import RunSettings
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
