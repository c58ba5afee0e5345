from __future__ import annotations

import pytest
from django.test import Client

from collections_app.models import Collection
from retrieval_app.answers.refusals import declines
from retrieval_app.models import QueryRun
from retrieval_app.search.schemas import AskResponse
from tests.retrieval.corpus import bearer, get, make_collection, post
from tests.shapes import check_shape

pytestmark = pytest.mark.django_db

ASK = "/v1/collections/house/ask"
QUESTION = "What must be done before the pump is cleaned?"


def test_the_answer_quotes_and_cites(house: Collection, client: Client) -> None:
    status, body = post(client, ASK, {"query": QUESTION}, bearer(scope="read"))
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
    _, body = post(client, ASK, {"query": QUESTION, "k": 3}, bearer())
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
    _, body = post(client, "/v1/collections/attic/ask", {"query": QUESTION}, bearer())
    assert (body["status"], body["sources"], body["short_result"]["reason"]) == ("abstained", [], "collection_empty")


@pytest.mark.parametrize("field", ["llm_model", "system_prompt"])
def test_a_chat_field_without_a_chat_model_is_refused(house: Collection, client: Client, field: str) -> None:
    status, body = post(client, ASK, {"query": QUESTION, field: "something"}, bearer())
    assert (status, body["error"]["type"], body["error"]["field"]) == (422, "no_chat_model", field)


def test_the_run_keeps_the_minimal_logging_fields(house: Collection, client: Client) -> None:
    headers = bearer()
    _, body = post(client, ASK, {"query": QUESTION}, headers)
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
    assert (run["query"], run["answer"], run["trace_scores"]) == (QUESTION, body["answer"], None)
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
        _, body = post(client, ASK, {"query": QUESTION} | named, headers)
        assert body["conversation_id"] == expected
        _, run = get(client, f"/v1/runs/{body['run_id']}", headers)
        _, listed = get(client, "/v1/runs?limit=1", headers)
        assert run["conversation_id"] == listed["items"][0]["conversation_id"] == expected
