"""Stored runs judged on request, and a share of live traffic: which, how many, kept, forgotten.
Feedback on answers: who gives it, what it holds, where it is shown, and that it goes with its run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from collections_app.access.api_keys import NewKey, create_key
from collections_app.collections.deletion import delete_collection
from collections_app.errors import ServiceError
from collections_app.jobs.leases import claim
from collections_app.models import AuditEvent, Collection
from evaluation_app.models import Review, ReviewTask, RunScore, Sampling
from evaluation_app.reviews.agreement import record_of
from evaluation_app.reviews.labels import QueuedCount, count_queue, feedback_of, give_feedback, next_task, queue_live
from evaluation_app.runs.lifecycle import apply_retention
from evaluation_app.scoring import sampling
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.scoring.sampling import (
    forget_scores,
    has_work,
    is_chosen,
    judge_run,
    save_sampling,
    score_samples,
    send_samples,
)
from evaluation_app.transfer_parts import SAMPLINGS
from ragd.errors import InvalidInput
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.search.query_pipeline import QueryRequest, ask, search
from tests.refusals import raises_with
from tests.retrieval.corpus import make_collection

pytestmark = pytest.mark.django_db

QUESTION = "What must be done before the pump is cleaned?"
PLAN = RetrievePlan(k=3)


@pytest.fixture
def run(house: Collection) -> QueryRun:
    return ask(QueryRequest(house, QUESTION, PLAN, "api"))


def copies(run: QueryRun, number: int, **values: Any) -> list[UUID]:
    """As many runs like it as wanted: what is asked of the models stays cheap."""
    ids = [uuid4() for _ in range(number)]
    for pk in ids:
        run.pk, run._state.adding = pk, True
        for name, value in {"created_at": timezone.now(), **values}.items():
            setattr(run, name, value)
        run.save(force_insert=True)
    return ids


def sample(collection: Collection, **values: Any) -> Sampling:
    return save_sampling(collection, **{"enabled": True, "rate": 1.0, "per_day": 100, "actor": None} | values)


def test_a_run_is_judged_on_request(run: QueryRun) -> None:
    kept = judge_run(run, actor=None)
    assert (kept.query_run, kept.reason, kept.judge, kept.outcome) == (run.pk, "asked", "embedded", "answered")
    assert kept.scores["adherence"] == {"state": "scored", "value": 1.0} and "recall@10" not in kept.scores
    assert kept.context and kept.annotation["support"] and kept.asked_at == run.created_at
    assert QueryRun.objects.get(pk=run.pk).trace_scores is not None
    assert "judged a run of house" in AuditEvent.objects.latest("id").message
    again = judge_run(run, RunSettings(unit="sentences"), actor=None)
    assert RunScore.objects.count() == 1 and again.judge_version != kept.judge_version
    assert forget_scores([run.pk]) == 1


def test_what_holds_nothing_is_not_judged(house: Collection, run: QueryRun) -> None:
    with raises_with(ServiceError, field="judge"):
        judge_run(run, RunSettings(judge="none"), actor=None)
    for status in (QueryRun.Status.ERROR, QueryRun.Status.REFUSED):
        run.status = status
        with raises_with(ServiceError, type="nothing_to_judge", status=409):
            judge_run(run, actor=None)
    found = judge_run(search(QueryRequest(house, QUESTION, PLAN, "api")), actor=None)
    assert [name for name, score in found.scores.items() if score["state"] == "scored"] == ["context_relevance"]


def test_a_run_whose_collection_is_gone_is_judged_all_the_same(run: QueryRun) -> None:
    run.collection = None
    assert judge_run(run, actor=None).scores["adherence"]["value"] == 1.0


def test_the_choice_depends_on_the_id_alone() -> None:
    ids = [UUID(int=number) for number in range(4000)]
    tenth, half = ({pk for pk in ids if is_chosen(pk, rate)} for rate in (0.1, 0.5))
    assert tenth < half and 320 < len(tenth) < 480 and 1850 < len(half) < 2150
    assert all(is_chosen(pk, 1.0) for pk in ids) and not any(is_chosen(pk, 0.0) for pk in ids)


def test_a_share_of_the_traffic_is_scored(house: Collection, run: QueryRun) -> None:
    sample(house, rate=0.5)
    ids = copies(run, 12)
    assert has_work()
    assert score_samples() == sum(is_chosen(pk, 0.5) for pk in ids)
    assert set(RunScore.objects.values_list("query_run", flat=True)) == {pk for pk in ids if is_chosen(pk, 0.5)}
    assert set(RunScore.objects.values_list("reason", flat=True)) == {"sampled"}
    assert not has_work() and score_samples() == 0


def test_only_answers_to_people_and_programs_are_traffic(house: Collection, run: QueryRun) -> None:
    sample(house)
    copies(run, 1, channel="worker", environment="evaluation")
    copies(run, 1, channel="api", environment="playground", replay_of=uuid4())
    copies(run, 1, environment="production", replay_of=None, kind="search")
    copies(run, 1, kind="ask", status="error")
    copies(run, 1, status="ok", collection_name="another")
    (pk,) = copies(run, 1, collection_name="house")
    assert score_samples() == 1 and RunScore.objects.get().query_run == pk


def test_what_was_asked_before_is_left_alone(house: Collection, run: QueryRun) -> None:
    sample(house)
    assert not has_work() and score_samples() == 0 and not RunScore.objects.exists()
    sample(house, enabled=False)
    copies(run, 1)
    assert not has_work() and score_samples() == 0
    sample(house)
    copies(run, 1)
    assert score_samples() == 1


def test_a_slow_answer_that_came_behind_the_watermark_is_found(house: Collection, run: QueryRun) -> None:
    sample(house)
    began = timezone.now()
    copies(run, 1)
    assert score_samples() == 1
    copies(run, 1, created_at=began)
    assert score_samples() == 1


def test_a_day_has_its_bound(house: Collection, run: QueryRun) -> None:
    held = sample(house, per_day=2)
    Sampling.objects.filter(pk=held.pk).update(enabled_at=timezone.now() - timedelta(days=3), looked_until=None)
    copies(run, 3, created_at=timezone.now() - timedelta(days=2))
    copies(run, 3)
    assert score_samples() == 4
    assert not has_work() and score_samples() == 0


def test_what_the_time_does_not_reach_is_scored_next(house: Collection, run: QueryRun) -> None:
    sample(house)
    copies(run, 3)
    assert score_samples(slice_s=-1.0) == 0 and has_work()
    assert score_samples() == 3


def test_a_run_that_breaks_the_scoring_holds_up_no_other(
    house: Collection, run: QueryRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sample(house)
    broken, *_ = copies(run, 3)
    keep = sampling.keep_score

    def fail(run: QueryRun, *rest: Any) -> Any:
        if run.pk == broken:
            raise RuntimeError("broken")
        return keep(run, *rest)

    monkeypatch.setattr(sampling, "keep_score", fail)
    assert score_samples() == 2 and str(broken) in caplog.text


def test_a_judged_sample_stays_in_the_sample(house: Collection, run: QueryRun) -> None:
    sample(house)
    copies(run, 1)
    score_samples()
    assert judge_run(QueryRun.objects.get(pk=run.pk), actor=None).reason == "sampled"


def test_the_worker_sends_what_waits_once(house: Collection, run: QueryRun) -> None:
    sample(house)
    assert not send_samples()
    copies(run, 1)
    assert send_samples() and RunScore.objects.count() == 1  # the task runs where it is sent
    assert not send_samples()


def test_one_process_scores_at_a_time(house: Collection, run: QueryRun) -> None:
    sample(house)
    copies(run, 1)
    assert claim(Sampling, house.name, "elsewhere:1", "true") is not None
    assert score_samples() == 0
    Sampling.objects.update(lease_until=timezone.now() - timedelta(seconds=1))  # that process died
    assert score_samples() == 1
    assert Sampling.objects.get().lease_until is None


def test_a_score_goes_with_its_run_and_a_setting_with_its_collection(
    house: Collection, run: QueryRun, settings: Any
) -> None:
    settings.RAGD_RUN_RETENTION_DAYS = 30
    sample(house)
    judge_run(run, actor=None)
    (fresh,) = copies(run, 1)
    judge_run(QueryRun.objects.get(pk=fresh), actor=None)
    QueryRun.objects.exclude(pk=fresh).update(created_at=timezone.now() - timedelta(days=4000))
    apply_retention()
    assert [kept.query_run for kept in RunScore.objects.all()] == [fresh]
    delete_collection(house)
    assert not Sampling.objects.exists() and RunScore.objects.count() == 1


def test_a_sampling_that_makes_no_sense_is_refused(house: Collection) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("rate", {"rate": 0.0}),
        ("rate", {"rate": 1.1}),
        ("per_day", {"per_day": 0}),
        ("judge", {"judge": "none"}),
    ]
    for field, values in cases:
        with pytest.raises(InvalidInput) as refusal:
            sample(house, **values)
        assert refusal.value.field == field and not Sampling.objects.exists()


def test_a_model_that_is_not_set_up_is_refused_when_it_is_chosen(house: Collection) -> None:
    with pytest.raises(ServiceError, match="RAGD_JUDGE_BASE_URL"), transaction.atomic():
        sample(house, judge="llm")
    assert not Sampling.objects.exists()
    assert not sample(house, judge="llm", enabled=False).enabled


def test_the_setting_travels_and_goes_with_its_collection(house: Collection) -> None:
    sample(house, rate=0.25)
    with connection.cursor() as cursor:
        rows = list(SAMPLINGS.read(cursor.connection, house))
    SAMPLINGS.forget(house)
    assert not Sampling.objects.exists()
    assert SAMPLINGS.restore(house, rows) == 1
    held = Sampling.objects.get()
    assert (held.enabled, held.rate, held.judge) == (True, 0.25, "embedded") and held.enabled_at is not None
    SAMPLINGS.restore(house, [rows[0] | {"judge": "llm"}])
    assert not Sampling.objects.get().enabled
    for wrong in ([{"rate": 1}], [rows[0] | {"rate": "all"}], rows * 2):
        with pytest.raises(InvalidInput):
            SAMPLINGS.restore(house, wrong)


@pytest.fixture
def given_run(house: Collection) -> QueryRun:
    return ask(QueryRequest(house, QUESTION, RetrievePlan(k=3), "api"))


def test_feedback_keeps_the_answer_as_it_was_read_and_replaces_what_the_same_person_said(
    given_run: QueryRun, ada: User
) -> None:
    give_feedback(given_run, correct=True, actor=ada)
    given = give_feedback(given_run, correct=False, comment=" too short ", correction="Switch it off first.", actor=ada)
    assert (Review.objects.count(), ReviewTask.objects.count()) == (1, 1)
    assert (given.verdicts, given.note, given.correction) == (
        {"correctness": 0.0}, "too short", "Switch it off first.",
    )  # fmt: skip
    task = given.task
    assert (task.query_run, task.reason, task.state, task.question_text) == (given_run.pk, "feedback", "done", QUESTION)
    assert [passage["key"] for passage in task.context] == given_run.retrieved_ids
    assert task.answer_sentences[0][0] == "a"
    assert record_of(given)["correction"] == "Switch it off first."


def test_people_and_keys_speak_for_themselves_and_for_their_users(given_run: QueryRun, ada: User) -> None:
    key, _ = create_key(NewKey("front end"), actor=None)
    give_feedback(given_run, correct=True, actor=ada)
    for user in ("", "u1", "u2", "u2"):
        give_feedback(given_run, correct=False, user=user, actor=key)
    names = [each.reviewer_name for each in feedback_of(given_run.pk)]
    assert names == ["key front end, u2", "key front end, u1", "key front end", "ada"]


def test_feedback_is_not_in_the_queue_and_counts_apart(given_run: QueryRun, ada: User) -> None:
    give_feedback(given_run, correct=True, actor=ada)
    counts = count_queue("bob")
    assert (counts.open, counts.done, counts.feedback, counts.waiting, counts.mine) == (0, 0, 1, 0, 0)
    assert next_task("bob") is None


def test_an_answer_with_feedback_comes_into_the_queue_as_others_do_and_its_feedback_stays(
    given_run: QueryRun, ada: User
) -> None:
    give_feedback(given_run, correct=False, actor=ada)
    RunScore.objects.create(
        query_run=given_run.pk, collection_name="house", question_text=QUESTION, outcome="answered", answer="Yes.",
        asked_at=given_run.created_at,
    )  # fmt: skip
    assert queue_live("house", "random") == QueuedCount(1, 0)
    assert queue_live("house", "random") == QueuedCount(0, 1)
    tasks = ReviewTask.objects.values_list("reason", "state")
    assert sorted(tasks) == [("feedback", "done"), ("random sample", "open")]
    assert len(feedback_of(given_run.pk)) == 1


def test_feedback_is_no_review_of_the_queue(client: Client, given_run: QueryRun, ada: User) -> None:
    task = give_feedback(given_run, correct=False, actor=ada).task
    client.force_login(ada)
    address = reverse("evaluation:review-task", args=[task.pk])
    for answered in (client.get(address), client.post(address, {"correctness": "0.5"})):
        assert (answered.status_code, answered["Location"]) == (
            302,
            reverse("evaluation:query-run", args=[given_run.pk]),
        )
    assert Review.objects.count() == 1
    assert client.get(reverse("evaluation:review", query={"view": "agreement"})).context["agreement"].reviews == 0


def test_whom_a_key_speaks_for_is_kept_in_one_form(given_run: QueryRun) -> None:
    key, _ = create_key(NewKey("front end"), actor=None)
    names = {give_feedback(given_run, correct=True, user=user, actor=key).reviewer_name for user in ("u1", " u\x001\n")}
    assert names == {"key front end, u1"}


def test_feedback_that_says_nothing_or_too_much_is_refused(given_run: QueryRun, ada: User) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "correct"), ({"comment": "  "}, "correct"), ({"comment": "x" * 4001}, "comment"),
        ({"correction": "x" * 20_001}, "correction"), ({"correct": True, "user": "u" * 201}, "user"),
    ]  # fmt: skip
    for values, field in cases:
        with raises_with(InvalidInput, field=field):
            give_feedback(given_run, **values, actor=ada)
        assert not ReviewTask.objects.exists()


def test_a_search_has_no_answer_to_speak_of(house: Collection, ada: User) -> None:
    given_run = search(QueryRequest(house, QUESTION, RetrievePlan(k=3), "api"))
    with raises_with(ServiceError, type="not_answered", status=409):
        give_feedback(given_run, correct=True, actor=ada)


def test_feedback_goes_with_its_run_and_reviews_of_the_queue_stay(given_run: QueryRun, ada: User) -> None:
    give_feedback(given_run, correct=True, actor=ada)
    queued = ReviewTask.objects.create(
        query_run=given_run.pk, collection_name="house", question_text="q", reason="unsure"
    )
    forget_scores([given_run.pk])
    assert list(ReviewTask.objects.all()) == [queued]


def test_a_key_sees_and_gives_feedback_on_the_runs_of_its_collections_alone(
    client: Client, given_run: QueryRun, ada: User
) -> None:
    give_feedback(given_run, correct=False, comment="secret remark", actor=ada)
    make_collection("shed")
    keys = {name: create_key(NewKey(name, collections=[name]), actor=None)[1] for name in ("house", "shed")}
    path = f"/v1/runs/{given_run.pk}/feedback"

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
