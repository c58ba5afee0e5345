"""The review queue: what comes in, who is asked, what is kept, and how far judge and people agree."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from collections_app.errors import ServiceError
from evaluation_app.models import EvaluationRun, Review, ReviewTask, RunScore
from evaluation_app.reviews.agreement import compare_yes_no, kappa_of, read_agreement
from evaluation_app.reviews.labels import (
    QueuedCount,
    count_queue,
    next_task,
    queue_live,
    queue_run,
    review,
    set_aside,
    unsureness,
    with_faithfulness,
)
from ragd.errors import InvalidInput
from tests.evaluation.made_runs import make_run
from tests.refusals import raises_with
from tests.web.pages import client_of

pytestmark = pytest.mark.django_db
SENTENCES = [["a", "Owls hunt at night."], ["b", "They eat paper."]]
CONTEXT = [{"key": "owl.md#0", "sentences": [["0a", "Owls hunt at night."]]}]
SUPPORT = [{"key": "a", "by": ["0a"], "supported": True}, {"key": "b", "by": [], "supported": False}]
SECRET = 0.4321  # a judge's score that must not be on a page before the person has judged


@pytest.fixture
def bob(django_user_model: Any) -> User:
    return django_user_model.objects.create_superuser("bob")


@pytest.fixture
def run() -> EvaluationRun:
    """Four questions: one fails in a mode, one in two, one passes, one was not answered."""
    chances = [0.1, 0.52, 0.9]
    items = {
        place: {
            "answer": "Owls hunt at night. They eat paper.", "answer_sentences": SENTENCES, "context": CONTEXT,
            "annotation": {"relevant": ["0a"], "utilized": ["0a"], "support": SUPPORT},
            "details": {"likely": {"unsupported": {"a": 0.01, "b": chance}}},
        }
        for place, chance in enumerate(chances)
    }  # fmt: skip
    items[0]["modes"] = ["low_completeness"]
    items[1]["modes"] = ["low_completeness", "unsupported_claims"]
    items[3] = {"outcome": "abstained"}
    scores = {"adherence": 0.0, "faithfulness": SECRET, "completeness": 0.5}
    return make_run([scores, scores, scores, {}], items=items)


def queued(run: EvaluationRun, which: str, **values: Any) -> list[int]:
    queue_run(run, which, **values)
    return [task.item.position for task in ReviewTask.objects.select_related("item") if task.item]


@pytest.mark.parametrize(("which", "positions"), [("all", [0, 1, 2]), ("failing", [1, 0]), ("unsure", [1, 0, 2])])
def test_what_comes_into_the_queue_and_in_which_order(run: EvaluationRun, which: str, positions: list[int]) -> None:
    """`unsure`: the chances 0.52, 0.1 and 0.9 are 0.02, 0.4 and 0.4 away from the middle."""
    assert queued(run, which) == positions


def test_chance_draws_the_same_ones_again(run: EvaluationRun) -> None:
    first = set(queued(run, "random", number=2))
    ReviewTask.objects.all().delete()
    assert set(queued(run, "random", number=2)) == first
    assert len(first) == 2


def test_an_answer_is_in_the_queue_once(run: EvaluationRun) -> None:
    assert queue_run(run, "failing") == QueuedCount(2, 0)
    assert queue_run(run, "all") == QueuedCount(1, 2)
    assert ReviewTask.objects.count() == 3


def test_a_task_outlives_its_run(run: EvaluationRun) -> None:
    queue_run(run, "all", number=1)
    run.delete()
    task = ReviewTask.objects.get()
    assert (task.item, task.answer_sentences, task.judged["completeness"]["value"]) == (None, SENTENCES, 0.5)


def test_live_answers_come_in_too() -> None:
    for number in range(2):
        RunScore.objects.create(
            query_run=uuid4(), collection_name="nature", question_text=f"Q{number}?", judge="embedded",
            outcome="answered", answer="Yes.", answer_sentences=[["a", "Yes."]], asked_at=timezone.now(),
            scores={"faithfulness": {"state": "scored", "value": 0.5}},
        )  # fmt: skip
    assert queue_live("nature", "unsure", number=1) == QueuedCount(1, 0)
    assert queue_live("nature", "all") == QueuedCount(1, 1)
    assert queue_live("elsewhere", "all") == QueuedCount(0, 0)


def test_unsureness_without_probabilities_goes_by_faithfulness() -> None:
    assert unsureness(RunScore(scores={"faithfulness": {"state": "scored", "value": 0.75}})) == 0.5
    assert unsureness(RunScore(scores={"faithfulness": {"state": "unscorable", "reason": "-"}})) == 0.0
    assert unsureness(RunScore()) == 0.0


@pytest.mark.parametrize(
    ("values", "field"), [({"which": "some"}, "which"), ({"number": 0}, "number"), ({"wanted": 21}, "wanted")]
)
def test_wrong_wishes_are_named(run: EvaluationRun, values: dict[str, Any], field: str) -> None:
    with raises_with(InvalidInput, field=field):
        queue_run(run, **({"which": "all"} | values))


def test_a_task_is_done_when_as_many_as_are_wanted_have_judged(run: EvaluationRun, ada: User, bob: User) -> None:
    queue_run(run, "all", number=1, wanted=2)
    task = ReviewTask.objects.get()
    review(task, {"adherence": 0.0}, unsupported=["b"], actor=ada)
    assert next_task("ada") is None
    assert next_task("bob") == task
    assert count_queue("bob").waiting == 1
    review(task, {"adherence": None, "completeness": 0.75}, actor=bob)
    task.refresh_from_db()
    assert task.state == "done"
    assert next_task("bob") is None


def test_what_was_skipped_comes_last(run: EvaluationRun) -> None:
    queue_run(run, "failing")
    first = next_task("ada")
    assert first is not None
    second = next_task("ada", later=[first.pk])
    assert second not in (None, first)
    assert second is not None
    assert next_task("ada", later=[first.pk, second.pk]) == first


def test_what_is_set_aside_is_nobodys(run: EvaluationRun, ada: User) -> None:
    queue_run(run, "all", number=1)
    task = ReviewTask.objects.get()
    set_aside(task, actor=ada)
    assert next_task("bob") is None
    set_aside(task, actor=ada, back=True)
    assert next_task("bob") == task


def test_nobody_judges_an_answer_twice(run: EvaluationRun, ada: User) -> None:
    queue_run(run, "all", number=1)
    task = ReviewTask.objects.get()
    review(task, {"adherence": 1.0}, actor=ada)
    with raises_with(ServiceError, type="already_reviewed"):
        review(task, {"adherence": 0.0}, actor=ada)


def test_wrong_verdicts_are_named(run: EvaluationRun, ada: User) -> None:
    queue_run(run, "all", number=1)
    cases: list[tuple[dict[str, Any], list[str], str]] = [
        ({}, [], "verdicts"),
        ({"adherence": 0.5}, [], "adherence"),
        ({"completeness": 0.3}, [], "completeness"),
        ({"completeness": True}, [], "completeness"),
        ({"smell": 1.0}, [], "smell"),
        ({}, ["z"], "unsupported"),
        ({"adherence": 1.0}, ["a"], "adherence"),
    ]
    for verdicts, unsupported, field in cases:
        with raises_with(InvalidInput, field=field):
            review(ReviewTask.objects.get(), verdicts, unsupported=unsupported, actor=ada)
        assert not Review.objects.exists()


def test_faithfulness_follows_from_the_sentences() -> None:
    assert with_faithfulness({}, ["b"], SENTENCES)["faithfulness"] == 0.5
    assert with_faithfulness({"adherence": 1.0}, [], SENTENCES)["faithfulness"] == 1.0
    assert with_faithfulness({"adherence": 0.0}, [], SENTENCES)["faithfulness"] is None  # which ones, nobody said
    assert with_faithfulness({"adherence": 1.0}, [], [])["faithfulness"] is None


def judged_task(judge: dict[str, float], *reviews: dict[str, float | None]) -> ReviewTask:
    scores = {name: {"state": "scored", "value": value} for name, value in judge.items()}
    task = ReviewTask.objects.create(collection_name="nature", question_text="Q?", judged=scores)
    for name, verdicts in zip(("ada", "bob", "cid"), reviews, strict=False):
        Review.objects.create(task=task, reviewer_name=name, verdicts=verdicts)
    return task


def test_agreement_with_the_judge_is_over_the_majority_and_the_mean() -> None:
    judged_task({"adherence": 1.0, "completeness": 0.9}, {"adherence": 1.0, "completeness": 1.0}, {"completeness": 0.5})
    judged_task({"adherence": 1.0, "completeness": 0.1}, {"adherence": 0.0, "completeness": 0.25})
    judged_task({"adherence": 0.0, "completeness": 0.5}, {"adherence": 0.0, "completeness": None})
    judged_task({"adherence": 0.0}, {"adherence": 0.0}, {"adherence": 1.0})  # a tie
    judged_task({}, {"adherence": 1.0})  # nothing to hold it against
    judged_task({"adherence": 1.0})  # nobody judged it
    found = read_agreement(ReviewTask.objects.prefetch_related("reviews"))
    assert (found.tasks, found.reviews) == (5, 7)
    counts = found.adherence.confusion
    assert (counts.both, counts.first_only, counts.second_only, counts.neither) == (1, 1, 0, 1)
    assert found.adherence.ties == 1
    assert found.adherence.kappa.value == pytest.approx((2 / 3 - 4 / 9) / (1 - 4 / 9))
    completeness = next(row for row in found.numeric if row.measure == "completeness")
    assert sorted(completeness.pairs) == [(0.1, 0.25), (0.9, 0.75)]
    assert completeness.pearson.value == pytest.approx(1.0)
    assert completeness.bias == pytest.approx(0.0)
    assert completeness.rmse == pytest.approx(0.15)


def test_people_are_held_against_each_other() -> None:
    for ada, bob in ((1.0, 1.0), (0.0, 0.0), (1.0, 0.0), (1.0, 1.0)):
        judged_task({}, {"adherence": ada}, {"adherence": bob})
    judged_task({}, {"adherence": 1.0}, {"adherence": 1.0}, {"adherence": 0.0})
    people = {each.names: each for each in read_agreement(ReviewTask.objects.prefetch_related("reviews")).people}
    assert set(people) == {"all pairs of people", "ada and bob", "ada and cid", "bob and cid"}
    assert people["all pairs of people"].tasks == 7
    both = people["ada and bob"].adherence
    assert both.confusion.total == 5
    assert both.kappa.value == pytest.approx((0.8 - 0.56) / (1 - 0.56))
    assert people["bob and cid"].adherence.kappa.value is None  # of one pair nothing follows


def test_kappa_of_counts_is_cohens() -> None:
    pairs = [(1.0, 1.0)] * 20 + [(1.0, 0.0)] * 5 + [(0.0, 1.0)] * 10 + [(0.0, 0.0)] * 15
    found = compare_yes_no(pairs)
    assert found.kappa.value == pytest.approx(0.4)  # Cohen's own example
    assert found.kappa.low is not None
    assert found.kappa.high is not None
    assert found.kappa.low < 0.4 < found.kappa.high
    assert compare_yes_no(pairs) == found
    assert kappa_of([5, 0, 0, 0]) is None
    assert kappa_of([26, 12, 0, 0]) is None  # the first never says no
    assert kappa_of([0, 0, 0, 0]) is None


def test_sentences_are_held_against_the_judges_marks(run: EvaluationRun, ada: User) -> None:
    queue_run(run, "all", number=2)
    first, second = ReviewTask.objects.all()
    review(first, {"adherence": 0.0}, unsupported=["b"], actor=ada)  # as the judge: "a" is held, "b" is not
    review(second, {"adherence": 1.0}, actor=ada)  # "b" is held, too
    tasks = ReviewTask.objects.select_related("item").prefetch_related("reviews")
    counts = read_agreement(tasks).sentences.confusion
    assert (counts.both, counts.first_only, counts.second_only, counts.neither) == (2, 0, 1, 1)


def test_live_answers_are_held_against_their_scores_in_one_query(ada: User, django_assert_max_num_queries: Any) -> None:
    for number in range(6):
        RunScore.objects.create(
            query_run=uuid4(), collection_name="nature", question_text=f"Q{number}?", judge="embedded",
            outcome="answered", answer_sentences=SENTENCES, asked_at=timezone.now(), annotation={"support": SUPPORT},
        )  # fmt: skip
    queue_live("nature", "all")
    for task in ReviewTask.objects.all():
        review(task, {"adherence": 0.0}, unsupported=["b"], actor=ada)
    with django_assert_max_num_queries(3):  # tasks, reviews, scores
        counts = read_agreement(ReviewTask.objects.prefetch_related("reviews")).sentences.confusion
    assert (counts.both, counts.neither) == (6, 6)


@pytest.fixture
def visitor(ada: User) -> Client:
    return client_of(ada)


def test_a_person_goes_through_the_queue_without_seeing_the_judge(visitor: Client, run: EvaluationRun) -> None:
    page = visitor.get(f"/evaluation/review/?run={run.pk}").content.decode()
    assert "empty-state" in page
    assert '<option value="random" selected>' in page  # the choice that stands for all answers
    sent = {"source": f"run:{run.pk}", "which": "unsure", "number": 2, "wanted": 1}
    assert visitor.post("/evaluation/review/", sent).status_code == 302
    address = visitor.get("/evaluation/review/next/")["Location"]
    page = visitor.get(address).content.decode()
    assert "They eat paper." in page
    assert "0.43" not in page
    assert "data-mark" not in page
    answer = visitor.post(address, {"adherence": "0", "completeness": "none", "unsupported": "b", "note": "paper?"})
    assert answer.status_code == 302
    made = Review.objects.get()
    assert made.verdicts == {"adherence": 0.0, "completeness": None, "faithfulness": 0.5}
    assert (made.unsupported, made.note, made.reviewer_name) == (["b"], "paper?", "ada")
    following = visitor.get(visitor.get(answer["Location"])["Location"]).content.decode()
    assert 'class="last-review"' in following
    assert "0.43" in following  # what the judge said of that one
    seen = visitor.get(address).content.decode()
    assert "data-mark" in seen
    assert 'id="review-form"' not in seen


def test_skipping_and_setting_aside(visitor: Client, run: EvaluationRun) -> None:
    queue_run(run, "failing")
    first, second = (task.pk for task in ReviewTask.objects.all())
    visitor.post(f"/evaluation/review/{first}/", {"do": "skip"})
    assert visitor.get("/evaluation/review/next/")["Location"] == f"/evaluation/review/{second}/"
    visitor.post(f"/evaluation/review/{second}/", {"do": "aside"})
    assert visitor.get("/evaluation/review/next/")["Location"] == f"/evaluation/review/{first}/"
    assert 'name="back"' in visitor.get("/evaluation/review/?state=skipped").content.decode()
    assert visitor.get("/evaluation/review/?state=nonsense").status_code == 404
    visitor.post(f"/evaluation/review/{second}/", {"do": "aside", "back": "1"})
    assert count_queue("ada").waiting == 2


def test_the_agreement_and_the_download(visitor: Client, run: EvaluationRun, ada: User) -> None:
    assert "empty-state" in visitor.get("/evaluation/review/?view=agreement").content.decode()
    queue_run(run, "all")
    for task in ReviewTask.objects.all():
        review(task, {"adherence": 0.0, "completeness": 0.75}, unsupported=["b"], actor=ada)
    page = visitor.get("/evaluation/review/?view=agreement&set_name=birds").content.decode()
    assert "undefined: one side is constant" in page
    assert "100 % of 3 agree" in re.sub(r"100(?:\.0)?\s?%", "100 %", page)
    lines = b"".join(visitor.get("/evaluation/review/reviews.jsonl").streaming_content).decode().splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == 3
    assert records[0]["verdicts"] == {"adherence": 0.0, "completeness": 0.75, "faithfulness": 0.5}
    assert records[0]["judge_scores"]["faithfulness"] == SECRET
    assert records[0]["judge_annotation"]["support"] == SUPPORT
    assert not b"".join(visitor.get("/evaluation/review/reviews.jsonl?judge=llm").streaming_content)
