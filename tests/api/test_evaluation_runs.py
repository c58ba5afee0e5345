"""Evaluation runs over HTTP, as a client speaks it."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from collections_app.http.schemas import PageOf
from evaluation_app.models import EvaluationRun
from evaluation_app.runs.schemas import EvaluationItemOut, EvaluationRunOut
from tests.evaluation.made_runs import make_set
from tests.retrieval.corpus import bearer, get, patch, post
from tests.shapes import check_shape

pytestmark = pytest.mark.django_db

RUNS = "/v1/evaluation-runs"
BODY = {"golden_set": "house questions", "k": 3, "settings": {"answers": False, "cut": 3}, "thresholds": {"hit@3": 0.9}}


@pytest.fixture
def house(house):
    asked = {"What does coffee cost?": "kitchen.md", "When are roses cut?": "garden.md", "Why?": "nowhere.md"}
    return make_set("house questions", house.name, asked)


@pytest.fixture
def ended(house, client, django_capture_on_commit_callbacks):
    """(what the POST answered, the run when the worker is through with it)."""
    with django_capture_on_commit_callbacks(execute=True):
        status, started = post(client, RUNS, BODY | {"name": "nightly"}, bearer())
    assert status == 202, started
    return started, EvaluationRun.objects.get(pk=started["id"])


def test_a_run_is_started_followed_and_read(client, ended):
    started, run = ended
    assert (started["state"], started["total"], started["purpose"], started["name"]) == ("queued", 3, "api", "nightly")
    assert started["settings"]["judge"] == "none"
    headers = bearer(scope="read")
    status, body = get(client, f"{RUNS}/{run.pk}", headers)
    assert (status, body["state"], body["done"], body["passed"]) == (200, "succeeded", 3, False)
    assert [(miss["measure"], miss["threshold"]) for miss in body["misses"]] == [("hit@3", 0.9)]
    assert body["misses"][0]["value"] == pytest.approx(2 / 3)
    check_shape(EvaluationRunOut, body)
    status, page = get(client, f"{RUNS}/{run.pk}/results?limit=2", headers)
    assert (status, [item["position"] for item in page["items"]]) == (200, [0, 1])
    check_shape(PageOf[EvaluationItemOut], page)
    rest = get(client, f"{RUNS}/{run.pk}/results?limit=2&content=false&cursor={page['next_cursor']}", headers)[1]
    assert [(item["position"], item["passed"], item["context"]) for item in rest["items"]] == [(2, False, None)]
    assert rest["next_cursor"] is None
    missed = get(client, f"{RUNS}/{run.pk}/results?mode=retrieval_miss", headers)[1]["items"]
    assert [item["position"] for item in missed] == [2]
    assert get(client, f"{RUNS}/{run.pk}/results?outcome=answered", headers)[1]["items"] == []


def test_a_run_leaves_as_json_lines(client, ended):
    _, run = ended
    answer = client.get(f"{RUNS}/{run.pk}/results?format=jsonl", headers=bearer(scope="read"))
    lines = [json.loads(line) for line in answer.getvalue().decode().splitlines()]
    assert answer["Content-Type"] == "application/jsonl"
    assert [list(line) for line in lines] == [["run"], ["item"], ["item"], ["item"]]
    assert lines[0]["run"]["set_digest"] == run.set_digest
    assert lines[1]["item"]["scores"]["hit@3"] == {"state": "scored", "value": 1.0}


@pytest.mark.usefixtures("ended")
def test_runs_are_listed_by_what_they_are(client):
    headers = bearer(scope="read")
    page = get(client, RUNS, headers)[1]
    check_shape(PageOf[EvaluationRunOut], page)
    for query, count in (("state=succeeded", 1), ("state=failed", 0), ("golden_set=house%20questions", 1),
                         ("collection=garage", 0), ("golden_set=%00", 0)):  # fmt: skip
        assert len(get(client, f"{RUNS}?{query}", headers)[1]["items"]) == count, query
    assert get(client, f"{RUNS}?state=happy", headers)[0] == 422


def test_a_waiting_run_is_cancelled_resumed_and_deleted(client, house, django_capture_on_commit_callbacks):
    headers = bearer()
    run_id = post(client, RUNS, BODY, headers)[1]["id"]
    assert client.delete(f"{RUNS}/{run_id}", headers=headers).json()["error"]["type"] == "under_way"
    assert patch(client, f"{RUNS}/{run_id}", {"state": "cancelled"}, headers)[1]["state"] == "cancelled"
    assert patch(client, f"{RUNS}/{run_id}", {"state": "cancelled"}, headers)[0] == 409
    with django_capture_on_commit_callbacks(execute=True):
        assert patch(client, f"{RUNS}/{run_id}", {"state": "queued"}, headers)[0] == 202
    assert get(client, f"{RUNS}/{run_id}", headers)[1]["state"] == "succeeded"
    failed = {"state": "queued", "only_failed": True}
    assert patch(client, f"{RUNS}/{run_id}", failed, headers)[1]["error"]["type"] == "nothing_failed"
    assert client.delete(f"{RUNS}/{run_id}", headers=headers).json() == {"deleted": 1}
    assert get(client, f"{RUNS}/{run_id}", headers)[0] == 404


def test_a_wrong_request_is_told_and_starts_nothing(client, house):
    cases = [
        ({"golden_set": "nobody's"}, 404, "golden_set"),
        ({"plan": "unsaved"}, 404, "plan"),
        ({"k": 0}, 422, "k"),
        ({"settings": {"cut": 0}}, 422, "settings.cut"),
        ({"settings": {"judge": "oracle"}}, 422, "settings.judge"),
        ({"settings": {"colour": "red"}}, 422, "settings.colour"),
        ({"settings": {"answers": False, "judge": "embedded"}}, 422, "judge"),
        ({"settings": {"downstream": "taste"}}, 422, "downstream"),
        ({"thresholds": {"hit@4": 1}}, 422, "thresholds"),
        ({"base_run": str(uuid4())}, 404, None),
    ]
    for change, status, field in cases:
        answered, body = post(client, RUNS, BODY | change, bearer())
        assert (answered, body["error"].get("field")) == (status, field), body
        assert not EvaluationRun.objects.exists()
