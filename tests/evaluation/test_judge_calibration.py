"""A judge fitted to one collection: the formulas, whose labels count, versions, what is scored by them, who may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.contrib.auth.models import User

from collections_app.access import people
from collections_app.access.context import Forbidden, using_access
from collections_app.access.permissions import Role
from collections_app.access.services import access_of_user
from collections_app.collections.deletion import delete_collection
from collections_app.collections.import_stage import import_collection
from collections_app.collections.services import create_collection
from collections_app.errors import ServiceError
from collections_app.models import AuditEvent, Collection
from evaluation_app.experiments.services import visible_experiments
from evaluation_app.golden.questions import Golden
from evaluation_app.judges.feature_model import is_weak
from evaluation_app.measures.scores import scored, unscorable
from evaluation_app.models import EvaluationRun, Experiment, Review, ReviewTask
from evaluation_app.reviews.agreement import anchored_score
from evaluation_app.reviews.calibration import (
    JudgeFit,
    LabelledScore,
    MeasureFit,
    base_version,
    best_threshold,
    conformal_reach,
    fit_in_force,
    fit_judge,
    fit_measure,
    fit_named,
    held_out_figures,
    held_out_verdicts,
    labelled_answers,
    read_fits,
    take_back,
)
from evaluation_app.reviews.labels import queue_run
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.scoring.scorer import Scorer
from evaluation_app.transfer_parts import JUDGE_FITS
from ragd.errors import InvalidInput
from ragd.types import RetrievePlan
from retrieval_app.search.query_pipeline import QueryRequest, ask
from tests.collections.conftest import committed  # noqa: F401  (a fixture)
from tests.evaluation.made_runs import make_run
from tests.exports import export_to_file
from tests.refusals import raises_with
from tests.web.pages import client_of, has, text, whole

CONTEXT = [{"key": "owl.md#0", "sentences": [["0a", "Owls hunt at night."]]}]
LABELS = 40


def numbers(*values: float) -> Any:
    return np.array(values, dtype=np.float64)


def rows_of(gaps: list[float], label: float = 0.5) -> list[LabelledScore]:
    """Answers whose expected figure is so far above the label."""
    return [LabelledScore(label + gap, label + gap, label) for gap in gaps]


def test_the_threshold_has_the_greatest_kappa() -> None:
    """Of 0.1 no, 0.4 yes, 0.5 no, 0.8 yes, 0.9 yes the cut between 0.5 and 0.8 has kappa 0.615, as has the first."""
    expected, labels = numbers(0.9, 0.1, 0.5, 0.4, 0.8), numbers(1, 0, 0, 1, 1)
    assert best_threshold(expected, labels) == pytest.approx(0.65)
    assert best_threshold(numbers(0.2, 0.3, 0.7, 0.8), numbers(0, 0, 1, 1)) == pytest.approx(0.5)
    # 0.15 and 0.35 have kappa 0.5: of two alike the upper
    assert best_threshold(numbers(0.1, 0.2, 0.3, 0.4), numbers(0, 1, 0, 1)) == pytest.approx(0.35)


def test_there_is_no_threshold_where_nothing_can_be_told_apart() -> None:
    assert best_threshold(numbers(), numbers()) is None
    assert best_threshold(numbers(0.5, 0.5), numbers(0, 1)) is None
    assert best_threshold(numbers(0.1, 0.9), numbers(1, 1)) is None


def test_a_bias_is_shrunk_as_if_ten_labels_had_none() -> None:
    fit = fit_measure("completeness", rows_of([0.3] * 20))
    assert fit.bias == pytest.approx(0.3 * 20 / 30)
    assert fit.before.value == pytest.approx(0.3)
    assert fit.after.value == pytest.approx(0.3 - 0.3 * 19 / 29)
    assert fit.value(0.6, 0.5) == pytest.approx(0.3) and fit.value(0.6, 0.1) == 0.0


def test_each_answer_is_left_out_of_its_own_fit() -> None:
    expected, labels = numbers(*[0.6] * 19, 0.9), numbers(*[0.5] * 19, 0.5)
    figures = held_out_figures(expected, labels)
    assert figures[-1] == pytest.approx(0.9 - 1.9 / 29)
    assert figures[0] == pytest.approx(0.6 - 2.2 / 29)
    # 0.3 is judged by a threshold of 0.15, which 0.2 gives, and 0.2 by one of 0.5
    scores = numbers(0, 0, 1, 1, 1)
    verdicts = held_out_verdicts(scores, numbers(0.1, 0.3, 0.7, 0.9, 0.2), numbers(0, 0, 1, 1, 1))
    assert verdicts.tolist() == [0, 1, 1, 1, 0]


def test_the_reach_is_the_conformal_quantile() -> None:
    assert conformal_reach(np.arange(19.0)) == 18  # ceil(0.95 * 20) = 19th
    assert conformal_reach(np.arange(39.0)) == 37  # ceil(0.95 * 40) = 38th
    assert conformal_reach(np.arange(18.0)) is None
    assert conformal_reach(numbers()) is None


def test_the_interval_holds_what_it_promises() -> None:
    """Over 200 draws of 40 labels with a bias of 0.1, on 500 answers more: within 94 % and 98 %."""
    generator, shares = np.random.default_rng(7), []
    for _ in range(200):
        labels = generator.uniform(0.3, 0.6, 540)
        estimates = labels + 0.1 + generator.normal(0, 0.08, 540)
        fit = fit_measure(
            "completeness", [LabelledScore(1.0, *row) for row in zip(estimates[:40], labels[:40], strict=True)]
        )
        assert fit.reach is not None and fit.after.share == pytest.approx(0.96, abs=0.02)
        figures = np.array([fit.value(1.0, each) for each in estimates[40:]])
        shares.append(np.mean(np.abs(labels[40:] - figures) <= fit.reach))
    assert 0.94 < np.mean(shares) < 0.98


def test_what_is_no_nearer_to_people_keeps_the_judge() -> None:
    gaps = [0.2, -0.2] * 10
    fit = fit_measure("faithfulness", [LabelledScore(0.5 + gap / 2, 0.5 + gap, 0.5) for gap in gaps])
    assert (fit.bias, fit.changes) == (None, False)
    assert fit.after.value is not None and fit.before.value == pytest.approx(0.1) and fit.after.value > 0.1
    assert fit.reach == pytest.approx(0.1)  # of the judge's own score
    right = fit_measure("adherence", [LabelledScore(float(place % 2), 0.5, float(place % 2)) for place in range(20)])
    assert (right.threshold, right.before.value) == (None, pytest.approx(1.0))


@pytest.mark.parametrize(("wrong", "threshold"), [(4, None), (5, 0.5)])
def test_a_threshold_has_to_be_right_more_often_than_by_luck(wrong: int, threshold: float | None) -> None:
    """Four of four that change for the better happen by luck in 1 of 16 cases, five of five in 1 of 32."""
    rows = [
        LabelledScore(float(place % 2 == (place >= wrong)), 0.1 + 0.8 * (place % 2), float(place % 2))
        for place in range(20)
    ]
    assert fit_measure("adherence", rows).threshold == threshold


def test_few_labels_and_labels_of_one_kind_give_no_fit() -> None:
    few = fit_measure("completeness", rows_of([0.3] * 19))
    assert (few.reason, few.missing, few.changes, few.reach) == ("few", 1, False, None)
    alike = fit_measure(
        "adherence", [LabelledScore(float(place < 4), place / 30, float(place > 3)) for place in range(30)]
    )
    assert (alike.reason, alike.changes, alike.decides) == ("one_kind", False, False)


def test_a_weak_judge_decides_only_where_labels_show_it() -> None:
    sure = [LabelledScore(1.0, 0.9 if place % 2 else 0.2, float(place % 2)) for place in range(40)]
    fit = fit_measure("adherence", sure)
    assert fit.threshold == pytest.approx(0.55) and fit.decides and fit.after.share == 1.0
    guess = fit_measure(
        "adherence", [LabelledScore(1.0, (place * 7 % 40) / 40, float(place % 2)) for place in range(40)]
    )
    assert not guess.decides
    assert is_weak("embedded 3-tokens", "adherence") and is_weak("embedded 3-tokens+c2(faithfulness)", "adherence")
    assert not is_weak("embedded 3-tokens+c12(adherence,faithfulness)", "adherence")
    assert base_version("3-tokens+c12(adherence)") == base_version("3-tokens+c3") == "3-tokens"
    assert base_version("command-r+chat 12ab") == "command-r+chat 12ab"


def test_the_judges_own_figures_stay_beside_the_calibrated_ones() -> None:
    measures = {"adherence": MeasureFit(40, threshold=0.4), "completeness": MeasureFit(40, bias=0.1, reach=0.2)}
    fit = JudgeFit(2, "embedded", "3", 40, 1, measures)
    scores = {"adherence": scored(0.0), "completeness": scored(0.5), "faithfulness": unscorable("-")}
    details = {"estimates": {"adherence": {"value": 0.4, "low": 0.1, "high": 0.7}}}
    found, told = fit.apply(scores, details)
    assert found == scores | {"adherence": scored(1.0), "completeness": scored(0.4)}
    assert told["calibration"]["number"] == 2
    assert told["calibration"]["raw"]["adherence"] == {"value": 0.0, "estimate": 0.4}
    assert told["estimates"]["completeness"] == pytest.approx({"value": 0.4, "low": 0.2, "high": 0.6})
    assert told["estimates"]["adherence"] == details["estimates"]["adherence"]


@pytest.fixture
def nature(db: None) -> Collection:
    return create_collection(name="nature")


def label(run: EvaluationRun, user: User, count: int = LABELS) -> None:
    """So many answers drawn by chance; people say of each what is 0.2 below the judge, and yes from 0.4 on."""
    queue_run(run, "random", number=count)
    for task in ReviewTask.objects.filter(item__run=run, reviews=None):
        score = task.judged["completeness"]["value"]
        verdicts = {"adherence": float(score >= 0.4), "completeness": max(0.0, score - 0.2), "correctness": 1.0}
        Review.objects.create(task=task, reviewer=user, reviewer_name=user.get_username(), verdicts=verdicts)


def judged_run(collection: str = "nature", version: str = "1") -> EvaluationRun:
    """50 answers: completeness 0.2 to 0.69, adherence always yes, expected as completeness."""
    figures = [0.2 + place / 100 for place in range(50)]
    items = {
        place: {
            "answer": f"Answer {place}.", "context": CONTEXT, "answer_sentences": [["a", f"Answer {place}."]],
            "details": {"estimates": {"adherence": {"value": figure, "low": 0, "high": 1}}},
        }
        for place, figure in enumerate(figures)
    }  # fmt: skip
    scores = [{"adherence": 1.0, "completeness": figure} for figure in figures]
    return make_run(scores, items=items, collection_name=collection, judge_version=version)


def test_a_fit_is_a_version_that_can_be_taken_back(nature: Collection, ada: User) -> None:
    label(judged_run(), ada)
    assert {judge: found.answers for judge, found in labelled_answers(nature).items()} == {("embedded", "1"): LABELS}
    first = fit_judge(nature, "embedded", "1", actor=ada)
    assert (first.number, first.labels, first.people, first.created_by) == (1, LABELS, 1, "ada")
    assert first.measures["adherence"].threshold == pytest.approx(0.395, abs=0.02)
    assert first.measures["completeness"].bias == pytest.approx(0.2 * 40 / 50, abs=0.01)
    assert "correctness" not in first.measures and first.measures["adherence"].decides
    second = fit_judge(nature, "embedded", "1", actor=ada)
    assert fit_in_force(nature, "embedded", "1") == second and second.suffix.startswith("+c2(")
    assert "version 2" in AuditEvent.objects.latest("id").message
    take_back(nature, 2, actor=ada)
    assert fit_in_force(nature, "embedded", "1") == first
    assert "took back calibration 2" in AuditEvent.objects.latest("id").message
    with raises_with(ServiceError, type="taken_back"):
        take_back(nature, 2, actor=ada)
    take_back(nature, 1, actor=ada)
    assert fit_in_force(nature, "embedded", "1") is None
    assert [fit.is_taken_back for fit in read_fits(nature)["embedded", "1"]] == [True, True]
    assert fit_judge(nature, "embedded", "1", actor=ada).number == 3
    assert not visible_experiments().exists()


def test_too_few_labels_say_how_many_are_missing(nature: Collection, ada: User) -> None:
    label(judged_run(), ada, 15)
    with pytest.raises(ServiceError) as caught:
        fit_judge(nature, "embedded", "1", actor=ada)
    assert caught.value.type == "too_few_labels" and "5 are missing" in caught.value.message
    with pytest.raises(ServiceError):
        fit_judge(nature, "llm", "another", actor=ada)


def test_whose_labels_count(nature: Collection, ada: User, django_user_model: Any) -> None:
    """Of answers that chance drew, one label each: the majority, a tie none; for each judge of the same answer."""
    run, other = judged_run(), judged_run(version="2+c1")
    label(run, ada, 10)
    queue_run(run, "all", number=50)
    chosen = ReviewTask.objects.exclude(reason="random sample").first()
    assert chosen is not None
    Review.objects.create(task=chosen, reviewer_name="ada", verdicts={"adherence": 1.0})
    bob = django_user_model.objects.create_superuser("bob")
    tie = ReviewTask.objects.filter(reviews__verdicts__adherence=1.0, reason="random sample").first()
    assert tie is not None
    Review.objects.create(task=tie, reviewer=bob, reviewer_name="bob", verdicts={"adherence": 0.0})
    found = labelled_answers(nature)
    assert set(found) == {("embedded", "1"), ("embedded", "2")} and other.judge_version == "2+c1"
    for each in found.values():
        assert (each.answers, each.people) == (10, {"ada", "bob"})
        assert (len(each.by_measure["adherence"]), len(each.by_measure["completeness"])) == (9, 10)


def test_what_is_scored_afterwards_is_calibrated_and_runs_keep_theirs(
    house: Collection, ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = "What must be done before the pump is cleaned?"
    query_run = ask(QueryRequest(house, question, RetrievePlan(k=3), "api"))
    plain = Scorer(RunSettings(), house)
    before = plain.score(query_run, Golden(question))
    label(judged_run("house", plain.judge_version), ada)
    fit = fit_judge(house, "embedded", plain.judge_version, actor=ada)
    scorer = Scorer(RunSettings(), house)
    assert scorer.judge_version == plain.judge_version + fit.suffix
    after = scorer.score(query_run, Golden(question))
    raw = after.details["calibration"]["raw"]
    assert raw["completeness"]["value"] == before.scores["completeness"].value
    expected = before.details["estimates"]["completeness"]["value"] - fit.measures["completeness"].bias
    assert after.scores["completeness"].value == pytest.approx(max(0.0, expected))
    assert after.scores["context_relevance"] == before.scores["context_relevance"]
    assert "stated" in before.scores
    take_back(house, fit.number, actor=ada)
    assert Scorer(RunSettings(), house).judge_version == plain.judge_version
    going_on = Scorer(RunSettings(), house, version=scorer.judge_version)
    assert going_on.score(query_run, Golden(question)).scores == after.scores
    assert Scorer(RunSettings(), house, version=plain.judge_version).fit is None
    assert fit_named(house, "1+c99") is None


def test_anchored_scores_read_the_judge_alone(nature: Collection, ada: User) -> None:
    run = judged_run()
    label(run, ada)
    before = anchored_score(run, "completeness")
    for item in run.items.all():
        score = item.scores["completeness"]
        item.details |= {"calibration": {"number": 1, "raw": {"completeness": {"value": score["value"]}}}}
        item.scores = {**item.scores, "completeness": {"state": "scored", "value": 0.0}}
        item.save()
    assert anchored_score(run, "completeness") == before


def test_labels_of_a_hidden_collection_never_enter(nature: Collection, ada: User) -> None:
    """bob evaluates `sea` alone: the labels of `nature` are neither counted nor named, nor can he fit there."""
    sea = create_collection(name="sea")
    label(judged_run(), ada)
    fit_judge(nature, "embedded", "1", actor=ada)
    label(judged_run("sea"), ada, 10)
    bob = User.objects.create_user("bob", password="heron-reed-marsh-7")
    people.grant(bob, Role.EVALUATOR, sea)
    with using_access(access_of_user(bob)):
        assert labelled_answers(nature) == {} and read_fits(nature) == {}
        assert labelled_answers(sea)["embedded", "1"].answers == 10
        with pytest.raises(Forbidden):
            fit_judge(nature, "embedded", "1", actor=bob)
        with pytest.raises(Forbidden):
            take_back(nature, 1, actor=bob)
    page = client_of(bob).get("/evaluation/review/?view=agreement&collection_name=sea")
    assert "nature" not in whole(page) and has(page, "#calibration")
    hidden = client_of(bob).get("/evaluation/review/?view=agreement&collection_name=nature")
    assert not has(hidden, "#calibration table") and "calibration 1" not in text(hidden)
    values = {"do": "fit", "collection_name": "nature", "judge": "embedded", "version": "1"}
    assert client_of(bob).post("/evaluation/review/?view=agreement", values).status_code == 404
    assert Experiment.objects.filter(kind="judge").count() == 1


def test_who_may_only_read_sees_and_does_not_fit(nature: Collection, ada: User) -> None:
    label(judged_run(), ada)
    bob = User.objects.create_user("bob", password="heron-reed-marsh-7")
    people.grant(bob, Role.VIEWER, nature)
    page = client_of(bob).get("/evaluation/review/?view=agreement&collection_name=nature")
    assert page.status_code == 200 and not has(page, "button[value=fit]")
    values = {"do": "fit", "collection_name": "nature", "judge": "embedded", "version": "1"}
    assert client_of(bob).post("/evaluation/review/?view=agreement", values).status_code == 403
    assert not Experiment.objects.exists()


def test_the_page_fits_and_takes_back(nature: Collection, ada: User) -> None:
    run = judged_run()
    client, address = client_of(ada), "/evaluation/review/?view=agreement&collection_name=nature"
    page = client.get(address)
    assert has(page, f"input[name=source][value='run:{run.pk}']") and has(page, "button[value=fit][disabled]")
    assert page.context["judges"][0].short == LABELS
    label(run, ada)
    values = {"collection_name": "nature", "judge": "embedded", "version": "1", "number": "1"}
    assert client.post("/evaluation/review/?view=agreement", values | {"do": "fit"}).status_code == 302
    page = client.get(address)
    row = page.context["judges"][0]
    assert (row.in_force.number, row.missing, len(row.lines)) == (1, 0, 2) and has(page, "#calibration table")
    client.post("/evaluation/review/?view=agreement", values | {"do": "take-back"})
    assert client.get(address).context["judges"][0].in_force is None
    page = client.post("/evaluation/review/?view=agreement", values | {"do": "melt"}, follow=True)
    assert page.status_code == 200 and "melt" in text(page)


def test_it_travels_with_its_collection_and_goes_with_it(
    committed: None,  # noqa: F811
    nature: Collection,
    ada: User,
    tmp_path: Path,
) -> None:
    label(judged_run(), ada)
    fit_judge(nature, "embedded", "1", actor=ada)
    take_back(nature, 1, actor=ada)
    kept = fit_judge(nature, "embedded", "1", actor=ada)
    export_to_file(nature, tmp_path / "nature.zip")
    import_collection(tmp_path / "nature.zip", name="copy")
    copy = Collection.objects.live().get(name="copy")
    found = read_fits(copy)["embedded", "1"]
    assert [(each.number, each.is_taken_back) for each in found] == [(2, False), (1, True)]
    assert found[0].measures == kept.measures and found[0].created_by == "ada"
    delete_collection(copy)
    assert set(Experiment.objects.values_list("collection_name", flat=True)) == {"nature"}
    row = dict.fromkeys(JUDGE_FITS.columns) | {"created_at": "2026-01-01T00:00:00+00:00", "settings": {}}
    with raises_with(InvalidInput, field="judge_fits"):
        JUDGE_FITS.restore(nature, [row])
