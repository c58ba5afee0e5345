from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from collections_app.models import Collection
from retrieval_app.models import QueryRun
from retrieval_app.search.schemas import SearchResponse
from tests.retrieval.corpus import bearer, get, make_collection, post
from tests.shapes import check_shape

pytestmark = pytest.mark.django_db

SEARCH = "/v1/collections/house/search"
PART_A = {"doc_id", "chunk_index", "content", "score", "metadata", "tags"}
ADDED = {
    "attributes", "place", "rank", "ranks", "start", "end", "page", "score_kind", "unit_score", "title", "context",
    "revision",
}  # fmt: skip


def doc_ids(body: dict[str, Any]) -> list[str]:
    return [result["doc_id"] for result in body["results"]]


def test_the_best_chunk_comes_first_with_every_field(house: Collection, client: Client) -> None:
    status, body = post(client, SEARCH, {"query": "how is the pump cleaned"}, bearer(scope="read"))
    assert status == 200
    first = body["results"][0]
    assert set(first) == PART_A | ADDED
    assert (first["doc_id"], first["chunk_index"], first["rank"], first["tags"]) == (
        "pump.md",
        0,
        1,
        ["machine", "water"],
    )
    assert first["metadata"]["floor"] == 1
    assert set(first["ranks"]) == {"vector", "lexical", "fused"}
    assert first["ranks"]["vector"]["rank"] == first["ranks"]["lexical"]["rank"] == 1
    assert first["score"] == pytest.approx(2 / 61)
    assert [result["rank"] for result in body["results"]] == [1, 2, 3, 4, 5]
    check_shape(SearchResponse, body)


@pytest.mark.parametrize("mode", ["vector", "lexical", "hybrid"])
def test_modes(house: Collection, client: Client, mode: str) -> None:
    _, body = post(client, SEARCH, {"query": "coffee costs", "mode": mode, "k": 2}, bearer())
    assert (body["mode"], doc_ids(body)[0]) == (mode, "kitchen.md")
    lists = {"vector": {"vector"}, "lexical": {"lexical"}, "hybrid": {"vector", "lexical", "fused"}}[mode]
    assert set(body["results"][0]["ranks"]) == lists


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_hybrid_and_lexical_without_lexical_index_are_400_and_kept(client: Client, mode: str) -> None:
    make_collection("plain", hybrid_enabled=False)
    status, body = post(client, "/v1/collections/plain/search", {"query": "coffee", "mode": mode}, bearer())
    assert (status, body["error"]["type"], body["error"]["field"]) == (400, "lexical_disabled", "mode")
    assert body["detail"] == body["error"]["message"]
    run = QueryRun.objects.get()
    assert (run.status, run.error_type, run.error) == ("error", "lexical_disabled", body["detail"])


ABOVE_GROUND = {"field": "metadata.floor", "op": "gt", "value": 0}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"tags_any": ["food", "outside"]}, {"kitchen.md", "garden.md"}),
        ({"tags_all": ["machine", "water"]}, {"pump.md", "boiler.md"}),
        ({"metadata": {"floor": 1}}, {"pump.md", "kitchen.md"}),
        ({"metadata": {"floor": 1}, "tags_any": ["water"]}, {"pump.md"}),
        ({"filter": ABOVE_GROUND, "tags_any": ["water"]}, {"pump.md"}),
        ({"filter": {"and": [ABOVE_GROUND, {"not": {"field": "tags", "op": "eq", "value": "water"}}]}}, {"kitchen.md"}),
        (
            {"tags_any": [], "tags_all": None, "metadata": {}},
            {"pump.md", "garden.md", "kitchen.md", "archive.md", "boiler.md"},
        ),
    ],
)
@pytest.mark.parametrize("mode", ["vector", "hybrid"])
def test_filters(house: Collection, client: Client, filters: dict[str, Any], expected: set[str], mode: str) -> None:
    _, body = post(client, SEARCH, {"query": "water", "mode": mode} | filters, bearer())
    assert set(doc_ids(body)) == expected


