"""Evaluation runs: each question once, whatever happens meanwhile; what fails is told and can be repeated."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from datetime import timedelta

import pytest
from django.db import DataError, OperationalError
from django.utils import timezone

from collections_app.errors import ServiceError
from collections_app.jobs.leases import LeaseLostError
from collections_app.models import AuditEvent, Collection, IngestJob
from evaluation_app.golden import sets
from evaluation_app.golden.sets import keep_version
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenQuestion, GoldenSet
from evaluation_app.runs import lifecycle, runner
from evaluation_app.runs.runner import claim_run, query_run_id, release_host
from evaluation_app.scoring.judge_selection import RunSettings
from ragd.errors import InvalidInput, LexicalDisabled, UnknownCollection
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.search import query_pipeline as retrieval_services
from tests.refusals import raises_with
from tests.retrieval.corpus import make_collection

pytestmark = pytest.mark.django_db

State = EvaluationRun.State
SEARCH_ONLY = RunSettings(answers=False, judge="none", cut=3)
PLAN = RetrievePlan(k=3)
QUESTIONS = (
    ("How much water does the main pump move?", ["pump.md"], 1.0),
    ("When are roses cut?", ["garden.md"], 1.0),
    ("What does coffee cost?", ["kitchen.md"], 3.0),
    ("Who opens the archive?", ["boiler.md"], 1.0),  # wrongly expected: a miss for sure
)


class KilledError(BaseException):
    """Stands for a process that ends in the middle."""


@pytest.fixture
def golden_set(house):
    return make_golden_set(house)


@pytest.fixture
def committed_set(transactional_db):
    return make_golden_set(make_collection())


def make_golden_set(house):
    made = GoldenSet.objects.create(name="house questions", collection_name=house.name)
    for place, (question, expected, weight) in enumerate(QUESTIONS):
        GoldenQuestion.objects.create(
            golden_set=made, position=place, question=question, expected_doc_ids=expected, weight=weight
        )
    return made


def start(golden_set, **values):
    return lifecycle.start_run(
        golden_set, lifecycle.RunRequest(**{"plan": PLAN, "settings": SEARCH_ONLY, **values}), send=False
    )


def test_a_run_has_its_header_before_it_begins(golden_set):
    run = start(golden_set, thresholds={"hit@3": 0.5}, name="  first \n try ", plan_name="wide")
    collection = Collection.objects.get(name="house")
    assert (run.state, run.total, run.done, run.name) == (State.QUEUED, 4, 0, "first try")
    assert (run.plan_hash, run.plan, run.plan_name) == (PLAN.hash, PLAN.as_dict(), "wide")
    assert (run.index_version, run.embed_model) == (collection.index_version, collection.embed_model)
    assert (run.set_version, run.set_digest) == (1, keep_version(golden_set).digest)
    assert (run.judge, run.judge_version, run.answerer, run.prompt_hash) == ("none", "", "", "")
    assert "+" in run.code_version
    assert run.thresholds == {"hit@3": 0.5}
    assert "started evaluation" in AuditEvent.objects.latest("id").message


def test_a_run_asks_every_question_once_and_adds_up(golden_set):
    told = []
    run = lifecycle.run_now(start(golden_set, thresholds={"hit@3": 0.5}), on_item=told.append)
    assert (run.state, run.done, run.failed, run.passed) == (State.SUCCEEDED, 4, 0, True)
    items = list(run.items.order_by("position"))
    assert [item.question_text for item in items] == [question for question, _, _ in QUESTIONS]
    assert [item.pk for item in items] == [item.pk for item in told]
    assert [item.outcome for item in items] == ["searched"] * 4
    assert [item.query_run for item in items] == [query_run_id(run, place) for place in range(4)]
    assert all(QueryRun.objects.get(pk=item.query_run).retrieved_ids == item.retrieved_ids for item in items)
    hits = [item.scores["hit@3"]["value"] for item in items]
    assert hits[:3] == [1.0, 1.0, 1.0]
    mean = run.summary["measures"]["hit@3"]
    assert mean["value"] == pytest.approx((5 + hits[3]) / 6)
    assert (mean["scored"], mean["total"]) == (4, 4)
    assert mean["low"] <= mean["value"] <= mean["high"]
    assert run.summary["outcomes"] == {"searched": 4}
    assert run.summary["store_states"] == 1
    assert run.finished_at is not None and run.took_ms > 0
    assert (run.cost_usd, run.judge_cost_usd) == (0.0, 0.0)


def test_an_answered_run_is_judged_and_costs_are_known(golden_set):
    run = lifecycle.run_now(start(golden_set, settings=RunSettings(cut=3)))
    assert (run.state, run.answerer, run.judge) == (State.SUCCEEDED, "extractive", "embedded")
    assert run.judge_version
    measures = run.summary["measures"]
    assert {"recall@3", "context_relevance", "adherence", "right_outcome"} <= set(measures)
    assert measures["context_relevance"]["scored"] == 4
    assert sum(run.summary["outcomes"].values()) == 4
    assert run.token_usage["total_tokens"] > 0
    item = run.items.get(position=0)
    assert item.annotation and item.context and item.answer_sentences
    assert item.details["store_state"]["index_version"] == run.index_version


def test_a_run_scores_the_rubrics_that_its_set_had_when_it_began(golden_set):
    rubrics = [
        {"name": "no-price", "kind": "regex", "definition": r"\d+ euros", "must_match": False},
        {"name": "json", "kind": "json", "definition": ""},
    ]
    sets.update_set(golden_set, rubrics=rubrics)
    answered = RunSettings(judge="none", cut=3)
    with raises_with(InvalidInput, field="thresholds"):
        start(golden_set, settings=answered, thresholds={"rubric:polite": 1})
    run = start(golden_set, settings=answered, thresholds={"rubric:json": 0.5})
    sets.update_set(golden_set, rubrics=[])
    run = lifecycle.run_now(run)
    measures = run.summary["measures"]
    answers = {item.question_text: item for item in run.items.all()}
    assert set(measures) >= {"rubric:no-price", "rubric:json"}
    for item in answers.values():
        states = {item.scores[name]["state"] for name in ("rubric:no-price", "rubric:json")}
        assert states == ({"scored"} if item.outcome == "answered" else {"unscorable"})
    assert (measures["rubric:json"]["value"], run.passed) == (0.0, False)
    assert set(lifecycle.run_now(start(golden_set, settings=answered)).summary["measures"]).isdisjoint(
        {"rubric:no-price", "rubric:json"}
    )


def test_a_run_cut_off_between_answer_and_item_does_nothing_twice(golden_set, monkeypatch):
    """The worst moment: the query run is stored and the item is not."""
    run = start(golden_set)
    with monkeypatch.context() as patch:
        store = runner.RunExecutor._store

        def die_at_third(self, item, usage):
            if item.position == 2:
                raise KilledError
            store(self, item, usage)

        patch.setattr(runner.RunExecutor, "_store", die_at_third)
        patch.setattr(lifecycle, "release_run", lambda *_, **__: True)  # nobody tidies up after a kill
        with pytest.raises(KilledError):
            lifecycle.run_now(run)
    run.refresh_from_db()
    assert (run.state, run.done, QueryRun.objects.count()) == (State.RUNNING, 2, 3)
    assert lifecycle.send_waiting() == 0, "its worker may still live"
    EvaluationRun.objects.update(lease_until=timezone.now() - timedelta(hours=1))
    ended = lifecycle.run_now(run)
    assert (ended.state, ended.done, ended.attempts, ended.tries) == (State.SUCCEEDED, 4, 2, 1)
    assert QueryRun.objects.count() == 4
    assert Counter(EvaluationItem.objects.values_list("position", flat=True)) == Counter(range(4))


def test_maintenance_sends_a_run_whose_worker_was_lost(golden_set):
    run = start(golden_set)
    claim_run(run.pk, "elsewhere:1", most=1)
    assert lifecycle.send_waiting() == 0
    EvaluationRun.objects.update(lease_until=timezone.now() - timedelta(hours=1))
    assert lifecycle.send_waiting() == 1  # the queue of the tests works it off at once
    run.refresh_from_db()
    assert (run.state, run.attempts) == (State.SUCCEEDED, 2)


def test_a_run_whose_worker_stops_in_order_waits_for_the_next(golden_set):
    run = claim_run(start(golden_set).pk, "here:1", most=None)
    assert run is not None
    assert release_host("elsewhere") == 0
    assert release_host("here", but=[1]) == 0
    assert release_host("here") == 1
    with pytest.raises(LeaseLostError):
        runner.RunExecutor(run).work()
    assert EvaluationRun.objects.get(pk=run.work.pk).state == State.QUEUED


def test_one_run_at_a_time_and_by_hand_before_experiments(golden_set, settings):
    swept = start(golden_set, purpose="experiment")
    first, second = start(golden_set), start(golden_set)
    assert claim_run(first.pk, "a:1", most=settings.RAGD_EVALUATION_PROCESSES) is not None
    assert claim_run(second.pk, "b:1", most=settings.RAGD_EVALUATION_PROCESSES) is None
    EvaluationRun.objects.filter(pk=first.pk).update(state=State.SUCCEEDED)
    assert lifecycle.send_next() == 1
    states = dict(EvaluationRun.objects.values_list("pk", "state"))
    assert states[second.pk] == states[swept.pk] == State.SUCCEEDED, "one sends the next"
    ended = EvaluationRun.objects.filter(pk__in=[second.pk, swept.pk]).order_by("finished_at")
    assert [each.pk for each in ended] == [second.pk, swept.pk]


def test_a_run_lets_waiting_documents_go_first(golden_set, monkeypatch):
    run = claim_run(start(golden_set).pk, "here:1", most=None)
    assert run is not None
    assert runner.RunExecutor(run).work(limit_s=0.0) is True, "nobody waits"
    other = claim_run(start(golden_set).pk, "here:1", most=None)
    assert other is not None
    IngestJob.objects.create(collection=Collection.objects.get(name="house"), kind="file", doc_id="new")
    assert runner.RunExecutor(other).work(limit_s=0.0) is False
    waiting = EvaluationRun.objects.get(pk=other.work.pk)
    assert (waiting.state, waiting.tries, waiting.done) == (State.QUEUED, 0, 0)


def test_a_question_that_kills_its_worker_is_left_out_in_the_end(golden_set):
    run = start(golden_set)
    EvaluationRun.objects.filter(pk=run.pk).update(attempts=runner.LOSSES_MAX)
    ended = lifecycle.run_now(run)
    assert (ended.state, ended.done, ended.failed, ended.passed) == (State.SUCCEEDED, 4, 1, False)
    assert ended.items.get(position=0).error_type == "worker_lost"


def test_a_failed_question_is_a_hole_and_is_retried_alone(golden_set, monkeypatch):
    search = retrieval_services.retrieve_detailed

    def fail_for_roses(query, plan, store):
        if "roses" in query:
            raise InvalidInput("no roses today")
        return search(query, plan, store)

    with monkeypatch.context() as patch:
        patch.setattr(retrieval_services.search, "__kwdefaults__", {
            **retrieval_services.search.__kwdefaults__, "retrieve": fail_for_roses,
        })  # fmt: skip
        run = lifecycle.run_now(start(golden_set, thresholds={"hit@3": 0.1}))
    assert (run.state, run.done, run.failed, run.passed) == (State.SUCCEEDED, 4, 1, False)
    item = run.items.get(position=1)
    assert (item.outcome, item.error_type, item.modes) == ("error", "invalid_input", ["run_error"])
    assert run.summary["measures"]["hit@3"]["errors"] == 1
    kept = set(run.items.exclude(position=1).values_list("pk", flat=True))
    again = lifecycle.retry_failed(run, None, send=False)
    assert (again.state, again.done, again.failed, again.retries) == (State.QUEUED, 3, 0, 1)
    ended = lifecycle.run_now(again)
    assert (ended.done, ended.failed, ended.passed) == (4, 0, True)
    assert kept < set(ended.items.values_list("pk", flat=True))
    assert ended.items.get(position=1).query_run == query_run_id(run, 1, 1)
    with pytest.raises(ServiceError, match="nothing failed"):
        lifecycle.retry_failed(ended, None)


def test_a_run_stops_when_everything_fails_alike(golden_set, monkeypatch):
    monkeypatch.setattr(runner, "STREAK_MAX", 2)
    monkeypatch.setattr(retrieval_services, "read_store", _raise(InvalidInput("down")))
    run = lifecycle.run_now(start(golden_set))
    assert (run.state, run.error_type, run.done, run.passed) == (State.FAILED, "too_many_failures", 2, False)
    assert "down" in run.error


@pytest.mark.parametrize("work", [lifecycle.run_now, lambda run: lifecycle.process_run(str(run.pk))])
@pytest.mark.parametrize("step", [(runner.RunExecutor, "_store"), (runner, "read_calibration")])
def test_a_database_that_breaks_off_leaves_the_run_waiting(golden_set, monkeypatch, step, work):
    run = start(golden_set)
    monkeypatch.setattr(*step, _raise(OperationalError("gone")))
    with pytest.raises(OperationalError):
        work(run)
    run.refresh_from_db()
    assert (run.state, run.done, run.worker) == (State.QUEUED, 0, "")
    claimed = claim_run(run.pk, "here:1", most=None)
    assert claimed is not None and claimed.work.tries == 1, "no question is to blame"


@pytest.mark.parametrize("error", [DataError("no NUL"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogate")])
def test_a_question_that_cannot_be_stored_is_left_out_in_the_end(golden_set, monkeypatch, error):
    run = start(golden_set)
    save = EvaluationItem.save

    def refuse_roses(self, **values):
        if "roses" in self.question_text and self.error_type != "worker_lost":
            raise error
        save(self, **values)

    monkeypatch.setattr(EvaluationItem, "save", refuse_roses)
    for _ in range(runner.LOSSES_MAX):
        with pytest.raises(type(error)):
            lifecycle.run_now(run)
    ended = lifecycle.run_now(run)
    assert (ended.state, ended.done, ended.failed) == (State.SUCCEEDED, 4, 1)
    assert ended.items.get(position=1).error_type == "worker_lost"


def test_what_is_only_scored_again_is_paid_for_once(golden_set):
    run = lifecycle.run_now(start(golden_set, settings=RunSettings(cut=3)))
    before = run.token_usage
    assert before["total_tokens"] > 0
    run.items.filter(position=1).update(scores={"adherence": {"state": "error", "reason": "llm_timeout"}})
    ended = lifecycle.run_now(lifecycle.retry_failed(run, None, send=False))
    assert (ended.done, ended.failed) == (4, 0)
    assert ended.token_usage == before


def test_a_running_run_is_cancelled_between_questions(golden_set):
    run = start(golden_set)
    ended = lifecycle.run_now(run, on_item=lambda item: item.position == 1 and lifecycle.cancel_run(run, None))
    assert (ended.state, ended.done, ended.passed) == (State.CANCELLED, 2, None)
    assert ended.summary["measures"]["hit@3"]["total"] == 2


def test_another_index_version_ends_the_run(golden_set):
    run = start(golden_set)
    EvaluationRun.objects.filter(pk=run.pk).update(index_version=7)
    ended = lifecycle.run_now(run)
    assert (ended.state, ended.error_type, ended.done) == (State.FAILED, "index_version_moved", 0)
    with pytest.raises(ServiceError, match="cannot go on"):
        lifecycle.resume_run(ended, None)


@pytest.mark.parametrize("field", ["judge_version", "prompt_hash", "answerer", "embed_model", "calibration"])
def test_a_changed_header_ends_the_run(golden_set, field):
    run = start(golden_set)
    EvaluationRun.objects.filter(pk=run.pk).update(**{field: "other"})
    assert lifecycle.run_now(run).error_type == "header_changed"


def test_a_deleted_set_ends_the_run_and_its_items_stay(golden_set):
    run = start(golden_set)
    golden_set.delete()
    ended = lifecycle.run_now(run)
    assert (ended.state, ended.error_type, ended.set_name) == (State.FAILED, "set_deleted", "house questions")


def test_a_later_change_of_the_set_does_not_reach_a_run(golden_set):
    run = start(golden_set)
    golden_set.questions.filter(position=0).update(question="Something else?")
    keep_version(golden_set)
    assert lifecycle.run_now(run).items.get(position=0).question_text == QUESTIONS[0][0]


def test_a_run_that_cannot_be_is_refused_before_it_begins(golden_set):
    cases = [
        ({"plan": RetrievePlan(rerank="nobody")}, InvalidInput, "no reranker"),
        ({"thresholds": {"recall@10": 0.5}}, InvalidInput, "cut is 3"),
        ({"thresholds": {"adherence": 0.5}}, InvalidInput, "a judge"),
        ({"thresholds": {"f1": 0.5}}, InvalidInput, "answers"),
        ({"thresholds": {"erag_map": 0.5}}, InvalidInput, "contributions"),
        ({"thresholds": {"sparkle": 0.5}}, InvalidInput, "no measure"),
        ({"thresholds": {"hit@3": float("nan")}}, InvalidInput, "finite"),
        ({"name": "x" * 201}, InvalidInput, "200"),
        ({"settings": RunSettings(judge="llm")}, ServiceError, "judge"),
        ({"settings": RunSettings(corrective=True)}, ServiceError, "not calibrated"),
        ({"settings": RunSettings(system_prompt="Be brief.")}, ServiceError, "chat model"),
    ]
    for values, error, words in cases:
        with pytest.raises(error, match=words):
            start(golden_set, **values)
        assert not EvaluationRun.objects.exists()


def test_a_run_needs_a_collection_a_question_and_a_lexical_index(golden_set):
    golden_set.questions.all().delete()
    with pytest.raises(ServiceError, match="no question to ask"):
        start(golden_set)
    bare = make_collection("bare", hybrid_enabled=False, empty=True)
    with pytest.raises(LexicalDisabled):
        start(GoldenSet.objects.create(name="bare", collection_name=bare.name))
    with pytest.raises(UnknownCollection):
        start(GoldenSet.objects.create(name="nowhere", collection_name="nowhere"))


def test_old_runs_go_and_what_is_needed_stays(golden_set):
    old = [start(golden_set, name=name) for name in ("gone", "baseline", "newest", "waits")]
    for run in old[:3]:
        lifecycle.run_now(run)
    golden_set.baseline = old[1]
    golden_set.save()
    EvaluationRun.objects.exclude(pk=old[3].pk).update(finished_at=timezone.now() - timedelta(days=9))
    assert lifecycle.delete_old_evaluations(0) == 0
    assert lifecycle.delete_old_evaluations(10) == 0
    assert lifecycle.delete_old_evaluations(8) == 1
    assert set(EvaluationRun.objects.values_list("name", flat=True)) == {"baseline", "newest", "waits"}
    assert QueryRun.objects.count() == 12, "the stored runs have a retention of their own"


def test_the_admin_acts_through_the_services(golden_set, admin_client):
    waiting, done = start(golden_set, name="waiting"), lifecycle.run_now(start(golden_set, name="done"))
    address = "/admin/evaluation_app/evaluationrun/"
    listed = admin_client.get(address).content.decode()
    assert "waiting" in listed and "done" in listed
    assert admin_client.get(f"{address}{done.pk}/change/").status_code == 200
    (item, *_) = admin_client.get("/admin/evaluation_app/evaluationitem/?q=roses").context["cl"].result_list
    assert item.run.get_deferred_fields() >= {"summary", "plan", "settings"}, "one whole run for each row"
    for action in ("cancel", "delete_runs"):
        rows = [str(waiting.pk), str(done.pk)]
        told = admin_client.post(address, {"action": action, "_selected_action": rows}, follow=True).content.decode()
        assert ("already" in told) == (action == "cancel"), "what has ended cannot be cancelled"
    assert not EvaluationRun.objects.exists()
    entries = AuditEvent.objects.order_by("id").values_list("message", flat=True)
    assert [entry.split()[0] for entry in entries][-3:] == ["cancelled", "deleted", "deleted"]


def _raise(error):
    def raising(*args, **kwargs):
        raise error

    return raising


def test_questions_that_wait_for_a_model_are_asked_at_once_and_kept_in_order(
    committed_set, openai_server, settings, monkeypatch
):
    settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_API_KEY = openai_server.base_url, "test-key"
    together = threading.Barrier(runner.CALLS_AT_ONCE)

    def reply(messages):
        with suppress(threading.BrokenBarrierError):
            together.wait(60)  # the first four wait for each other
        asked = next(text for text, _, _ in QUESTIONS if text in messages[-1]["content"])
        return f"It is said [1] of {asked}" if "coffee" not in asked else "NO_ANSWER"

    openai_server.chat_reply = reply
    made = {}
    for calls in (runner.CALLS_AT_ONCE, 1):
        monkeypatch.setattr(runner, "CALLS_AT_ONCE", calls)
        run = lifecycle.run_now(start(committed_set, settings=RunSettings(judge="embedded", cut=3)))
        assert (run.state, run.done, run.failed) == (State.SUCCEEDED, 4, 0)
        kept = run.items.order_by("pk").values_list("position", "answer", "outcome", "scores", "retrieved_ids")
        made[calls] = list(kept), run.summary, run.token_usage
        together.abort()
    assert [row[0] for row in made[1][0]] == [0, 1, 2, 3]
    assert [row[2] for row in made[1][0]] == ["answered", "answered", "abstained", "answered"]
    assert made[1] == made[4]


def test_questions_are_asked_one_by_one_where_an_attempt_was_lost(committed_set, openai_server, settings):
    settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_API_KEY = openai_server.base_url, "test-key"
    under_way, most = set(), []

    def reply(messages):
        under_way.add(threading.get_ident())
        most.append(len(under_way))
        threading.Event().wait(0.2)
        under_way.discard(threading.get_ident())
        return "It is [1]."

    openai_server.chat_reply = reply
    run = start(committed_set, settings=RunSettings(judge="none", cut=3))
    EvaluationRun.objects.filter(pk=run.pk).update(attempts=1)
    lifecycle.run_now(EvaluationRun.objects.get(pk=run.pk))
    assert most == [1, 1, 1, 1]
