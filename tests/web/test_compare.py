"""Runs beside each other on a page, one question beside itself, and the pages of experiments."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from ragd.types import RetrievePlan
from tests.evaluation.made_runs import make_run
from tests.web.pages import text_of


@pytest.fixture
def runs(db: None) -> tuple[Any, Any]:
    """Eight questions; recall is lost in seven of them, and the plan's k differs."""
    first = {"answer": "A blue whale.", "retrieved_ids": ["whales.md#0"]}
    second = {"answer": "A grey whale.", "retrieved_ids": ["trees.md#0", "whales.md#0"], "modes": ["retrieval_miss"]}
    base = make_run([{"recall@10": 1.0}] * 8, name="before", items={1: first})
    other = make_run(
        [{"recall@10": 0.0 if place else 1.0} for place in range(8)],
        name="after",
        plan=RetrievePlan(k=3),
        items={1: second},
    )
    return base, other


def address(*runs: Any, **values: str) -> str:
    others = "".join(f"&other={run.pk}" for run in runs[1:])
    return f"/evaluation/compare/?base={runs[0].pk}{others}" + "".join(f"&{key}={it}" for key, it in values.items())


def test_a_comparison_tells_verdict_cause_and_the_worst_questions(visitor: Client, runs: tuple[Any, Any]) -> None:
    response = visitor.get(address(*runs))
    assert response.status_code == 200
    page = text_of(response)
    verdict = response.context["verdict"]
    assert (verdict.word, [(row.role, row.finding.measure, row.tone) for row in verdict.rows]) == (
        "Worse", [("Guardrail", "recall@10", "bad")]
    )  # fmt: skip
    assert "Recall@10" in page and "−0.875" in page and "8 of 8 scored" in page
    assert "Settings, k" in page and "<b>3</b>" in page
    assert response.context["page"].paginator.count == 7
    assert f"/evaluation/compare/?view=question&amp;position=1&amp;base={runs[0].pk}" in page
    assert "1 question newly failed" in page


def test_filters_choose_questions_and_htmx_gets_the_part_alone(visitor: Client, runs: tuple[Any, Any]) -> None:
    chosen = visitor.get(address(*runs, show="lost"), headers={"HX-Request": "true", "HX-Target": "questions"})
    assert [item.position for item in chosen.context["page"]] == [1]
    assert "<html" not in chosen.content.decode() and 'id="questions"' in chosen.content.decode()
    every = visitor.get(address(*runs, show="all", measure="recall@10", category="factual"))
    assert every.context["page"].paginator.count == 8
    odd = visitor.get(address(*runs, show="sideways", measure="loudness", category="none", page="x", against="y"))
    assert odd.status_code == 200 and odd.context["show"] == "moved" and odd.context["measure"] == ""


def test_the_choice_of_runs(visitor: Client, runs: tuple[Any, Any]) -> None:
    response = visitor.get("/evaluation/compare/")
    assert response.status_code == 200 and "birds, version 1" in text_of(response)
    assert visitor.get("/evaluation/compare/?set=no%20such").status_code == 404
    assert visitor.get("/evaluation/compare/?base=nonsense").status_code == 404
    assert visitor.get(f"/evaluation/compare/?base={runs[0].pk}&other={runs[0].pk}").status_code == 200


def test_three_runs_have_a_matrix_and_any_may_be_held_against_the_base(visitor: Client, runs: tuple[Any, Any]) -> None:
    third = make_run([{"recall@10": 1.0}] * 8, name="third")
    response = visitor.get(address(*runs, third, against=str(third.pk)))
    assert response.context["letter"] == "C" and "All runs" in text_of(response)
    assert [change.change.verdict for change in response.context["changes"]] == ["same"]


def test_runs_of_other_questions_are_refused_and_the_choice_is_shown(visitor: Client, runs: tuple[Any, Any]) -> None:
    newer = make_run([{}], set_version=2, set_digest="e" * 64)
    response = visitor.get(address(runs[0], newer))
    page = text_of(response)
    assert response.status_code == 409 and "version 1" in page and "whose questions differ" in page
    assert [version.version for version in response.context["versions"]] == [2, 1]
