from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from collections_app.collections.deletion import delete_collection
from collections_app.http.schemas import PageOf
from collections_app.models import AuditEvent, Collection
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun, SavedPlan
from retrieval_app.plans import services
from retrieval_app.search.schemas import SavedPlanOut, SearchResponse
from tests.retrieval.corpus import bearer, get, make_collection, patch, post
from tests.shapes import check_shape

pytestmark = pytest.mark.django_db

PLANS = "/v1/collections/house/plans"
SEARCH = "/v1/collections/house/search"
LEXICAL = {"mode": "lexical", "k": 2, "tags_any": ["water"], "description": "words only"}


def put(client: Client, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
    answer = client.put(path, body, content_type="application/json", headers=headers)
    return answer.status_code, answer.json()


def test_a_plan_is_saved_read_listed_and_deleted(house: Collection, client: Client) -> None:
    headers = bearer()
    status, saved = put(client, f"{PLANS}/words", LEXICAL, headers)
    assert (status, saved["name"], saved["description"], saved["created_by"]) == (
        200,
        "words",
        "words only",
        "key tests",
    )
    check_shape(SavedPlanOut, saved)
    expected = RetrievePlan(mode="lexical", k=2).as_dict()
    expected["filters"]["tags_any"] = ["water"]
    assert (saved["plan"], saved["plan_hash"]) == (expected, RetrievePlan.from_dict(expected).hash)
    assert get(client, f"{PLANS}/words", headers) == (200, saved)
    put(client, f"{PLANS}/all", {}, headers)
    body = get(client, PLANS, headers)[1]
    check_shape(PageOf[SavedPlanOut], body)
    assert [item["name"] for item in body["items"]] == ["all", "words"]
    page = get(client, f"{PLANS}?limit=1", headers)[1]
    assert get(client, f"{PLANS}?limit=1&cursor={page['next_cursor']}", headers)[1]["items"] == [saved]
    answer = client.delete(f"{PLANS}/words", headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"deleted": 1})
    status, body = get(client, f"{PLANS}/words", headers)
    assert (status, body["error"]["type"], body["error"]["field"]) == (404, "unknown_plan", "plan")
    assert "it has all" in body["detail"]
    said = [entry.message for entry in AuditEvent.objects.filter(subject_kind="savedplan").order_by("pk")]
    assert said == [f"{did} of house" for did in ("saved plan words", "saved plan all", "deleted plan words")]


def test_a_second_put_replaces_the_whole_plan(house: Collection, client: Client) -> None:
    headers = bearer()
    first = put(client, f"{PLANS}/one", LEXICAL | {"is_default": True}, headers)[1]
    second = put(client, f"{PLANS}/one", {"k": 3}, headers)[1]
    assert (second["plan"], second["description"]) == (RetrievePlan(k=3).as_dict(), "")
    assert (second["is_default"], second["created_at"], SavedPlan.objects.count()) == (True, first["created_at"], 1)


def test_a_saved_plan_is_used_by_name_and_single_fields_override_it(house: Collection, client: Client) -> None:
    headers = bearer()
    put(client, f"{PLANS}/words", LEXICAL, headers)
    body = post(client, SEARCH, {"query": "water of the boiler", "plan": "words"}, headers)[1]
    check_shape(SearchResponse, body)
    assert (body["mode"], body["plan_name"], len(body["results"])) == ("lexical", "words", 2)
    run = QueryRun.objects.get(pk=body["run_id"])
    assert (run.plan_name, run.plan_hash) == ("words", SavedPlan.objects.get().retrieve_plan.hash)
    stored = get(client, f"/v1/runs/{run.pk}", headers)[1]
    assert (stored["plan_name"], stored["plan_hash"]) == ("words", body["plan_hash"])
    asked = {"query": "water", "plan": "words", "k": 5, "mode": "vector", "tags_any": []}
    body = post(client, SEARCH, asked, headers)[1]
    assert (body["mode"], len(body["results"])) == ("vector", 5)
    plan = QueryRun.objects.get(pk=body["run_id"]).plan
    assert plan == RetrievePlan(mode="vector", k=5).as_dict()


