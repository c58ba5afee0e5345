"""Anchored scores: the estimate, its interval, which labels count, and what is labelled next."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from collections_app.access.api_keys import NewKey, create_key
from evaluation_app.measures.statistics import LABELS_MIN, anchored_mean, missing_labels
from evaluation_app.models import EvaluationRun, ReviewTask
from evaluation_app.reviews.agreement import anchored_differences, anchored_score, anchored_scores, labelled_positions
from evaluation_app.reviews.labels import queue_run, review
from tests.evaluation.made_runs import make_run


def test_with_all_answers_labelled_the_estimate_is_the_mean_of_the_labels() -> None:
    labels = dict(enumerate([1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0]))
    found = anchored_mean([0.9] * 10, labels)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.6, 0.6, 0.6))
    assert (found.labels, found.answers) == (10, 10)


def test_a_judge_that_is_right_but_for_a_constant_leaves_nothing_open_but_what_few_labels_leave() -> None:
    """Truth is the judge's score less 0.2: the estimate is the true mean, and better than the mean of the labels."""
    judged = [0.2 + 0.8 * place / 99 for place in range(100)]
    truth = [value - 0.2 for value in judged]
    first = [0, 1, 2, 3, 50, 60, 97, 98, 99, 20]
    found = anchored_mean(judged, {index: truth[index] for index in first})
    assert found is not None
    assert found.value == pytest.approx(sum(truth) / 100, abs=1e-9)
    assert found.low < found.value < found.high


def test_a_judge_that_always_says_the_same_counts_for_nothing() -> None:
    labels = dict(enumerate([1.0] * 6 + [0.0] * 4))
    constant, none = anchored_mean([0.8] * 40, labels), anchored_mean([0.0] * 40, labels)
    assert constant == none
    assert constant is not None
    assert constant.value == pytest.approx(0.6)


def test_labels_that_all_agree_still_leave_an_interval() -> None:
    found = anchored_mean([1.0] * 200, dict.fromkeys(range(10), 1.0))
    assert found is not None
    assert (found.value, found.high) == (1.0, 1.0)
    assert 0.5 < found.low < 0.9


def test_below_the_least_number_of_labels_there_is_no_estimate() -> None:
    labels = dict.fromkeys(range(LABELS_MIN - 1), 1.0)
    assert anchored_mean([0.5] * 50, labels) is None
    assert missing_labels(50, labels) == 1
    assert anchored_mean([], {}) is None


def test_each_group_needs_labels_of_its_own() -> None:
    """Five answers that changed are all to be labelled, however many of the others are."""
    groups = ["old"] * 20 + ["new"] * 5
    labels = dict.fromkeys(range(10), 1.0)
    assert missing_labels(25, labels, groups) == 5
    assert anchored_mean([0.5] * 25, labels, groups) is None
    found = anchored_mean([0.5] * 25, labels | dict.fromkeys(range(20, 25), 0.0), groups)
    assert found is not None
    assert found.value == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("judged", "labels"),
    [([0.5] * 9, {9: 1.0}), ([0.5] * 9, {-1: 1.0}), ([1.5] * 9, dict.fromkeys(range(9), 1.0)),
     ([float("nan")] * 9, dict.fromkeys(range(9), 1.0)), ([0.5] * 9, dict.fromkeys(range(9), 2.0))],
)  # fmt: skip
def test_what_is_no_share_and_what_is_no_answer_is_refused(judged: list[float], labels: dict[int, float]) -> None:
    with pytest.raises(ValueError, match=r"0"):
        anchored_mean(judged, labels)


def test_the_interval_holds_the_true_mean_in_19_of_20_samples() -> None:
    """400 samples of 20 labels out of 120 answers: at least 93 %, since 0.95 less twice its binomial error is 0.93."""
    chance = random.Random(5)
    inside = 0
    for _ in range(400):
        truth = [float(chance.random() < 0.7) for _ in range(120)]
        judged = [min(1.0, max(0.0, 0.3 + 0.4 * value + chance.gauss(0, 0.2))) for value in truth]
        chosen = chance.sample(range(120), 20)
        found = anchored_mean(judged, {index: truth[index] for index in chosen})
        assert found is not None
        inside += found.low <= sum(truth) / 120 <= found.high
    assert inside / 400 >= 0.93


def answered(number: int, *, changed: int = 0) -> EvaluationRun:
    """Half of the answers are right by the judge; the first `changed` ones are other texts."""
    items = {
        place: {"answer": f"Answer {place}{' changed' if place < changed else ''}.", "context": [{"key": "a#0"}]}
        for place in range(number)
    }
    scores = [{"correctness": float(place % 2), "faithfulness": 0.5} for place in range(number)]
    return make_run(scores, items=items)


def label(run: EvaluationRun, which: str, number: int, ada: User, value: float | None = None) -> None:
    """People say what the judge says, unless a value is given."""
    queue_run(run, which, number=number)
    for task in ReviewTask.objects.filter(item__run=run, state="open"):
        said = task.judged["correctness"]["value"] if value is None else value
        review(task, {"correctness": said}, actor=ada)