def test_a_filter_that_matches_nothing_gives_nothing(house: Collection, client: Client) -> None:
    cases: list[dict[str, Any]] = [
        {"tags_all": ["food", "outside"]},
        {"metadata": {"floor": "1"}},
        {"metadata": {"nokey": 1}},
    ]
    for filters in cases:
        status, body = post(client, SEARCH, {"query": "water"} | filters, bearer())
        assert (status, body["results"], body["short_result"]["got"], body["short_result"]["reason"]) == (
            200,
            [],
            0,
            "filters",
        )


def test_a_short_result_says_why(house: Collection, client: Client) -> None:
    _, body = post(client, SEARCH, {"query": "water", "mode": "vector"}, bearer())
    assert (body["short_result"]["asked"], body["short_result"]["got"]) == (12, 5)
    _, body = post(client, SEARCH, {"query": "water", "mode": "vector", "k": 5}, bearer())
    assert body["short_result"] is None


def test_bad_input_names_its_field(house: Collection, client: Client) -> None:
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"query": ""}, 422, "query"),
        ({"query": "water", "filter": {"field": "colour", "op": "eq", "value": 1}}, 422, "filter"),
        ({"query": "water", "filter": {"field": "page", "op": "eq", "value": "1"}}, 422, "filter"),
        ({"query": "water", "filter": [ABOVE_GROUND]}, 422, "filter"),
        ({"query": " \n\u0000 "}, 422, "query"),
        ({"query": "x" * 20_001}, 422, "query"),
        ({}, 422, "query"),
        ({"query": 7}, 422, "query"),
        ({"query": "x", "k": 0}, 422, "k"),
        ({"query": "x", "k": 1001}, 422, "k"),
        ({"query": "x", "k": "many"}, 422, "k"),
        ({"query": "x", "mode": "magic"}, 422, "mode"),
        ({"query": "x", "exact": "perhaps"}, 422, "exact"),
        ({"query": "x", "rrf_k": 0}, 422, "rrf_k"),
        ({"query": "x", "candidate_pool": -1}, 422, "candidate_pool"),
        ({"query": "x", "colour": "red"}, 422, "colour"),
        ({"query": "x", "tags_any": "food"}, 422, "tags_any"),
        ({"query": "x", "tags_any": [""]}, 422, "tags_any"),
        ({"query": "x", "tags_all": ["\u0000"]}, 422, "tags_all"),
        ({"query": "x", "metadata": [1]}, 422, "metadata"),
    ]
    for body, status, field in cases:
        got, answer = post(client, SEARCH, body, bearer())
        assert (got, answer["error"]["field"], answer["detail"]) == (status, field, answer["error"]["message"])


def test_the_run_of_a_search_is_kept(house: Collection, client: Client) -> None:
    headers = bearer(scope="read")
    _, body = post(client, SEARCH, {"query": " how is the pump cleaned ", "k": 3, "tags_any": ["water"]}, headers)
    _, run = get(client, f"/v1/runs/{body['run_id']}", headers)
    assert run["query"] == "how is the pump cleaned"
    assert run["retrieved_ids"] == [f"{item['doc_id']}#{item['chunk_index']}" for item in body["results"]]
    assert (run["results"], run["kind"], run["channel"], run["api_key"]) == (body["results"], "search", "api", "tests")
    assert run["plan"]["filters"] == {"tags_any": ["water"], "tags_all": [], "metadata": {}}
    assert (run["answer"], run["citations"], run["trace_scores"]) == (None, [], None)
    assert set(run["timings_ms"]) >= {"total", "vector", "lexical", "embed_query"}
    assert run["lists"]["vector"][0][0] == "pump.md#0"


def test_the_answer_is_one_canonical_json(house: Collection, client: Client) -> None:
    answer = client.post(SEARCH, {"query": "pump"}, content_type="application/json", headers=bearer())
    body = json.loads(answer.content)
    assert answer.content.decode() == json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
