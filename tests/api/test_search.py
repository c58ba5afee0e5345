"""Searches and answers over HTTP, and what is refused of them.
as_of over every channel: the results of then, what the run and the answer say of it, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from collections_app.documents.services import change_state, delete_documents, ingest_text
from collections_app.models import Collection, PastIndex
from evaluation_app.models import GoldenQuestion, GoldenSet
from evaluation_app.runs import lifecycle
from evaluation_app.runs.lifecycle import RunRequest
from evaluation_app.scoring.judge_selection import RunSettings
from ragd.errors import InvalidInput
from ragd.types import RetrievePlan
from retrieval_app.answers.protocol import declines
from retrieval_app.models import QueryRun
from retrieval_app.search.schemas import AskResponse, SearchResponse
from tests.commands.conftest import run_json
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


ASK = "/v1/collections/house/ask"
QUESTION = {"query": "how is the pump cleaned", "k": 3}


@pytest.fixture
def changed(house: Collection, client: Client) -> dict[str, Any]:
    """What was found before the collection changed, and when."""
    key = bearer(scope="read")
    _, found = post(client, SEARCH, QUESTION, key)
    _, answered = post(client, ASK, QUESTION, key)
    at = timezone.now().isoformat()
    change_state(house, ["pump.md"], "disabled")
    ingest_text(house, "new.md", "The pump is cleaned how the pump is cleaned.")
    return {"collection": house, "key": key, "at": at, "found": found, "answered": answered}


def test_a_search_finds_what_it_found_then(client: Client, changed: dict[str, Any]) -> None:
    status, now = post(client, SEARCH, QUESTION, changed["key"])
    assert (status, now["as_of"], now["as_of_notes"]) == (200, None, [])
    assert now["results"] != changed["found"]["results"]
    status, then = post(client, SEARCH, QUESTION | {"as_of": changed["at"]}, changed["key"])
    assert (status, then["as_of"], then["index_version"], then["as_of_notes"]) == (200, changed["at"], 1, [])
    assert json.dumps(then["results"]) == json.dumps(changed["found"]["results"])


def test_an_answer_is_that_of_then(client: Client, changed: dict[str, Any]) -> None:
    status, then = post(client, ASK, QUESTION | {"as_of": changed["at"]}, changed["key"])
    same = ("answer", "status", "citations", "sources", "results")
    assert (status, then["as_of"]) == (200, changed["at"])
    assert {name: then[name] for name in same} == {name: changed["answered"][name] for name in same}


def test_the_run_says_as_of_when_and_is_repeated_so(client: Client, changed: dict[str, Any]) -> None:
    _, then = post(client, SEARCH, QUESTION | {"as_of": changed["at"]}, changed["key"])
    run = QueryRun.objects.get(pk=then["run_id"])
    assert (run.as_of, run.index_version, run.store_state["index_version"]) == (changed["at"], 1, 1)
    _, stored = get(client, f"/v1/runs/{run.pk}", changed["key"])
    assert (stored["as_of"], stored["as_of_notes"]) == (changed["at"], [])
    status, replayed = post(client, f"/v1/runs/{run.pk}/replay", {}, changed["key"])
    assert (status, replayed["same"], replayed["differences"]) == (200, True, [])


def test_the_explanation_is_of_then(client: Client, changed: dict[str, Any]) -> None:
    body = QUESTION | {"as_of": changed["at"], "explain": True}
    _, then = post(client, SEARCH, body, changed["key"])
    final = then["explanation"]["columns"][-1]["rows"]
    assert [(row["key"], row["score"]) for row in final] == [
        (f"{result['doc_id']}#{result['chunk_index']}", result["score"]) for result in changed["found"]["results"]
    ]


def test_a_key_of_another_collection_learns_nothing(client: Client, changed: dict[str, Any]) -> None:
    body = QUESTION | {"as_of": changed["at"]}
    now, before = (post(client, SEARCH, each, bearer(collections=["other"])) for each in (QUESTION, body))
    assert before == now
    assert before[0] in (403, 404)
    assert not PastIndex.objects.exists()


@pytest.mark.parametrize(
    ("at", "status", "kind"),
    [
        ("2020-01-01T00:00:00+00:00", 409, "not_recorded"),
        ("2999-01-01T00:00:00+00:00", 422, "invalid_input"),
        ("2026-01-01T00:00:00", 422, "invalid_input"),
        ("yesterday", 422, "invalid_input"),
    ],
)
def test_a_wrong_time_is_refused(client: Client, changed: dict[str, Any], at: str, status: int, kind: str) -> None:
    answered, body = post(client, SEARCH, QUESTION | {"as_of": at}, changed["key"])
    assert (answered, body["error"]["type"]) == (status, kind)
    assert body["error"]["field"].endswith("as_of")


def test_what_is_gone_is_named(client: Client, changed: dict[str, Any]) -> None:
    delete_documents(changed["collection"], ["garden.md"])
    status, body = post(client, SEARCH, QUESTION | {"as_of": changed["at"]}, changed["key"])
    assert (status, body["error"]["type"], body["error"]["field"]) == (409, "not_restorable", "as_of")
    assert "'garden.md'" in body["error"]["message"]


def test_the_command_and_mcp_search_as_of(client: Client, changed: dict[str, Any]) -> None:
    printed = run_json("search", "house", QUESTION["query"], "-k", "3", "--as-of", changed["at"])
    assert printed["results"] == changed["found"]["results"]
    call = {"name": "collections-search", "arguments": QUESTION | {"collection": "house", "as_of": changed["at"]}}
    _, answer = post(
        client, "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}, changed["key"]
    )
    content = json.loads(answer["result"]["content"][0]["text"])
    assert (content["results"], content["as_of"]) == (changed["found"]["results"], changed["at"])


def test_the_playground_debugs_the_ranking_of_then(
    client: Client, changed: dict[str, Any], django_user_model: Any
) -> None:
    client.force_login(django_user_model.objects.create_superuser("ada"))
    values = {"q": QUESTION["query"], "k": "3", "as_of": changed["at"][:26]}
    response = client.get("/collections/house/playground/", values)
    keys = [row.row["key"] for row in response.context["shown"].columns[-1].rows]
    assert response.context["run"].as_of is not None
    assert keys == [f"{result['doc_id']}#{result['chunk_index']}" for result in changed["found"]["results"]]
    doc_id, _, index = keys[0].rpartition("#")
    detail = client.get(f"/collections/house/playground/{index}/{doc_id}/", values)
    assert (doc_id, detail.status_code) == ("pump.md", 200)
    assert detail.context["explanation"]["columns"][-1]["rows"][0]["key"] == keys[0], "it is disabled now"
    refused = client.get("/collections/house/playground/", values | {"as_of": "2999-01-01T00:00:00"})
    assert (refused.status_code, list(refused.context["sides"][0].form.errors)) == (422, ["as_of"])


def test_an_evaluation_meets_the_collection_of_then(changed: dict[str, Any]) -> None:
    made = GoldenSet.objects.create(name="pumps", collection_name="house")
    GoldenQuestion.objects.create(golden_set=made, position=0, question=QUESTION["query"], expected_doc_ids=["pump.md"])
    outcomes = []
    for moment in (None, changed["at"]):
        settings = RunSettings(answers=False, judge="none", cut=3, as_of=moment)
        run = lifecycle.start_run(made, RunRequest(plan=RetrievePlan(k=3), settings=settings), send=False)
        ended = lifecycle.run_now(run)
        item = ended.items.get()
        outcomes.append((ended.state, ended.settings["as_of"], item.scores["hit@3"]["value"]))
    assert outcomes == [("succeeded", None, 0.0), ("succeeded", changed["at"], 1.0)]
    with pytest.raises(InvalidInput):
        RunSettings(as_of="2026-01-01")


QUESTION_ASK = "What must be done before the pump is cleaned?"


def test_the_answer_quotes_and_cites(house: Collection, client: Client) -> None:
    status, body = post(client, ASK, {"query": QUESTION_ASK}, bearer(scope="read"))
    assert (status, body["status"], body["answerer"]) == (200, "ok", "extractive")
    check_shape(AskResponse, body)
    quoted = "Before the pump is cleaned, it must be switched off and locked with the red key."
    assert body["answer"].startswith(f"{quoted} [1]")
    citation = body["citations"][0]
    text = house.documents.get(doc_id="pump.md").text
    assert text[citation["start"] : citation["end"]] == citation["quote"] == quoted
    assert body["sentences"][0]["supported"] is True
    assert body["removed_citations"] == 0


def test_sources_stand_by_marker_with_an_exact_excerpt(house: Collection, client: Client) -> None:
    _, body = post(client, ASK, {"query": QUESTION_ASK, "k": 3}, bearer())
    assert [source["marker"] for source in body["sources"]] == [1, 2, 3]
    first = body["sources"][0]
    assert set(first) >= {"doc_id", "chunk_index", "excerpt"}
    assert (first["doc_id"], first["cited"], first["title"]) == ("pump.md", True, "Pump")
    for source in body["sources"]:
        text = house.documents.get(doc_id=source["doc_id"]).text
        assert text[source["excerpt_start"] : source["excerpt_end"]] == source["excerpt"]


def test_segments_give_times_to_their_sources(house: Collection, client: Client) -> None:
    headers = bearer()
    segments = [
        {"text": "Welcome to the tour of the station.", "t_start": 0.0, "t_end": 4.5},
        {"text": "The red key hangs behind the door of the pump room.", "t_start": 4.5, "t_end": 9.25},
    ]
    answer = client.put(
        "/v1/collections/house/documents/tour", {"content": segments}, content_type="application/json", headers=headers
    )
    assert answer.status_code == 200
    _, body = post(client, ASK, {"query": "Where does the red key hang?"}, headers)
    source = body["sources"][0]
    assert (source["doc_id"], source["t_start"], source["t_end"]) == ("tour", 0.0, 9.25)


def test_weak_evidence_is_an_abstention(house: Collection, client: Client) -> None:
    _, body = post(client, ASK, {"query": "Who won the football world cup in 2014?"}, bearer())
    assert (body["status"], body["citations"]) == ("abstained", [])
    assert declines(body["answer"]) and not any(map(str.isdigit, body["answer"]))
    assert len(body["results"]) == 5
    run = QueryRun.objects.get()
    assert (run.status, run.answer, str(run.pk)) == ("abstained", body["answer"], body["run_id"])


def test_an_empty_collection_is_an_abstention(client: Client) -> None:
    make_collection("attic", empty=True)
    _, body = post(client, "/v1/collections/attic/ask", {"query": QUESTION_ASK}, bearer())
    assert (body["status"], body["sources"], body["short_result"]["reason"]) == ("abstained", [], "collection_empty")


@pytest.mark.parametrize("field", ["llm_model", "system_prompt"])
def test_a_chat_field_without_a_chat_model_is_refused(house: Collection, client: Client, field: str) -> None:
    status, body = post(client, ASK, {"query": QUESTION_ASK, field: "something"}, bearer())
    assert (status, body["error"]["type"], body["error"]["field"]) == (422, "no_chat_model", field)


def test_the_run_keeps_the_minimal_logging_fields(house: Collection, client: Client) -> None:
    headers = bearer()
    _, body = post(client, ASK, {"query": QUESTION_ASK}, headers)
    _, run = get(client, f"/v1/runs/{body['run_id']}", headers)
    required = {"query", "retrieved_ids", "answer", "citations", "trace_scores"}
    optional = {
        "retrieval_confidence",
        "doc_contribution_scores",
        "retrieval_action",
        "fallback_triggered",
        "token_usage",
    }
    assert set(run) >= required | optional
    assert (run["query"], run["answer"], run["trace_scores"]) == (QUESTION_ASK, body["answer"], None)
    assert run["citations"][0] == "pump.md"
    assert run["citation_details"] == body["citations"]
    assert run["token_usage"] == body["token_usage"]
    assert (
        run["token_usage"]["total_tokens"]
        == run["token_usage"]["context_tokens"] + run["token_usage"]["generation_tokens"]
    )
    assert run["fallback_triggered"] is False


def test_the_answer_and_its_run_say_the_conversation(house: Collection, client: Client) -> None:
    headers = bearer()
    for named, expected in (({"conversation_id": "talk-7"}, "talk-7"), ({}, None)):
        _, body = post(client, ASK, {"query": QUESTION_ASK} | named, headers)
        assert body["conversation_id"] == expected
        _, run = get(client, f"/v1/runs/{body['run_id']}", headers)
        _, listed = get(client, "/v1/runs?limit=1", headers)
        assert run["conversation_id"] == listed["items"][0]["conversation_id"] == expected
