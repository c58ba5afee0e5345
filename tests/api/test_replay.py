from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from collections_app.collections.deletion import delete_collection
from collections_app.documents.services import change_state, delete_documents, ingest_text
from collections_app.models import Collection
from ragd.types import canonical_json
from retrieval_app.models import QueryRun
from retrieval_app.search.schemas import Replay
from tests.retrieval.corpus import bearer, make_collection, post
from tests.shapes import check_shape

pytestmark = pytest.mark.django_db

QUERY = {"query": "water of the boiler", "k": 3, "mode": "hybrid", "weights": {"vector": 0.5}, "compress": "window"}


def run_once(client: Client, headers: dict[str, str], **more: Any) -> str:
    return str(post(client, "/v1/collections/house/search", QUERY | more, headers)[1]["run_id"])


def replay(client: Client, run_id: str, headers: dict[str, str]) -> Any:
    answer = client.post(f"/v1/runs/{run_id}/replay", headers=headers)
    assert answer.status_code == 200, answer.content
    check_shape(Replay, answer.json())
    return answer.json()


def test_nothing_changed_gives_the_same_bytes(house: Collection, client: Client) -> None:
    headers = bearer(scope="read")
    run_id = run_once(client, headers)
    body = replay(client, run_id, headers)
    assert canonical_json(body["before"]) == canonical_json(body["now"])
    assert (body["same"], body["store_changed"], body["index_version_changed"]) == (True, False, False)
    assert (body["differences"], body["notes"], len(body["now"])) == ([], [], 3)
    first, again = QueryRun.objects.get(pk=run_id), QueryRun.objects.get(pk=body["replay_run_id"])
    assert (again.plan_hash, again.query, again.kind) == (first.plan_hash, first.query, "search")
    assert (again.replay_of, again.channel, first.replay_of) == (first.pk, "api", None)


def change_text(collection: Collection) -> None:
    ingest_text(collection, "boiler.md", "The boiler of the water is gone.")


def delete_one(collection: Collection) -> None:
    delete_documents(collection, ["boiler.md"])


def switch_off(collection: Collection) -> None:
    change_state(collection, ["boiler.md"], "disabled")


@pytest.mark.parametrize("change", [change_text, delete_one, switch_off])
def test_a_changed_store_is_said_with_what_differs(house: Collection, client: Client, change: Any) -> None:
    headers = bearer()
    run_id = run_once(client, headers)
    change(house)
    body = replay(client, run_id, headers)
    assert (body["same"], body["store_changed"], body["index_version_changed"]) == (False, True, False)
    before = {item["doc_id"]: item["rank"] for item in body["before"]}
    now = {item["doc_id"]: item["rank"] for item in body["now"]}
    moved = [(item["doc_id"], item["before"], item["now"]) for item in body["differences"]]
    assert all((before.get(doc_id), now.get(doc_id)) == (old, new) for doc_id, old, new in moved)
    assert {doc_id for doc_id, _, _ in moved} >= {name for name in {*before, *now} if before.get(name) != now.get(name)}


def test_a_change_and_its_undoing_leave_the_results_and_are_still_said(house: Collection, client: Client) -> None:
    headers = bearer()
    run_id = run_once(client, headers)
    change_state(house, ["garden.md"], "disabled")
    change_state(house, ["garden.md"], "enabled")
    body = replay(client, run_id, headers)
    assert (body["same"], body["store_changed"], body["differences"]) == (True, True, [])


def test_the_search_of_an_answer_is_replayed(house: Collection, client: Client) -> None:
    headers = bearer()
    asked = post(client, "/v1/collections/house/ask", {"query": "What does coffee cost?"}, headers)[1]
    body = replay(client, asked["run_id"], headers)
    assert (body["same"], body["now"]) == (True, asked["results"])


def test_a_failed_run_can_be_replayed_once_it_works(house: Collection, client: Client) -> None:
    Collection.objects.update(hybrid_enabled=False)
    headers = bearer()
    assert post(client, "/v1/collections/house/search", QUERY, headers)[0] == 400
    run = QueryRun.objects.get()
    answer = client.post(f"/v1/runs/{run.pk}/replay", headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "lexical_disabled")
    QueryRun.objects.filter(pk=run.pk).update(plan=run.plan | {"mode": "vector"})
    body = replay(client, str(run.pk), headers)
    assert (body["same"], len(body["now"]), len(body["differences"])) == (False, 3, 3)
    assert "the run failed" in body["notes"][0]
    delete_collection(house)
    answer = client.post(f"/v1/runs/{run.pk}/replay", headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "unknown_collection")


def test_another_collection_of_the_same_name_and_another_version_are_noted(house: Collection, client: Client) -> None:
    delete_collection(house)
    make_collection()
    headers = bearer()
    run_id = run_once(client, headers)
    QueryRun.objects.filter(pk=run_id).update(collection_id=0, spec_version="0.0.1", store_state={})
    body = replay(client, run_id, headers)
    assert (body["same"], body["store_changed"]) == (True, None)
    assert ["another collection" in body["notes"][0], "0.0.1" in body["notes"][1]] == [True, True]


def test_a_plan_of_another_version_is_refused_with_its_field(house: Collection, client: Client) -> None:
    headers = bearer()
    run_id = run_once(client, headers)
    QueryRun.objects.filter(pk=run_id).update(plan={"mode": "hybrid", "colour": "red"})
    answer = client.post(f"/v1/runs/{run_id}/replay", headers=headers)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "plan")