def test_a_default_plan_holds_where_no_plan_is_named(house: Collection, client: Client) -> None:
    headers = bearer()
    put(client, f"{PLANS}/words", LEXICAL | {"is_default": True}, headers)
    named = {
        name: post(client, SEARCH, {"query": "water"} | body, headers)[1]
        for name, body in (("nothing", {}), ("k", {"k": 1}), ("server", {"plan": "server"}))
    }
    assert [(body["plan_name"], body["mode"], len(body["results"])) for body in named.values()] == [
        ("words", "lexical", 2),
        ("words", "lexical", 1),
        (None, "hybrid", 5),
    ]
    asked = post(client, "/v1/collections/house/ask", {"query": "water"}, headers)[1]
    assert (asked["plan_name"], asked["mode"]) == ("words", "lexical")


def test_at_most_one_plan_is_the_default(house: Collection, client: Client) -> None:
    headers = bearer()
    for name in ("one", "two"):
        put(client, f"{PLANS}/{name}", {"is_default": True}, headers)
    marks = {item["name"]: item["is_default"] for item in get(client, PLANS, headers)[1]["items"]}
    assert marks == {"one": False, "two": True}
    assert patch(client, f"{PLANS}/two", {"is_default": False}, headers)[1]["is_default"] is False
    assert services.choose_plan(house, None, {}).name == ""
    patch(client, f"{PLANS}/one", {"is_default": True}, headers)
    other = make_collection("other", hybrid_enabled=False, empty=True)
    for collections in ([house, other], [other, house]):
        begun = services.default_plans(collections)
        assert [*begun] == [collection.name for collection in collections]
        assert begun == {each.name: services.choose_plan(each, None, {}) for each in collections}
        assert (begun["house"].name, begun["other"].plan.mode) == ("one", "vector")
    with pytest.raises(IntegrityError), transaction.atomic():
        SavedPlan.objects.all().update(is_default=True)


def test_a_plan_is_renamed_unless_the_name_is_taken(house: Collection, client: Client) -> None:
    headers = bearer()
    put(client, f"{PLANS}/one", LEXICAL, headers)
    put(client, f"{PLANS}/two", {}, headers)
    status, body = patch(client, f"{PLANS}/one", {"name": "two"}, headers)
    assert (status, body["error"]["type"], body["error"]["field"]) == (409, "name_taken", "name")
    status, body = patch(client, f"{PLANS}/one", {"name": "Drei ☂", "description": "new"}, headers)
    assert (status, body["name"], body["description"]) == (200, "Drei ☂", "new")
    assert get(client, f"{PLANS}/one", headers)[0] == 404
    assert get(client, f"{PLANS}/Drei ☂", headers)[1]["plan"]["mode"] == "lexical"


def test_a_name_that_no_address_can_hold_is_refused(house: Collection, client: Client) -> None:
    cases: list[str] = ["server", "Server", "a%3Fb", "%20x", "x" * 129, "%00"]
    for name in cases:
        status, body = put(client, f"{PLANS}/{name}", {}, bearer())
        assert (status, body["error"]["field"]) == (422, "name")


def test_wrong_fields_are_named_in_search_and_in_saved_plans(house: Collection, client: Client) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"weights": {"vector": -1}}, "weights"),
        ({"weights": {"vector": 0, "lexical": 0}}, "weights"),
        ({"weights": {"bm25": 1}}, "weights"),
        ({"weights": {"vector": "much"}}, "weights.vector"),
        ({"ef_search": 0}, "ef_search"),
        ({"ef_search": 1001}, "ef_search"),
        ({"rerank": ""}, "rerank"),
        ({"compress": "zip"}, "compress"),
        ({"token_budget": 0, "compress": "window"}, "token_budget"),
        ({"token_budget": 10}, "token_budget"),
        ({"k": 1001}, "k"),
        ({"rrf_k": 0}, "rrf_k"),
        ({"explain": "perhaps"}, "explain"),
    ]
    for body, field in cases:
        headers = bearer()
        status, answer = post(client, SEARCH, {"query": "x"} | body, headers)
        assert (status, answer["error"]["field"]) == (422, field)
        if field != "explain":
            status, answer = put(client, f"{PLANS}/p", body, headers)
            assert (status, answer["error"]["field"], SavedPlan.objects.count()) == (422, field, 0)