@pytest.mark.django_db
def test_labels_that_chance_drew_anchor_the_run(ada: User, client: Client) -> None:
    run = answered(24)
    assert anchored_scores(run) == []
    label(run, "random", 10, ada)
    (found,) = anchored_scores(run)
    assert (found.measure, found.judged, found.labels, found.answers, found.missing) == ("correctness", 0.5, 10, 24, 0)
    assert found.estimate is not None
    assert found.estimate.value == pytest.approx(0.5)
    assert len(labelled_positions(run)) == 10
    headers = {"Authorization": f"Bearer {create_key(NewKey('tests'))[1]}"}
    address = f"/v1/evaluation-runs/{run.pk}"
    (told,) = client.get(f"{address}?anchored=true", headers=headers).json()["anchored_scores"]
    assert (told["measure"], told["labels"], told["estimate"]["value"]) == ("correctness", 10, pytest.approx(0.5))
    assert client.get(address, headers=headers).json()["anchored_scores"] is None


@pytest.mark.django_db
def test_labels_of_answers_that_were_picked_do_not_count_until_chance_draws_them(ada: User) -> None:
    run = answered(12)
    label(run, "all", 12, ada, value=1.0)
    assert anchored_scores(run) == []
    queue_run(run, "random", number=12)
    found = anchored_score(run, "correctness")
    assert found is not None
    assert found.estimate is not None
    assert (found.labels, found.estimate.value) == (12, 1.0)


@pytest.mark.django_db
def test_labels_count_for_a_later_run_with_the_same_answers_and_not_for_those_that_changed(ada: User) -> None:
    first = answered(24)
    label(first, "random", 24, ada, value=1.0)
    same, other, elsewhere = answered(24), answered(24, changed=3), answered(24)
    EvaluationRun.objects.filter(pk=elsewhere.pk).update(collection_name="other")
    elsewhere.refresh_from_db()
    found = anchored_score(same, "correctness")
    assert found is not None
    assert found.estimate is not None
    assert (found.labels, found.estimate.value) == (24, 1.0)
    open_groups = anchored_score(other, "correctness")
    assert open_groups is not None
    assert (open_groups.labels, open_groups.missing, open_groups.estimate) == (21, 3, None)
    assert anchored_scores(elsewhere) == []


@pytest.mark.django_db
def test_a_verdict_that_cannot_be_told_is_no_label(ada: User) -> None:
    run = answered(24)
    queue_run(run, "random", number=9)
    for place, task in enumerate(ReviewTask.objects.all()):
        review(task, {"correctness": None if place == 0 else 1.0}, actor=ada)
    found = anchored_score(run, "correctness")
    assert found is not None
    assert (found.labels, found.missing) == (8, 0)


@pytest.mark.django_db
def test_the_number_of_queries_does_not_grow_with_the_run(ada: User, django_assert_num_queries: Any) -> None:
    small, large = answered(10), answered(40)
    for run in (small, large):
        label(run, "random", 10, ada)
    for run in (small, large):
        with django_assert_num_queries(5):
            anchored_scores(run)


@pytest.mark.django_db
def test_the_difference_of_two_runs_has_the_interval_of_both(ada: User, client: Client) -> None:
    """All of the first run's answers are labelled wrong, so its side is exact; the second is a sample."""
    before, after = answered(24), answered(24, changed=24)
    assert anchored_differences(before, after) == []
    label(before, "random", 24, ada, value=0.0)
    label(after, "random", 10, ada, value=1.0)
    (found,) = anchored_differences(before, after)
    assert found.before.estimate is not None
    assert found.after.estimate is not None
    assert (found.before.estimate.high, found.after.estimate.value) == (0.0, 1.0)
    assert (found.difference, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(found.after.estimate.low)
    client.force_login(ada)
    page = client.get(reverse("evaluation:anchored-comparison", args=[before.pk, after.pk]))
    assert [each.title for each in page.context["differences"]] == ["Correctness"]


@pytest.mark.django_db
def test_how_far_the_judge_agrees_with_people_stands_beside_each_measure(ada: User, client: Client) -> None:
    scores = [{"correctness": 0.5, "adherence": 1.0} for _ in range(10)]
    run = make_run(scores, items={place: {"answer": f"Answer {place}."} for place in range(10)})
    queue_run(run, "random", number=10)
    for place, task in enumerate(ReviewTask.objects.filter(item__run=run).order_by("item__position")):
        review(task, {"correctness": 1.0, "adherence": float(place < 7)}, actor=ada)
    found = {score.measure: (score.agreeing, score.rmse) for score in anchored_scores(run)}
    assert found["correctness"] == (None, 0.5)
    assert found["adherence"] == (7, pytest.approx(0.3**0.5))
    client.force_login(ada)
    page = client.get(reverse("evaluation:anchored-scores", args=[run.pk])).content.decode()
    assert "7 of 10" in page
    assert f"/evaluation/review/?view=agreement&amp;judge={run.judge}" in page
