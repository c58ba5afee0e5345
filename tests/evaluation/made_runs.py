"""Evaluation runs with scores that a test states, stored without asking anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragd.types import RetrievePlan

if TYPE_CHECKING:  # this file is read before Django is set up
    from evaluation_app.models import EvaluationRun, GoldenSet

SETTINGS = {"answers": True, "judge": "embedded", "cut": 10, "unit": "tokens", "downstream": "f1"}


def make_set(name: str, collection_name: str, questions: Mapping[str, str | Sequence[str]], **values: Any) -> GoldenSet:
    """questions: question -> the document that it expects, or several, in their order. values: of each of them."""
    from evaluation_app.models import GoldenQuestion, GoldenSet

    made = GoldenSet.objects.create(name=name, collection_name=collection_name)
    for place, (question, expected) in enumerate(questions.items()):
        ids = [expected] if isinstance(expected, str) else expected
        GoldenQuestion.objects.create(
            golden_set=made, position=place, question=question, expected_doc_ids=ids, **values
        )
    return made


def make_run(
    scores: Sequence[Mapping[str, float | None]],
    *,
    plan: RetrievePlan | None = None,
    items: Mapping[int, Mapping[str, Any]] | None = None,
    base_run: EvaluationRun | None = None,
    fix: Mapping[str, str] | None = None,
    **values: Any,
) -> EvaluationRun:
    """A finished run. scores: per question measure -> value, None for unscorable. items: position -> fields of it.

    base_run: it is the run of a fix that is to better that one; fix: {"mode", "fix"}.
    """
    from evaluation_app.models import EvaluationItem, EvaluationRun, Experiment
    from evaluation_app.runs.summaries import summarize
    from evaluation_app.scoring.judge_selection import RunSettings

    chosen = plan or RetrievePlan()
    defaults: dict[str, Any] = {
        "set_name": "birds", "set_version": 1, "set_digest": "d" * 64, "collection_name": "nature", "judge": "embedded",
        "judge_version": "1", "settings": SETTINGS, "state": "succeeded",
    }  # fmt: skip
    if base_run is not None:
        values["experiment"] = Experiment.objects.create(
            kind="fix", base=base_run, grid=fix or {}, collection_name=base_run.collection_name
        )
    run = EvaluationRun.objects.create(
        **{**defaults, "plan": chosen.as_dict(), "plan_hash": chosen.hash, "total": len(scores), "done": len(scores)}
        | values
    )
    rows = []
    for position, given in enumerate(scores):
        told = {
            name: {"state": "unscorable", "reason": "nothing is expected"}
            if value is None
            else {"state": "scored", "value": value}
            for name, value in given.items()
        }
        fields: dict[str, Any] = {
            "question_text": f"Question {position}?", "category": "factual", "outcome": "answered", "scores": told,
            "golden": {"question": f"Question {position}?", "category": "factual"},
        }  # fmt: skip
        rows.append(EvaluationItem(run=run, position=position, **(fields | dict((items or {}).get(position, {})))))
    EvaluationItem.objects.bulk_create(rows)
    if "summary" not in values:
        told_settings = RunSettings.from_dict(run.settings)
        run.summary = summarize(rows, told_settings, thresholds=run.thresholds, intervals=False)
        run.save(update_fields=["summary"])
    return run
