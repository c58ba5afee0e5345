"""What a comparison reads of runs: the items without texts and contexts, and what the runs were made with as far as it
differs: the reasons that a difference of figures may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models.fields.json import KeyTransform

from evaluation_app.measures.modes import failures
from evaluation_app.measures.scores import Score
from evaluation_app.models import EvaluationItem, EvaluationRun
from evaluation_app.runs.summaries import question_misses
from ragd.types import canonical_json

ITEM_FIELDS = (
    "run", "position", "question_text", "category", "weight", "golden", "outcome", "scores", "modes", "query_run",
    "trace_id", "cost_usd",
)  # fmt: skip
MOMENT_CHARS = len("2026-01-31 23:59:59.123456")
# field of EvaluationRun -> what it is called; in the order in which they are shown, behind plan and settings
HEADER_FIELDS: Mapping[str, str] = {
    "collection_name": "Collection",
    "index_version": "Index version",
    "embed_model": "Embedding model",
    "answerer": "Model",
    "prompt_hash": "Prompt hash",
    "calibration": "Calibration",
    "judge": "Judge",
    "judge_version": "Judge version",
    "spec_version": "Specification",
    "code_version": "Code version",
}
SHOWN_APART = ("judge", "judge_model")  # of the settings: fields of the run itself say them
HASH_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Asked:
    """How one question went in one run. passed: see `passes`."""

    outcome: str
    modes: tuple[str, ...]
    query_run: UUID | None
    trace_id: str
    passed: bool

    @property
    def failures(self) -> tuple[str, ...]:
        """Its modes without the diagnostics, which alone fail no question."""
        return failures(self.modes)

    @property
    def is_error(self) -> bool:
        return self.outcome == EvaluationItem.Outcome.ERROR


@dataclass(frozen=True, slots=True)
class RunItem:
    """One question in one run, with its scores."""

    position: int
    question: str
    category: str
    weight: float
    scores: Mapping[str, Score]
    asked: Asked
    cost_usd: float | None

    @property
    def query_run(self) -> UUID | None:
        return self.asked.query_run


def read_items(run: EvaluationRun) -> list[EvaluationItem]:
    """What is done so far, without texts and contexts: one query."""
    return list(run.items.only(*ITEM_FIELDS))


def pair_items(
    base: EvaluationRun, before: Sequence[EvaluationItem], after: Sequence[EvaluationItem]
) -> tuple[dict[int, RunItem], dict[int, RunItem]]:
    """Of each run position -> item. before: of the base.

    What passes is judged alike in both: by the base's thresholds, as far as both runs measured them.
    """
    measured = [{name for item in items for name in item.scores} for items in (before, after) if items]
    shared = set.intersection(*measured) if measured else set()
    old, new = (
        {item.position: _run_item(item, base.thresholds, shared) for item in items} for items in (before, after)
    )
    return old, new


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

    Where none does: whether it does not fail (`EvaluationItem.is_failing`). measured: as in `question_misses`.
    """
    misses = question_misses(item, thresholds, measured)
    return not item.is_failing if misses is None else not misses


def _run_item(item: EvaluationItem, thresholds: Mapping[str, float], measured: Set[str]) -> RunItem:
    passed = passes(item, thresholds, measured)
    return RunItem(
        position=item.position,
        question=item.question_text,
        category=item.category,
        weight=item.weight,
        scores={name: Score.from_dict(value) for name, value in item.scores.items()},
        asked=Asked(item.outcome, tuple(item.modes), item.query_run, item.trace_id, passed),
        cost_usd=item.cost_usd,
    )


@dataclass(frozen=True, slots=True)
class HeaderRow:
    """One field that is not the same in all runs. values: one per run, the base first, as text; "–" for none."""

    name: str
    title: str
    values: tuple[str, ...]

    @property
    def changed(self) -> tuple[bool, ...]:
        """Per run whether it differs from the base."""
        return tuple(value != self.values[0] for value in self.values)

    @property
    def cells(self) -> list[tuple[str, bool]]:
        """(value, whether it differs from the base) per run."""
        return list(zip(self.values, self.changed, strict=True))


def compare_headers(runs: Sequence[EvaluationRun], contents: Sequence[str]) -> list[HeaderRow]:
    """The fields that differ between runs, the base first: those of the plan, of the settings, then of the rest.

    contents: `read_contents` of each run.
    """
    rows = [*_plan_rows(runs), *_settings_rows(runs)]
    rows += [_row(name, title, [getattr(run, name) for run in runs]) for name, title in HEADER_FIELDS.items()]
    rows.append(_row("thresholds", "Pass criteria", [run.thresholds for run in runs]))
    rows.append(_row("contents", "Contents", contents))
    return [row for row in rows if any(row.changed)]


def _plan_rows(runs: Sequence[EvaluationRun]) -> Iterator[HeaderRow]:
    flat = [_flatten(run.plan) for run in runs]
    for name in _names(flat):
        yield _row(
            f"plan.{name}",
            f"Settings, {name.replace('_', ' ').replace('.', ' ')}",
            [values.get(name) for values in flat],
        )


def _settings_rows(runs: Sequence[EvaluationRun]) -> Iterator[HeaderRow]:
    flat = [{name: value for name, value in run.settings.items() if name not in SHOWN_APART} for run in runs]
    for name in _names(flat):
        values = [each.get(name) for each in flat]
        yield _row(f"settings.{name}", name.replace("_", " ").capitalize(), values)


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Objects within the plan by their own fields: "weights.vector"."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _names(dicts: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for each in dicts for name in each))


def _row(name: str, title: str, values: Sequence[Any]) -> HeaderRow:
    return HeaderRow(name, title, tuple(_spell(name, value) for value in values))


def _spell(name: str, value: Any) -> str:
    if value is None or value == "" or value == [] or value == {}:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | dict):
        return canonical_json(value)
    text = str(value)
    return text[:HASH_SHOWN] if name == "prompt_hash" else text
