"""Bisect names the change that broke a golden question, from what is stored, and takes it back."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from collections_app.collections.deletion import delete_collection
from collections_app.collections.services import update_collection
from collections_app.documents.edits import edit_document
from collections_app.documents.revisions.past_states import PastState
from collections_app.documents.services import change_state, delete_documents, get_document, ingest_text
from collections_app.index.past_indexes import read_whole_state
from collections_app.models import AuditEvent, Collection, Operation, StateChange
from evaluation_app.failures import bisection
from evaluation_app.failures.bisection import (
    Bisection,
    bisect_item,
    find_good,
    forget_bisections,
    plan_event,
    request_bisection,
)
from evaluation_app.models import EvaluationItem, GoldenSet
from evaluation_app.runs import lifecycle
from evaluation_app.scoring.judge_selection import RunSettings
from ragd.types import Filters, RetrievePlan
from retrieval_app.plans.services import save_plan
from tests.evaluation.made_runs import make_set
from tests.refusals import refuses
from tests.retrieval.corpus import bearer, get, make_collection, post

pytestmark = pytest.mark.django_db

QUESTION = "How much water does the main pump move?"
PLAN = RetrievePlan(k=2)


@pytest.fixture
def house(house: Collection) -> Collection:
    update_collection(house, changes={"retention": {"deleted_days": 30}})
    house.refresh_from_db()
    return house


@pytest.fixture
def pumps(house: Collection) -> GoldenSet:
    return make_set("pumps", house.name, {QUESTION: "pump.md"})


def evaluate(golden_set: GoldenSet, plan: RetrievePlan = PLAN, **settings: Any) -> EvaluationItem:
    values = {"answers": False, "judge": "none", "cut": 2} | settings
    run = lifecycle.start_run(golden_set, lifecycle.RunRequest(plan, settings=RunSettings(**values)), send=False)
    return lifecycle.run_now(run).items.get()


def change_others(collection: Collection) -> None:
    """Changes that break nothing."""
    ingest_text(collection, "garden.md", "Tulips are cut in May.", title="Garden")
    edit_document(collection, "pump.md", {"metadata": {"floor": 2}})
    ingest_text(collection, "attic.md", "Old chairs are kept in the attic.")
    change_state(collection, ["boiler.md"], "disabled")


def named(result: Bisection) -> list[tuple[str, str]]:
    return [(event.kind, event.doc_id) for event in result.events]


def test_the_change_is_found_with_who_and_how_it_is_undone(
    house: Collection, pumps: GoldenSet, django_user_model: type[User]
) -> None:
    ada = django_user_model.objects.create_user("ada")
    good = evaluate(pumps)
    change_others(house)
    change_state(house, ["pump.md"], "disabled", actor=ada)
    delete_documents(house, ["garden.md"])
    bad = evaluate(pumps)
    result = bisect_item(good, bad)
    assert (named(result), result.proven, result.events[0].by) == ([("disabled", "pump.md")], True, "ada")
    assert (result.measure, result.before.value, result.after.value, result.after.rank) == ("hit@2", 1.0, 0.0, None)
    assert (result.before.rank, result.undone.rank, result.changes) == (1, 1, 6)
    assert result.looked <= 6
    assert (result.undos[0].action, result.undos[0].body) == ("enable", {"state": "enabled"})


def test_a_revision_is_told_apart_from_harmless_ones_of_the_same_document(house: Collection, pumps: GoldenSet) -> None:
    good = evaluate(pumps)
    edit_document(house, "pump.md", {"tags": ["a"]})
    ingest_text(house, "pump.md", "Nothing of interest is written here.", title="Other")
    edit_document(house, "pump.md", {"tags": ["b"]})
    result = bisect_item(good, evaluate(pumps))
    assert (named(result), result.events[0].number, result.undos[0].action) == (
        [("revision", "pump.md")],
        2,
        "rollback",
    )


def test_a_changed_plan_and_a_changed_question_are_named(house: Collection, pumps: GoldenSet) -> None:
    good = evaluate(pumps)
    change_others(house)
    bad = evaluate(pumps, RetrievePlan(k=2, filters=Filters(tags_any=("outside",))))
    result = bisect_item(good, bad)
    assert (named(result), list(result.events[0].details)) == ([("plan", "")], ["filters"])
    pumps.questions.update(expected_doc_ids=["boiler.md"])
    result = bisect_item(good, evaluate(pumps))
    assert (named(result), result.events[0].details["expected_doc_ids"]) == (
        [("question", "")],
        [["pump.md"], ["boiler.md"]],
    )


def test_other_words_of_a_question_are_a_change_of_it(house: Collection, pumps: GoldenSet) -> None:
    good = evaluate(pumps)
    pumps.questions.update(question="When are roses cut?")
    bad = evaluate(pumps, RetrievePlan(k=1))
    del good.golden["match"]  # as runs before it have it
    result = bisect_item(good, bad)
    assert (named(result), list(result.events[0].details)) == ([("question", "")], ["question"])


def test_the_plan_is_taken_back_alone(house: Collection, pumps: GoldenSet) -> None:
    good = evaluate(pumps)
    narrow = RetrievePlan(k=2, filters=Filters(tags_any=("outside",)))
    save_plan(house, "day", narrow)
    pumps.questions.update(expected_doc_ids=["nowhere.md"])
    bad = evaluate(pumps, narrow)
    for item in (good, bad):
        item.run.plan_name = "day"
    result = bisect_item(good, bad)
    assert (named(result), result.before.rank, result.after.rank) == ([("plan", "")], 1, None)
    assert result.undone.rank is None  # what it expects by then is not found either


def test_a_preset_of_another_collection_is_not_what_changed(house: Collection, pumps: GoldenSet) -> None:
    ada, eve = (User.objects.create_user(name) for name in ("ada", "eve"))
    good = evaluate(pumps)
    narrow = RetrievePlan(k=2, filters=Filters(tags_any=("outside",)))
    save_plan(house, "day", narrow, actor=ada)
    save_plan(house, "holiday", narrow, actor=eve)
    save_plan(make_collection("other", empty=True), "day", narrow, actor=eve)
    bad = evaluate(pumps, narrow)
    for item in (good, bad):
        item.run.plan_name = "day"
    event = plan_event(good.run, bad.run)
    saved = AuditEvent.objects.get(subject_name="day", collection_name="house")
    assert event is not None
    assert (event.by, event.at) == ("ada", saved.at)


def test_every_moment_is_read_once(house: Collection, pumps: GoldenSet, monkeypatch: pytest.MonkeyPatch) -> None:
    good = evaluate(pumps)
    change_others(house)
    change_state(house, ["pump.md"], "disabled")
    bad = evaluate(pumps)
    moments = []

    def read(collection: Collection, at: datetime) -> PastState:
        moments.append(at)
        return read_whole_state(collection, at)

    monkeypatch.setattr(bisection, "read_whole_state", read)
    assert bisect_item(good, bad).proven
    assert len(moments) == len(set(moments)) > 2


def test_an_answer_that_became_wrong_is_searched_for_by_quotations(house: Collection, pumps: GoldenSet) -> None:
    pumps.questions.update(expected_answer="The main pump moves 400 litres of water per minute.")
    good = evaluate(pumps, answers=True)
    change_others(house)
    text = get_document(house, "pump.md").text
    ingest_text(house, "pump.md", text.replace("400 litres", "many buckets"), title="Pump")
    bad = evaluate(pumps, answers=True)
    assert bad.scores["hit@2"]["value"] == 1.0
    result = bisect_item(good, bad)
    assert (result.measure, named(result)) == ("correctness", [("revision", "pump.md")])


def test_changes_of_one_moment_are_tried_alone(house: Collection, pumps: GoldenSet) -> None:
    good = evaluate(pumps)
    change_state(house, ["garden.md", "pump.md", "boiler.md"], "disabled")
    StateChange.objects.filter(kind="disabled").update(made_at=timezone.now())
    result = bisect_item(good, evaluate(pumps))
    assert (named(result), result.proven, result.changes) == ([("disabled", "pump.md")], True, 3)


def test_what_cannot_be_restored_is_suspected_and_not_proven(house: Collection, pumps: GoldenSet) -> None:
    update_collection(house, changes={"retention": {}})
    house.refresh_from_db()
    good = evaluate(pumps)
    change_others(house)
    delete_documents(house, ["pump.md"])
    result = bisect_item(good, evaluate(pumps))
    assert (result.proven, ("deleted", "pump.md") in named(result), result.looked) == (False, True, 0)
    assert {doc_id for _, doc_id in named(result)} == {"pump.md"}
    assert "'pump.md'" in result.note


def test_a_question_that_is_not_worse_is_refused(house: Collection, pumps: GoldenSet) -> None:
    good, bad = evaluate(pumps), evaluate(pumps)
    with refuses("not_worse"):
        bisect_item(good, bad)
    with refuses("not_worse", "good"):
        find_good(bad)


def test_a_run_of_an_earlier_collection_of_the_name_is_not_compared_with(house: Collection, pumps: GoldenSet) -> None:
    evaluate(pumps)
    delete_collection(house)
    collection = make_collection()
    Collection.objects.filter(pk=collection.pk).update(created_at=timezone.now())  # not when the test began
    delete_documents(collection, ["pump.md"])
    bad = evaluate(make_set("pumps", "house", {QUESTION: "pump.md"}))
    assert EvaluationItem.objects.count() == 2
    with refuses("not_worse", "good"):
        find_good(bad)


@pytest.fixture
def broken(house: Collection, pumps: GoldenSet) -> tuple[EvaluationItem, EvaluationItem]:
    good = evaluate(pumps)
    change_others(house)
    change_state(house, ["pump.md"], "disabled")
    return good, evaluate(pumps)


def test_the_api_finds_it_for_who_may_see_both_runs(
    client: Client, broken: tuple[EvaluationItem, EvaluationItem]
) -> None:
    good, bad = broken
    address = f"/v1/evaluation-runs/{bad.run_id}/items/0/bisection"
    key = bearer(collections=["house"])
    status, found = post(client, address, {}, key)
    assert (status, found["state"], found["report"]["proven"]) == (200, "succeeded", True)
    (event,) = found["report"]["events"]
    assert (event["kind"], event["doc_id"], event["undo"]["method"]) == ("disabled", "pump.md", "PATCH")
    assert found["report"]["good_run"] == str(good.run_id)
    operation = f"/v1/operations/{found['id']}"
    assert get(client, operation, key)[1] == found == post(client, address, {}, key)[1]
    make_collection("other", empty=True)
    status, refused = post(client, address, {}, bearer(collections=["other"]))
    assert (status, refused["error"]["type"]) == (404, "unknown_evaluation_run")
    status, refused = get(client, operation, bearer(collections=["other"]))
    assert (status, refused["error"]["type"]) == (404, "unknown_operation")
    status, refused = post(client, f"/v1/evaluation-runs/{good.run_id}/items/0/bisection", {}, key)
    assert (status, refused["error"]["type"]) == (409, "not_worse")


def test_the_page_finds_it_and_takes_it_back(
    client: Client, house: Collection, broken: tuple[EvaluationItem, EvaluationItem], django_user_model: type[User]
) -> None:
    good_item, bad = broken
    client.force_login(django_user_model.objects.create_superuser("ada"))
    first = client.get(f"/evaluation/runs/{good_item.run_id}/items/0/?view=changes")
    assert first.context["runs"] == []
    address = f"/evaluation/runs/{bad.run_id}/items/0/?view=changes"
    opened = client.get(address).context
    assert (opened["stored"], opened["runs"]) == (None, [good_item.run])
    for good in ("no run", "x" * 36, str(uuid4())):
        assert client.post(address, {"do": "start", "good": good}).status_code == 302
    assert not Operation.objects.filter(kind="bisection").exists()
    assert client.post(address, {"do": "start"}).headers["Location"] == address
    shown = client.get(address).context["report"]
    assert [event["doc_id"] for event in shown["events"]] == ["pump.md"]
    client.post(address, {"do": "undo", "event": "0"})
    assert get_document(house, "pump.md").enabled
    assert client.post(address, {"do": "undo", "event": "7"}).status_code == 302


def test_a_large_collection_is_searched_by_the_worker(
    broken: tuple[EvaluationItem, EvaluationItem],
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> None:
    monkeypatch.setattr(bisection, "AT_ONCE_CHUNKS", 1)
    with django_capture_on_commit_callbacks(execute=True):
        operation = request_bisection(*broken)
        assert operation.is_running and request_bisection(*broken) == operation
    operation.refresh_from_db()
    assert (operation.state, operation.report["events"][0]["doc_id"]) == ("succeeded", "pump.md")


def test_a_bisection_goes_with_its_runs(broken: tuple[EvaluationItem, EvaluationItem]) -> None:
    request_bisection(*broken)
    assert forget_bisections() == 0
    broken[0].run.delete()
    assert forget_bisections() == 1
