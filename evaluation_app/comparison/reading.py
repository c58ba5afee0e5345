"""The items of a run as a comparison reads them: scores and outcomes, without texts and contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from evaluation_app.measures.catalogue import Measure, find
from evaluation_app.measures.scores import Score
from evaluation_app.models import EvaluationItem, EvaluationRun
from ragd.errors import InvalidInput

FIELDS = (
    "position", "question_text", "category", "weight", "golden", "outcome", "scores", "modes", "query_run", "trace_id",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """One question in one run. passed: see `passes`."""

    position: int
    question: str
    category: str
    weight: float
    outcome: str
    scores: Mapping[str, Score]
    modes: tuple[str, ...]
    query_run: UUID | None
    trace_id: str
    passed: bool

    @property
    def is_error(self) -> bool:
        return self.outcome == EvaluationItem.Outcome.ERROR


def read_items(run: EvaluationRun) -> dict[int, Asked]:
    """Position -> item of what is done so far. One query."""
    return {row["position"]: _asked(row, run.thresholds) for row in run.items.values(*FIELDS)}


def passes(outcome: str, scores: Mapping[str, Score], modes: Sequence[str], thresholds: Mapping[str, float]) -> bool:
    """Whether a question is answered well enough.

    thresholds: measure -> the value that it must reach (for a measure where less is better: must not exceed); what is
    unscorable is left out, an error fails. Without thresholds: whether no failure mode was found in it.
    """
    if outcome == EvaluationItem.Outcome.ERROR:
        return False
    if not thresholds:
        return not modes
    return all(_reaches(name, scores.get(name), bound) for name, bound in thresholds.items())


def _reaches(name: str, score: Score | None, bound: float) -> bool:
    if score is None or score.state == "unscorable":
        return True
    if score.value is None:
        return False
    return score.value >= bound if measure_of(name).higher_is_better else score.value <= bound


@lru_cache(maxsize=512)
def measure_of(name: str) -> Measure:
    """The catalogue's measure; for a name that it does not know one without bands, where more is better."""
    try:
        return find(name)
    except InvalidInput:
        return Measure(name, name.replace("_", " ").capitalize(), "outcome", "")


def _asked(row: Mapping[str, Any], thresholds: Mapping[str, float]) -> Asked:
    scores = {name: Score.from_dict(value) for name, value in row["scores"].items()}
    bounds = {**thresholds, **(row["golden"].get("thresholds") or {})}
    return Asked(
        position=row["position"],
        question=row["question_text"],
        category=row["category"],
        weight=row["weight"],
        outcome=row["outcome"],
        scores=scores,
        modes=tuple(row["modes"]),
        query_run=row["query_run"],
        trace_id=row["trace_id"],
        passed=passes(row["outcome"], scores, row["modes"], bounds),
    )