def test_an_unknown_plan_and_an_unknown_reranker_are_named(house: Collection, client: Client) -> None:
    headers = bearer()
    status, body = post(client, SEARCH, {"query": "x", "plan": "nope"}, headers)
    assert (status, body["error"]["type"], body["error"]["field"]) == (404, "unknown_plan", "plan")
    status, body = post(client, SEARCH, {"query": "x", "rerank": "nope"}, headers)
    assert (status, body["error"]["field"]) == (422, "rerank")
    status, body = put(client, f"{PLANS}/p", {"rerank": "nope"}, headers)
    assert (status, body["error"]["field"], "builtin" in body["detail"]) == (422, "rerank", True)


def test_plans_of_two_collections_do_not_meet_and_go_with_their_collection(house: Collection, client: Client) -> None:
    attic = make_collection("attic", empty=True)
    headers = bearer()
    put(client, f"{PLANS}/same", {"k": 3}, headers)
    put(client, "/v1/collections/attic/plans/same", {"k": 4, "is_default": True}, headers)
    assert get(client, f"{PLANS}/same", headers)[1]["plan"]["k"] == 3
    delete_collection(attic)
    assert [saved.collection.name for saved in SavedPlan.objects.all()] == ["house"]


def test_rerank_and_compress_of_a_saved_plan_can_be_switched_off(house: Collection) -> None:
    full = RetrievePlan(rerank="builtin", compress="window", token_budget=9, weights={"vector": 2.0})
    services.save_plan(house, "full", full)
    assert services.build_plan(house, plan="full") == full
    assert services.build_plan(house, plan="full", rerank="none", compress="none") == RetrievePlan(
        weights={"vector": 2.0}
    )
    assert services.build_plan(house, plan="full", compress="sentences").token_budget == 9
    assert services.build_plan(house, plan="full", token_budget=7).compress == "window"


def test_a_list_without_a_stated_weight_keeps_that_of_the_saved_plan(house: Collection) -> None:
    services.save_plan(house, "heavy", RetrievePlan(weights={"vector": 3, "lexical": 2}))
    over = services.build_plan(house, plan="heavy", weights={"vector": 1})
    assert over.weights == {"vector": 1.0, "lexical": 2.0}


def test_an_answer_quotes_only_what_was_kept(house: Collection, client: Client) -> None:
    asked = {"query": "What must be done before the pump is cleaned?", "compress": "sentences", "token_budget": 20}
    body = post(client, "/v1/collections/house/ask", asked, bearer())[1]
    spans = {(item["doc_id"], span["start"], span["end"]) for item in body["results"] for span in item["spans"]}
    assert body["compression"]["tokens_after"] <= 20
    cited = [(item["doc_id"], item["start"], item["end"]) for item in body["citations"]]
    assert cited and all(
        any(doc == at and low <= start and end <= high for at, low, high in spans) for doc, start, end in cited
    )


def test_explain_answers_with_the_explanation(house: Collection, client: Client) -> None:
    headers = bearer()
    asked = {"query": "how is the pump cleaned", "k": 3}
    body = post(client, SEARCH, asked | {"explain": True}, headers)[1]
    final = next(column for column in body["explanation"]["columns"] if column["name"] == "final")
    assert [row["key"] for row in final["rows"]] == [
        f"{item['doc_id']}#{item['chunk_index']}" for item in body["results"]
    ]
    assert "explanation" not in post(client, SEARCH, asked, headers)[1]
    assert QueryRun.objects.count() == 2
