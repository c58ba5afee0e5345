"""Fixes by what they did, none that goes against its own measure, kept or discarded; the table of questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from collections_app.collections.services import create_collection
from collections_app.models import Collection
from evaluation_app.experiments.services import try_fix
from evaluation_app.failures.board import newest_run
from evaluation_app.failures.fixes import context_change, propose_fixes, read_outcome, suggest_fixes
from evaluation_app.golden.sets import keep_version
from evaluation_app.models import EvaluationRun, Experiment, GoldenSet
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.scoring.modes import find_mode, stored_table
from ragd.types import RetrievePlan
from retrieval_app.plans.services import choose_plan
from tests.evaluation.made_runs import make_run, make_set

pytestmark = pytest.mark.django_db
COUNT = 20
LOW: dict[str, float | None] = {"correctness": 0.0, "completeness": 0.4, "recall@10": 0.5}
Make = Callable[..., EvaluationRun]


@pytest.fixture
def collection() -> Collection:
    return create_collection(name="nature")


@pytest.fixture
def golden_set(collection: Collection) -> GoldenSet:
    made = make_set("birds", collection.name, {f"Question {place}?": () for place in range(COUNT)})
    keep_version(made)
    return made


@pytest.fixture
def make(golden_set: GoldenSet) -> Make:
    def made(right: int = 0, modes: dict[int, list[str]] | None = None, **values: Any) -> EvaluationRun:
        scores = [LOW | ({"correctness": 1.0} if place < right else {}) for place in range(COUNT)]
        items = {
            place: {"modes": keys, "answer": f"Answer {place}."} for place, keys in (modes or {}).items()
        }  # fmt: skip
        return make_run(scores, items=items, golden_set=golden_set, set_digest=golden_set.digest, **values)

    return made


PLANS = [
    RetrievePlan(k=k, candidate_pool=50, compress=compress)
    for k, compress in product((1, 12, 100), (None, "window", "sentences"))
]


def test_no_fix_lowers_by_its_formula_what_its_mode_measures(make: Make) -> None:
    """All modes, all fixes, over plans with small and large contexts."""
    for plan, corrective in product(PLANS, (None, True)):
        settings = replace(RunSettings(), corrective=corrective)
        run = make(plan=plan, settings=settings.as_dict())
        for mode in stored_table().modes.values():
            for proposal in propose_fixes(mode, run):
                change = context_change((plan, settings), (proposal.plan, proposal.settings))
                lowered = set(stored_table().lowers.get(change, ())) & set(mode.measures)
                assert proposal.reason or not lowered, (mode.key, proposal.fix.key, plan.k, plan.compress)


def test_what_would_lower_the_measure_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    double = next(fix for fix in find_mode("retrieval_miss").fixes if fix.key == "double_k")
    (proposal,) = propose_fixes(replace(find_mode("low_completeness"), fixes=(double,)), make())
    assert (proposal.reason, proposal.plan.k) == ("lowers completeness", 24)
    (same,) = propose_fixes(replace(find_mode("retrieval_miss"), fixes=(double,)), make())
    assert same.reason == ""


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ({"k": 5}, {"k": 10}, "more_context"),
        ({"k": 10}, {"k": 5}, "less_context"),
        ({}, {"compress": "window"}, "less_context"),
        ({"compress": "sentences"}, {"compress": "window"}, "more_context"),
        ({"k": 5}, {"k": 20, "compress": "sentences"}, ""),
        ({"k": 5}, {"k": 5, "candidate_pool": 200}, ""),
    ],
)
def test_a_change_makes_an_answer_of_more_or_of_less(before: Any, after: Any, change: str) -> None:
    settings = RunSettings()
    assert context_change((RetrievePlan(**before), settings), (RetrievePlan(**after), settings)) == change


def keys(suggestions: Any) -> list[str]:
    return [each.proposal.fix.key for each in suggestions]


def test_opposite_advice_is_never_given_for_the_same_question(make: Make) -> None:
    run = make()
    both = suggest_fixes(run, {"wrong_answer": {0, 1}, "low_context_relevance": {1, 2, 3, 4}})
    assert "double_k" in keys(both.untried), "for a failure, before a diagnostic of more questions"
    assert not {"half_k", "compress"} & set(keys(both.untried))
    apart = suggest_fixes(run, {"wrong_answer": {0}, "low_context_relevance": {1, 2}})
    assert {"double_k", "half_k"} <= set(keys(apart.untried))
    every = {mode: {0} for mode in stored_table().modes}
    directions = {each.direction for each in suggest_fixes(run, every).untried}
    assert not {"more_context", "less_context"} <= directions


def test_a_change_that_several_modes_suggest_stands_once(make: Make) -> None:
    found = suggest_fixes(make(), {"wrong_answer": {0}, "chunk_miss": {3}}).untried
    (rerank,) = [each for each in found if each.proposal.fix.key == "rerank"]
    assert ([mode.key for mode in rerank.modes], rerank.questions) == (["wrong_answer", "chunk_miss"], {0, 3})


def tried(make: Make, base: EvaluationRun, right: int, mode: str, fix: str) -> EvaluationRun:
    proposal = next(each for each in propose_fixes(find_mode(mode), base) if each.fix.key == fix)
    return make(
        right,
        plan=proposal.plan,
        settings=proposal.settings.as_dict(),
        base_run=base,
        fix={"mode": mode, "fix": fix},
        purpose="fix",
    )


def test_tried_fixes_stand_first_by_what_they_did_to_the_primary_measure(make: Make) -> None:
    base = make(10)
    tried(make, base, 9, "wrong_answer", "double_k")
    tried(make, base, 19, "wrong_answer", "rerank")
    found = suggest_fixes(base, {"wrong_answer": {0}, "low_context_relevance": {0, 1}})
    assert keys(found.tried) == ["rerank", "double_k"]
    assert [each.gain for each in found.tried] == pytest.approx([0.45, -0.05])
    best = found.tried[0].trials[0]
    assert (best.is_better, best.primary.measure if best.primary else "") == (True, "correctness")
    assert not set(keys(found.untried)) & {"rerank", "double_k"}


def test_a_direction_that_was_better_rules_out_the_opposite(make: Make) -> None:
    base = make(5)
    shown = {"wrong_answer": {0}, "low_context_relevance": {0}, "retrieval_miss": {5}}
    tried(make, base, 18, "low_context_relevance", "half_k")
    assert "double_k" not in keys(suggest_fixes(base, {name: {0} for name in shown}).untried)


def test_a_fix_that_goes_on_has_no_figures_yet(make: Make) -> None:
    base = make(5)
    going = tried(make, base, 5, "wrong_answer", "rerank")
    EvaluationRun.objects.filter(pk=going.pk).update(state="running")
    (each,) = suggest_fixes(base, {"wrong_answer": {0}}).tried
    assert (each.trials[0].against, each.gain) == (None, 0.0)


def test_trying_keeps_what_was_tried(make: Make) -> None:
    base = make()
    kept = try_fix(base, "wrong_answer", "rerank", send=False)
    assert (kept.grid, kept.outcome, kept.decided_at) == ({"mode": "wrong_answer", "fix": "rerank"}, "open", None)
    assert kept.base == base and kept.runs.get().base_run == base


def test_a_fix_that_cannot_be_kept_starts_no_run(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    base = make(modes={0: ["wrong_answer"]})

    def refuse(**_: Any) -> None:
        raise OperationalError

    monkeypatch.setattr(Experiment.objects, "create", refuse)
    with pytest.raises(OperationalError):
        try_fix(base, "wrong_answer", "double_k", send=False)
    assert list(EvaluationRun.objects.all()) == [base]


def test_every_trial_of_a_run_is_a_look_for_each_of_them(make: Make) -> None:
    base = make(modes={0: ["wrong_answer"]})
    for place in range(9):
        make(place, base_run=base, purpose="fix", plan=RetrievePlan(k=40 + place))
    trials = suggest_fixes(base, {"wrong_answer": {0}}).others
    assert [trial.against.verdict.looks for trial in trials if trial.against] == [9] * 9


def test_an_outcome_that_is_kept_reads_no_question_again(make: Make) -> None:
    base = make(modes={0: ["wrong_answer"]})
    run = make(2, base_run=base, purpose="fix", plan=RetrievePlan(k=40))
    first = read_outcome(run)
    with CaptureQueriesContext(connection) as captured:
        assert read_outcome(run) == first
    assert not [query for query in captured if "evaluation_items" in query["sql"]]


def test_the_outcome_of_a_fix_is_one_table(make: Make) -> None:
    base = make(4, {place: ["wrong_answer"] for place in range(4, COUNT)})
    run = tried(make, base, 16, "wrong_answer", "rerank")
    run.items.filter(position__gte=16).update(modes=["wrong_answer"])
    outcome = read_outcome(run)
    assert outcome is not None and outcome.mode == find_mode("wrong_answer")
    assert [(role, change.name) for role, change in outcome.decisive] == [
        ("primary metric", "correctness"), ("guardrail metric", "recall@10")
    ]  # fmt: skip
    assert outcome.measure is not None and outcome.measure.name == "correctness"
    assert (outcome.failing.before, outcome.failing.after, outcome.failing.cured, outcome.failing.new) == (16, 4, 12, 0)
    assert outcome.against.verdict.kind == "better"


@pytest.mark.parametrize(("right", "is_better"), [(18, True), (5, False)])
def test_discard_is_suggested_where_a_fix_is_not_better(
    admin_client: Client, make: Make, right: int, is_better: bool
) -> None:
    run = tried(make, make(5), right, "wrong_answer", "rerank")
    response = admin_client.get(run.experiment.get_absolute_url())
    html = response.content.decode()
    assert response.context["is_better"] is is_better
    discard, keep = html.index('value="discard"'), html.index('name="decision" value="save"')
    assert (keep < discard) is is_better, "what is suggested stands first"


def test_who_kept_or_discarded_a_fix_is_kept(admin_client: Client, make: Make, collection: Collection) -> None:
    run = tried(make, make(5), 18, "wrong_answer", "rerank")
    address = run.experiment.get_absolute_url()
    admin_client.post(address, {"do": "save", "decision": "discard"})
    found = Experiment.objects.get(runs=run)
    assert (found.outcome, found.decided_by, found.saved_as, found.grid["fix"]) == ("discarded", "admin", "", "rerank")
    admin_client.post(address, {"do": "save", "decision": "save", "name": "reranked", "is_default": "1"})
    found.refresh_from_db()
    assert (found.outcome, found.saved_as, found.is_default) == ("kept", "reranked", True)
    assert found.decided_at is not None
    assert choose_plan(collection, None, {}).name == "reranked"


MODES = {
    0: ["low_completeness", "wrong_answer"], 1: ["low_completeness"], 2: ["retrieval_miss", "wrong_answer"], 3: ["gone"]
}  # fmt: skip


def test_the_page_opens_on_the_newest_finished_run(admin_client: Client, make: Make, golden_set: GoldenSet) -> None:
    finished = make(0, MODES)
    going = make(0, MODES, state="running")
    make(0, MODES, purpose="fix", base_run=finished)
    assert newest_run([golden_set]) == finished
    response = admin_client.get("/evaluation/board/")
    assert response.context["run"] == finished
    html = response.content.decode()
    assert html.count('class="question-card"') == 5 and "Answer 2." in html and "Expected" in html
    assert admin_client.get(f"/evaluation/board/?run={going.pk}").context["run"] == going
    EvaluationRun.objects.exclude(pk=going.pk).delete()
    assert newest_run([golden_set]) == going
