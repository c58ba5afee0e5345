"""A experiment from the form to the saved plan, over a small collection and the engine that runs it.
Runs beside each other on a page, one question beside itself, and the pages of experiments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from collections_app.models import AuditEvent, Collection
from evaluation_app.experiments.plan_grid import SEARCH_ONLY, draft_plans
from evaluation_app.experiments.services import cancel_experiment, delete_experiment, save_variant
from evaluation_app.models import EvaluationRun, Experiment, GoldenSet
from evaluation_app.runs.lifecycle import run_now
from evaluation_app.runs.requests import count_scorable, estimate_plans
from ragd.errors import UnknownCollection
from ragd.types import RetrievePlan
from retrieval_app.models import SavedPlan
from tests.evaluation.made_runs import make_run, make_set
from tests.refusals import refuses
from tests.web.pages import has, text_of

QUESTIONS = {
    "What is the largest animal?": "whales.md",
    "Which tree is the tallest?": "trees.md",
    "Where does the Nile flow?": "rivers.md",
}
FORM = {"measured": "search", "measure": "mrr", "cut": "5", "k": "1, 3", "mode": ["vector", "lexical"]}


@pytest.fixture
def golden_set(fill: Callable[..., Collection]) -> GoldenSet:
    fill()
    return make_set("nature questions", "nature", QUESTIONS)


@pytest.fixture
def swept(visitor: Client, golden_set: GoldenSet) -> Experiment:
    """Four plans, worked off."""
    address = f"/evaluation/experiments/?view=new&set={golden_set.name}"
    response = visitor.post(address, {**FORM, "do": "start", "name": "How many?"})
    assert response.status_code == 302, response.content.decode()
    made = Experiment.objects.get()
    for run in made.runs.order_by("place"):
        run_now(run)
    return made


def test_the_form_tells_how_many_plans_there_are_before_it_starts(visitor: Client, golden_set: GoldenSet) -> None:
    address = f"/evaluation/experiments/?view=new&set={golden_set.name}"
    assert has(visitor.get(address), 'a[href="/collections/nature/index-versions/#change"]')
    shown = visitor.post(address, {**FORM, "do": "estimate"})
    assert shown.context["estimate"].plans == 4 and shown.context["estimate"].asked == 12
    assert "4 variants × 3 questions" in text_of(shown) and "Start 4 runs" in text_of(shown)
    assert not Experiment.objects.exists()


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"k": "5, many"}, "is none"),
    ({"k": "", "mode": []}, "at least one field"),
    ({"k": "0, 3"}, "k must be a whole number"),
    ({"measure": "adherence"}, "needs a judge"),
    ({"compress": ["sentences", "window"]}, "only searches"),
    ({"k": " ".join(map(str, range(1, 41))), "candidate_pool": "5 6"}, "at most 64"),
]


def test_what_makes_no_experiment_is_said_in_the_form(visitor: Client, golden_set: GoldenSet) -> None:
    for values, words in MISTAKES:
        response = visitor.post(
            f"/evaluation/experiments/?view=new&set={golden_set.name}", {**FORM, **values, "do": "start"}
        )
        assert response.status_code == 422 and words in text_of(response), values
    assert not Experiment.objects.exists() and not EvaluationRun.objects.exists()


def test_an_experiment_is_run_ranked_and_its_best_plan_saved(visitor: Client, swept: Experiment) -> None:
    response = visitor.get(f"/evaluation/experiments/{swept.pk}/")
    ranking = response.context["ranking"]
    assert [row.run.state for row in ranking.rows] == ["succeeded"] * 4
    assert ranking.best is not None and ranking.best.mean.scored == 3 and ranking.fields == ("mode", "k")
    assert response.context["progress"].state == "succeeded" and response.context["progress"].done == 12
    drawn = response.context["map"]
    assert (
        drawn.across == "Mode"
        and drawn.columns == ("Vector", "Keyword")
        and [row[0] for row in drawn.rows] == ["1", "3"]
    )
    turned = visitor.get(f"/evaluation/experiments/{swept.pk}/?across=k&down=mode&by=recall@5")
    assert turned.context["map"].across == "k" and turned.context["measure"].name == "recall@5"
    best = ranking.best.run
    assert f"{best.get_absolute_url()}?measure=" in response.content.decode()
    saved = visitor.post(
        f"/evaluation/experiments/{swept.pk}/", {"do": "save", "run": str(best.pk), "name": "swept", "is_default": "on"}
    )
    assert saved.status_code == 302
    plan = SavedPlan.objects.get(name="swept")
    assert plan.plan == best.plan and plan.is_default
    swept.refresh_from_db()
    assert swept.saved_as == "swept"
    assert AuditEvent.objects.filter(message__contains="as swept").exists()
    for run in ("", "nonsense", "7d9c6a0e-0000-4000-8000-000000000000"):
        refused = visitor.post(f"/evaluation/experiments/{swept.pk}/", {"do": "save", "run": run, "name": "other"})
        assert refused.status_code in (404, 422), run
    assert not SavedPlan.objects.filter(name="other").exists()
    taken = visitor.post(f"/evaluation/experiments/{swept.pk}/", {"do": "save", "run": str(best.pk), "name": "swept"})
    assert taken.status_code == 422 and has(taken, "#id_name_error, .errorlist")
    assert text_of(visitor.get("/evaluation/experiments/")).count("swept") >= 1


def test_a_measure_that_no_question_can_be_scored_by_is_named_before_and_after(
    visitor: Client, golden_set: GoldenSet
) -> None:
    golden_set.questions.update(expected_doc_ids=[], expected_answer="Yes.")
    address = f"/evaluation/experiments/?view=new&set={golden_set.name}"
    needs = "needs expected documents or chunks"
    shown = visitor.post(address, {**FORM, "do": "estimate"})
    assert f"{needs}: 0 of 3 questions can be scored." in text_of(shown)
    assert visitor.post(address, {**FORM, "do": "start", "name": "None"}).status_code == 302
    made = Experiment.objects.get()
    polled = {"HX-Request": "true", "HX-Target": "experiment", "HX-Trigger": "experiment"}
    assert "HX-Refresh" not in visitor.get(made.get_absolute_url(), headers=polled)
    for run in made.runs.order_by("place"):
        run_now(run)
    assert visitor.get(made.get_absolute_url(), headers=polled)["HX-Refresh"] == "true", "Cancel goes with the page"
    assert "HX-Refresh" not in visitor.get(made.get_absolute_url(), headers=polled | {"HX-Trigger": ""})
    page = visitor.get(made.get_absolute_url())
    assert "No question could be scored: MRR@5 (documents) needs expected documents" in text_of(page)
    golden_set.questions.filter(position=0).update(expected_doc_ids=["whales.md"])
    assert [count_scorable(golden_set, name) for name in ("ndcg@10", "chunk_hit@3", "f1", "adherence")] == [1, 0, 3, 3]


def test_an_experiment_is_cancelled_then_deleted_with_its_runs(visitor: Client, golden_set: GoldenSet) -> None:
    visitor.post(f"/evaluation/experiments/?view=new&set={golden_set.name}", {**FORM, "do": "start"})
    made = Experiment.objects.get()
    run_now(made.runs.get(place=0))
    assert "1 of 4 variants finished" in text_of(visitor.get(f"/evaluation/experiments/{made.pk}/"))
    with refuses("under_way"):
        delete_experiment(made, None)
    assert visitor.post(f"/evaluation/experiments/{made.pk}/", {"do": "cancel"}).status_code == 302
    assert sorted(made.runs.values_list("state", flat=True)) == ["cancelled"] * 3 + ["succeeded"]
    with refuses("already_ended"):
        cancel_experiment(made, None)
    page = visitor.get(f"/evaluation/experiments/{made.pk}/")
    assert "Cancelled after" in text_of(page) and page.context["ranking"].best is not None
    assert visitor.post(f"/evaluation/experiments/{made.pk}/", {"do": "delete"}).status_code == 302
    assert not EvaluationRun.objects.exists() and AuditEvent.objects.filter(message__contains="deleted").exists()


def test_an_estimate_is_told_from_runs_like_it_and_nothing_comes_of_a_lost_collection(
    swept: Experiment, golden_set: GoldenSet
) -> None:
    plans = [RetrievePlan(k=k) for k in range(1, 11)]
    known = estimate_plans(golden_set, plans, SEARCH_ONLY)
    done = list(EvaluationRun.objects.all())
    assert known.asked == 30 and known.took_s == pytest.approx(
        30 * sum(run.took_ms for run in done) / sum(run.done for run in done) / 1000
    )
    slow = RetrievePlan(rerank="builtin")
    make_run(
        [{}] * 3,
        plan=slow,
        settings=SEARCH_ONLY.as_dict(),
        judge="none",
        took_ms=9000.0,
        cost_usd=0.0,
        judge_cost_usd=0.0,
    )
    mixed = estimate_plans(golden_set, [*plans, slow], SEARCH_ONLY)
    assert mixed.took_s == pytest.approx((known.took_s or 0.0) + 9.0) and mixed.cost_usd == 0
    Collection.objects.filter(name="nature").update(name="gone")
    with pytest.raises(UnknownCollection):
        draft_plans(golden_set, grid={"k": [1, 2]})
    with pytest.raises(UnknownCollection):
        save_variant(swept, done[0].pk, "swept")
    golden_set.collection_name = "elsewhere"
    assert estimate_plans(golden_set, plans, SEARCH_ONLY).took_s is None


def test_an_experiment_of_an_unknown_set_is_refused(visitor: Client, golden_set: GoldenSet) -> None:
    for name in ("nonsense", str(golden_set.pk)):
        page = visitor.get(f"/evaluation/experiments/?view=new&set={name}")
        assert page.status_code == 404 and has(page, '.banner[role="alert"]') and not has(page, "form.experiment-form")


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
