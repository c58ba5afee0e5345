"""Feedback on answers: who gives it, what it holds, where it is shown, and that it goes with its run."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from collections_app.access.api_keys import NewKey, create_key
from collections_app.errors import ServiceError
from collections_app.models import Collection
from evaluation_app.models import Review, ReviewTask, RunScore
from evaluation_app.reviews.agreement import record_of
from evaluation_app.reviews.labels import QueuedCount, count_queue, feedback_of, give_feedback, next_task, queue_live
from evaluation_app.scoring.sampling import forget_scores
from ragd.errors import InvalidInput
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.search.query_pipeline import QueryRequest, ask, search
from tests.retrieval.corpus import make_collection

pytestmark = pytest.mark.django_db
QUESTION = "What must be done before the pump is cleaned?"


@pytest.fixture
def run(house: Collection) -> QueryRun:
    return ask(QueryRequest(house, QUESTION, RetrievePlan(k=3), "api"))


def test_feedback_keeps_the_answer_as_it_was_read_and_replaces_what_the_same_person_said(
    run: QueryRun, ada: User
) -> None:
    give_feedback(run, correct=True, actor=ada)
    given = give_feedback(run, correct=False, comment=" too short ", correction="Switch it off first.", actor=ada)
    assert (Review.objects.count(), ReviewTask.objects.count()) == (1, 1)
    assert (given.verdicts, given.note, given.correction) == (
        {"correctness": 0.0}, "too short", "Switch it off first.",
    )  # fmt: skip
    task = given.task
    assert (task.query_run, task.reason, task.state, task.question_text) == (run.pk, "feedback", "done", QUESTION)
    assert [passage["key"] for passage in task.context] == run.retrieved_ids
    assert task.answer_sentences[0][0] == "a"
    assert record_of(given)["correction"] == "Switch it off first."


def test_people_and_keys_speak_for_themselves_and_for_their_users(run: QueryRun, ada: User) -> None:
    key, _ = create_key(NewKey("front end"), actor=None)
    give_feedback(run, correct=True, actor=ada)
    for user in ("", "u1", "u2", "u2"):
        give_feedback(run, correct=False, user=user, actor=key)
    names = [each.reviewer_name for each in feedback_of(run.pk)]
    assert names == ["key front end, u2", "key front end, u1", "key front end", "ada"]


def test_feedback_is_not_in_the_queue_and_counts_apart(run: QueryRun, ada: User) -> None:
    give_feedback(run, correct=True, actor=ada)
    counts = count_queue("bob")
    assert (counts.open, counts.done, counts.feedback, counts.waiting, counts.mine) == (0, 0, 1, 0, 0)
    assert next_task("bob") is None


def test_an_answer_with_feedback_comes_into_the_queue_as_others_do_and_its_feedback_stays(
    run: QueryRun, ada: User
) -> None:
    give_feedback(run, correct=False, actor=ada)
    RunScore.objects.create(
        query_run=run.pk, collection_name="house", question_text=QUESTION, outcome="answered", answer="Yes.",
        asked_at=run.created_at,
    )  # fmt: skip
    assert queue_live("house", "random") == QueuedCount(1, 0)
    assert queue_live("house", "random") == QueuedCount(0, 1)
    tasks = ReviewTask.objects.values_list("reason", "state")
    assert sorted(tasks) == [("feedback", "done"), ("random sample", "open")]
    assert len(feedback_of(run.pk)) == 1


def test_feedback_is_no_review_of_the_queue(client: Client, run: QueryRun, ada: User) -> None:
    task = give_feedback(run, correct=False, actor=ada).task
    client.force_login(ada)
    address = reverse("evaluation:review-task", args=[task.pk])
    for answered in (client.get(address), client.post(address, {"correctness": "0.5"})):
        assert (answered.status_code, answered["Location"]) == (302, reverse("evaluation:query-run", args=[run.pk]))
    assert Review.objects.count() == 1
    assert client.get(reverse("evaluation:review", query={"view": "agreement"})).context["agreement"].reviews == 0


def test_whom_a_key_speaks_for_is_kept_in_one_form(run: QueryRun) -> None:
    key, _ = create_key(NewKey("front end"), actor=None)
    names = {give_feedback(run, correct=True, user=user, actor=key).reviewer_name for user in ("u1", " u\x001\n")}
    assert names == {"key front end, u1"}


def test_feedback_that_says_nothing_or_too_much_is_refused(run: QueryRun, ada: User) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "correct"), ({"comment": "  "}, "correct"), ({"comment": "x" * 4001}, "comment"),
        ({"correction": "x" * 20_001}, "correction"), ({"correct": True, "user": "u" * 201}, "user"),
    ]  # fmt: skip
    for values, field in cases:
        with pytest.raises(InvalidInput) as refusal:
            give_feedback(run, **values, actor=ada)
        assert refusal.value.field == field
        assert not ReviewTask.objects.exists()


def test_a_search_has_no_answer_to_speak_of(house: Collection, ada: User) -> None:
    run = search(QueryRequest(house, QUESTION, RetrievePlan(k=3), "api"))
    with pytest.raises(ServiceError) as refusal:
        give_feedback(run, correct=True, actor=ada)
    assert (refusal.value.type, refusal.value.status) == ("not_answered", 409)


def test_feedback_goes_with_its_run_and_reviews_of_the_queue_stay(run: QueryRun, ada: User) -> None:
    give_feedback(run, correct=True, actor=ada)
    queued = ReviewTask.objects.create(query_run=run.pk, collection_name="house", question_text="q", reason="unsure")
    forget_scores([run.pk])
    assert list(ReviewTask.objects.all()) == [queued]


def test_a_key_sees_and_gives_feedback_on_the_runs_of_its_collections_alone(
    client: Client, run: QueryRun, ada: User
) -> None:
    give_feedback(run, correct=False, comment="secret remark", actor=ada)
    make_collection("shed")
    keys = {name: create_key(NewKey(name, collections=[name]), actor=None)[1] for name in ("house", "shed")}
    path = f"/v1/runs/{run.pk}/feedback"

    def send(name: str, method: str = "GET", body: Any = None) -> Any:
        return client.generic(
            method, path, data=body or b"", content_type="application/json",
            headers={"Authorization": f"Bearer {keys[name]}"},
        )  # fmt: skip

    for method, body in (("GET", None), ("POST", b'{"correct": true}')):
        refused = send("shed", method, body)
        assert (refused.status_code, refused.json()["error"]["type"]) == (404, "unknown_run")
        assert b"secret remark" not in refused.content
    assert send("house", "POST", b'{"correct": true, "user": "u1"}').json()["given_by"] == "key house, u1"
    listed = send("house").json()["items"]
    assert [(each["correct"], each["comment"]) for each in listed] == [(True, ""), (False, "secret remark")]
    assert send("house", "POST", b'{"wrong": true}').status_code == 422
