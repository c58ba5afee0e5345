"""What a run's items add up to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from evaluation_app.measures.catalogue import order_of
from evaluation_app.measures.scores import Score, mean
from evaluation_app.measures.statistics import bootstrap_mean
from evaluation_app.runs.threshold_results import question_misses
from evaluation_app.scoring.run_settings import RunSettings


class Summed(Protocol):
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
    def of(cls, item: Summed) -> Line:
        golden = {"thresholds": item.golden.get("thresholds") or {}}
        details = {"store_state": item.details.get("store_state")}
        return cls(item.scores, item.category, item.weight, item.outcome, item.modes, golden, details)


def summarize(
    items: Iterable[Summed],
    settings: RunSettings,
    *,
    thresholds: Mapping[str, float] | None = None,
    intervals: bool = True,
) -> dict[str, Any]:
    """The figures of a run as plain JSON.

    measures: name -> the mean, weighted by the questions' weights, as `Mean.as_dict()` with "low" and "high" of its
    95 % bootstrap interval, in the catalogue's order; both None without a scored value or when intervals is False.
    categories: category -> name -> mean without interval. outcomes, modes: how many items, most frequent first, ties
    by name. cut and unit: of the settings, so that the figures explain themselves. passed_questions and
    failed_questions: by the run's thresholds with the questions' own over them; one of which no threshold speaks counts
    in neither. own_thresholds: {"passed", "failed"}, of questions that have some, by these alone. store_states: how
    many different contents of the collection the questions met; more than 1: it changed meanwhile. Without items all is
    empty.
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
