"""The items of a run as a comparison reads them: scores and outcomes, without texts and contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from django.db.models.fields.json import KeyTransform

from evaluation_app.measures.catalogue import Measure, find
from evaluation_app.measures.scores import Score
from evaluation_app.models import EvaluationItem, EvaluationRun
from evaluation_app.runs.threshold_results import question_misses
from ragd.errors import InvalidInput

FIELDS = (
    "position", "question_text", "category", "weight", "golden", "outcome", "scores", "modes", "query_run", "trace_id",
)  # fmt: skip
MOMENT_CHARS = len("2026-01-31 23:59:59.123456")


@dataclass(frozen=True, slots=True)
class RunItem:
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


def read_items(runs: Sequence[EvaluationRun]) -> list[dict[int, RunItem]]:
    """Of each run position -> item of what is done so far. One query a run.

    What passes is judged alike in all of them: by the first run's thresholds, as far as every run measured them.
    """
    stored = [list(run.items.only(*FIELDS)) for run in runs]
    measured = [{name for item in items for name in item.scores} for items in stored if items]
    shared = set.intersection(*measured) if measured else set()
    return [{item.position: _run_item(item, runs[0].thresholds, shared) for item in items} for items in stored]


def read_contents(run: EvaluationRun) -> str:
    """What the collection held while the run asked it, in words that differ when that differs; "" where unknown."""
    states = run.items.annotate(state=KeyTransform("store_state", "details")).exclude(state=None)
    result = [state for state in states.order_by().values_list("state", flat=True).distinct()[:2] if state]
    if not result:
        return ""
    if len(result) > 1:
        return "changed while the run went on"
    (state,) = result
    moment = (state.get("documents_changed_at") or "").replace("T", " ")[:MOMENT_CHARS]
    return f"{state.get('chunks', 0):,} chunks" + (f", documents of {moment}" if moment else "")


def passes(item: EvaluationItem, thresholds: Mapping[str, float], measured: Set[str]) -> bool:
    """Whether a question is answered well enough: by the thresholds that speak of it (see `question_misses`).

    Where none does: whether it could be asked and no failure mode was found in it. measured: as in `question_misses`.
    """
    misses = question_misses(item, thresholds, measured)
    if misses is None:
        return item.outcome != EvaluationItem.Outcome.ERROR and not item.modes
    return not misses


@lru_cache(maxsize=512)
def measure_of(name: str) -> Measure:
    """The catalogue's measure; for a name that it does not know one without bands, where more is better."""
    try:
        return find(name)
    except InvalidInput:
        return Measure(name, name.replace("_", " ").capitalize(), "outcome", "")


def _run_item(item: EvaluationItem, thresholds: Mapping[str, float], measured: Set[str]) -> RunItem:
    return RunItem(
        position=item.position,
        question=item.question_text,
        category=item.category,
        weight=item.weight,
        outcome=item.outcome,
        scores={name: Score.from_dict(value) for name, value in item.scores.items()},
        modes=tuple(item.modes),
        query_run=item.query_run,
        trace_id=item.trace_id,
        passed=passes(item, thresholds, measured),
    )
