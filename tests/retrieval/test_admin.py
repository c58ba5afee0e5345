from __future__ import annotations

import json

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from collections_app.models import AuditEvent
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun, SavedPlan
from retrieval_app.runs import plans
from tests.retrieval.corpus import make_collection

pytestmark = pytest.mark.django_db
LIST = "/admin/retrieval_app/queryrun/"


@pytest.fixture
def staff(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("root"))
    return client


def make_run(query: str, **values: object) -> QueryRun:
    return QueryRun.objects.create(
        kind="ask",
        collection_name="house",
        query=query,
        plan={"mode": "hybrid"},
        door="api",
        timings_ms={"total": 3.0},
        **values,
    )


def test_the_list_is_searched_and_filtered(staff: Client) -> None:
    make_run("where is the pump")
    make_run("who has the key", status="error", error="it broke")
    assert "where is the pump" in staff.get(LIST, {"q": "pump"}).content.decode()
    shown = staff.get(LIST, {"status__exact": "error"}).content.decode()
    assert ("who has the key" in shown, "where is the pump" in shown) == (True, False)


def test_a_run_is_shown_and_never_edited(staff: Client) -> None:
    run = make_run(
        "where", answer="There [1].", results=[{"doc_id": "a", "content": "<b>x</b>"}], retrieved_ids=["a#0"]
    )
    page = staff.get(f"{LIST}{run.pk}/change/").content.decode()
    assert ("There [1]." in page, "a#0" in page, 'name="query"' in page) == (True, True, False)
    assert staff.get(f"{LIST}add/").status_code == 403
    staff.post(f"{LIST}{run.pk}/change/", {"query": "changed"})
    assert QueryRun.objects.get().query == "where"


def test_the_list_asks_the_same_number_of_questions_for_one_and_three_runs(staff: Client) -> None:
    staff.get(LIST)  # the first request of a log-in notes its session
    counts = []
    for more in (1, 2):
        for number in range(more):
            make_run(f"question {number}", user=User.objects.create_user(f"user{more}{number}"))
        with CaptureQueriesContext(connection) as queries:
            staff.get(LIST)
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_runs_are_exported_as_json_lines(staff: Client) -> None:
    runs = [make_run("one", results=[{"doc_id": "a"}]), make_run("two")]
    data = {"action": "export_json_lines", "_selected_action": [str(run.pk) for run in runs]}
    answer = staff.post(LIST, data)
    lines = [json.loads(line) for line in b"".join(answer).decode().splitlines()]  # type: ignore[call-overload]
    assert sorted(line["query"] for line in lines) == ["one", "two"]
    assert answer["Content-Disposition"] == 'attachment; filename="runs.jsonl"'


def test_saved_plans_are_shown_marked_and_deleted_through_the_services(staff: Client) -> None:
    collection = make_collection(empty=True)
    one, two = (plans.save_plan(collection, name, RetrievePlan(k=k)) for name, k in (("one", 1), ("two", 2)))
    address = "/admin/retrieval_app/savedplan/"
    assert all(name in staff.get(address, {"q": "house"}).content.decode() for name in ("one", "two"))
    assert one.retrieve_plan.hash in staff.get(f"{address}{one.pk}/change/").content.decode()
    staff.post(address, {"action": "make_default", "_selected_action": [str(one.pk)]})
    assert plans.default_plan(collection) == one
    staff.post(address, {"action": "unmark_default", "_selected_action": [str(one.pk)]})
    assert plans.default_plan(collection) is None
    staff.post(address, {"action": "delete_plans", "_selected_action": [str(one.pk), str(two.pk)]})
    assert list(SavedPlan.objects.all()) == []
    said = AuditEvent.objects.filter(subject_kind="savedplan", actor_name="root")
    assert said.filter(message="deleted plan two of house").exists()


@pytest.mark.parametrize("model", [model._meta.label_lower for model in admin.site._registry])
def test_every_list_is_shown_and_searched(staff: Client, model: str) -> None:
    address = f"/admin/{model.replace('.', '/')}/"
    assert staff.get(address).status_code == 200
    assert staff.get(address, {"q": "1"}).status_code in (200, 302)
