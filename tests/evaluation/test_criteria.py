"""How runs of a set are judged better or worse."""

from __future__ import annotations

from typing import Any

import pytest

from evaluation_app.golden.sets import Criteria
from evaluation_app.models import EvaluationRun


def run_of(cut: int = 10, **scored: int) -> EvaluationRun:
    """Not saved. scored: measure, "_at_" for "@", with how many questions have it."""
    measures = {name.replace("_at_", "@"): {"scored": count} for name, count in scored.items()}
    return EvaluationRun(settings={"cut": cut}, summary={"measures": measures})


@pytest.mark.parametrize(
    ("stated", "runs", "primary"),
    [
        ("", [run_of(correctness=3, hit_at_10=3)] * 2, "correctness"),
        ("", [run_of(correctness=3, hit_at_10=3), run_of(hit_at_10=3)], "hit@10"),
        ("", [run_of(correctness=0, hit_at_10=3)], "hit@10"),
        ("", [run_of(5, hit_at_5=3), run_of(hit_at_10=3)], ""),
        ("recall", [run_of(5, recall_at_5=3)], "recall@5"),
        ("recall@5", [run_of(recall_at_5=1)], "recall@5"),
        ("f1", [run_of(correctness=3, hit_at_10=3)], ""),
        ("", [], ""),
    ],
)
def test_the_primary_measure_is_one_that_all_runs_scored(stated: str, runs: list[Any], primary: str) -> None:
    assert Criteria(stated).primary_for(runs) == primary


def test_guardrails_are_those_that_were_scored_without_the_primary_measure() -> None:
    runs = [run_of(hit_at_10=3, recall_at_10=3, right_outcome=3)] * 2
    assert Criteria().guardrails_for(runs) == {"recall@10": 0.05, "right_outcome": 0.05}
    own = Criteria("recall", {"recall": 0.1, "hit@10": 0.2, "f1": 0.3})
    assert own.guardrails_for(runs) == {"hit@10": 0.2}
    assert Criteria.of(None) == Criteria()
