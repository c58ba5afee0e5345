"""Answers as server-sent events, over real connections: what comes, when it comes, and what stays when nobody reads."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from django.test import Client
from pytest_django import Settings

from collections_app.models import Collection
from ragd.types import canonical_json
from retrieval_app.answers import streams
from retrieval_app.answers.streams import CitationEvent, ErrorEvent, TokenEvent
from retrieval_app.models import QueryRun
from retrieval_app.search.schemas import AskResponse, SearchResponse
from tests.fakes.faults import Fault, cut_short, failing
from tests.fakes.openai_server import OpenAIServer, openai_server
from tests.refusals import raises_with
from tests.retrieval.corpus import bearer, post
from tests.shapes import check_shape

__all__ = ["openai_server"]

ASK = "/v1/collections/house/ask"
QUESTION = "What must be done before the pump is cleaned?"
ANSWER = "Switch it off [1]. Ask Bob [9]. Then lock it [1]."
CHECKED = "Switch it off [1]. Ask Bob. Then lock it [1]."
VOLATILE = ("run_id", "timings_ms", "trace_id")

Event = tuple[str, Any]


@pytest.fixture
def house(kept_house: Collection) -> Collection:
    return kept_house


@pytest.fixture
def model(openai_server: OpenAIServer, settings: Settings) -> OpenAIServer:
    settings.RAGD_LLM_BASE_URL = openai_server.base_url
    settings.RAGD_LLM_API_KEY = openai_server.api_key
    settings.RAGD_LLM_MODEL = "gpt-test"
    openai_server.chat_reply = lambda messages: ANSWER
    return openai_server


@pytest.fixture
def ask(live_server: Any) -> Iterator[Callable[..., Any]]:
    """ask(body): the response of the server that listens, with the head read and the body to come."""
    opened: list[http.client.HTTPConnection] = []
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream", **bearer()}

    def send(body: Any = None, path: str = ASK, **more: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(live_server.thread.host, live_server.thread.port, timeout=20)
        opened.append(connection)
        connection.request("POST", path, json.dumps({"query": QUESTION} | (body or {})), headers | more)
        return connection.getresponse()

    yield send
    for connection in opened:
        connection.close()


def read_events(response: Any) -> Iterator[Event]:
    """(name, data) as they come; a comment is ("", text)."""
    name = ""
    for line in response:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: "):
            yield name, json.loads(text.removeprefix("data: "))
        elif text.startswith(":"):
            yield "", text


def said(events: list[Event]) -> str:
    return "".join(data["text"] for name, data in events if name == "token")


def wait_until(is_so: Callable[[], bool]) -> bool:
    """Whether it became so within ten seconds."""
    until = time.monotonic() + 10
    while not is_so() and time.monotonic() < until:
        time.sleep(0.02)
    return is_so()


@contextmanager
def gate(model: OpenAIServer) -> Iterator[threading.Event]:
    """The model answers only when the event is set."""
    opened = threading.Event()

    def reply(messages: list[Any]) -> str:
        opened.wait(10)
        return ANSWER

    model.chat_reply = reply
    yield opened
    opened.set()


def test_the_events_tell_the_answer_that_json_gives(
    house: Collection, model: OpenAIServer, ask: Callable[..., Any], client: Client
) -> None:
    response = ask({"temperature": 0.4, "max_tokens": 900, "stop": "END", "conversation_id": "c-1", "top_k": 40})
    assert (response.status, response.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    assert (response.headers["Cache-Control"], response.headers["X-Accel-Buffering"]) == ("private, no-store", "no")
    events = list(read_events(response))
    names = [name for name, _ in events]
    assert (names[0], names[-1], names.count("token") > 4) == ("search_results", "final", True)
    assert (set(names[1:-1]), names.count("citation")) == ({"token", "citation"}, 2)
    found, final = events[0][1], events[-1][1]
    check_shape(SearchResponse, found)
    check_shape(AskResponse, final)
    assert said(events) == final["answer"] == CHECKED
    assert final["conversation_id"] == "c-1"
    assert found["results"] == final["results"]
    assert found["run_id"] == final["run_id"]
    length = 0
    for name, data in events:
        if name == "token":
            length += len(TokenEvent.model_validate(data).text)
        if name == "citation":
            CitationEvent.model_validate(data)
            assert (data["answer_end"], data["doc_id"], data["marker"]) == (length, "pump.md", 1)
    plain = post(client, ASK, {"query": QUESTION, "conversation_id": "c-1"}, bearer())[1]
    assert canonical_json({k: v for k, v in final.items() if k not in VOLATILE}) == canonical_json(
        {k: v for k, v in plain.items() if k not in VOLATILE}
    )
    run = QueryRun.objects.get(pk=final["run_id"])
    assert (run.answer, run.status, run.removed_citations, run.channel) == (CHECKED, "ok", 1, "api")
    assert 0 < run.timings_ms["first_token"] <= run.timings_ms["answer"]
    assert "first_token" not in plain["timings_ms"]
    sent = model.bodies("/v1/chat/completions")[0]
    assert (sent["stream"], sent["temperature"], sent["max_tokens"], sent["stop"]) == (True, 0.4, 900, ["END"])
    assert (sent["top_k"], "top_p" in sent, "extra_body" in sent) == (40, False, False)


def test_tokens_come_while_the_model_writes(house: Collection, model: OpenAIServer, ask: Callable[..., Any]) -> None:
    with gate(model) as opened:
        events = read_events(ask())
        assert next(events)[0] == "search_results"
        assert not QueryRun.objects.exists()
        opened.set()
        assert [name for name, _ in events][-1] == "final"


def test_the_answer_is_stored_when_the_client_leaves(
    house: Collection, model: OpenAIServer, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.05)
    with gate(model) as opened:
        response = ask()
        assert next(read_events(response))[0] == "search_results"
        response.close()
        assert wait_until(lambda: streams.slots.readers == 0)
        assert streams.slots.running == 1
        opened.set()
        assert wait_until(lambda: QueryRun.objects.exists())
    run = QueryRun.objects.get()
    assert (run.answer, run.status) == (CHECKED, "ok")
    assert wait_until(lambda: streams.slots.running == 0)


def test_a_silent_model_is_bridged_by_comments(
    house: Collection, model: OpenAIServer, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.05)
    with gate(model) as opened:
        events = read_events(ask())
        assert [next(events)[0], next(events), next(events)] == ["search_results", ("", ": waiting"), ("", ": waiting")]
        opened.set()
        assert said(list(events)) == CHECKED


def test_more_readers_than_threads_are_asked_to_come_again(
    house: Collection, model: OpenAIServer, ask: Callable[..., Any], settings: Settings
) -> None:
    settings.RAGD_WEB_THREADS = 3
    with gate(model) as opened:
        readers = [read_events(ask()) for _ in range(2)]
        assert [next(reader)[0] for reader in readers] == ["search_results"] * 2
        refused = ask()
        body = json.loads(refused.read())
        assert (refused.status, refused.headers["Retry-After"]) == (503, "3")
        assert body["error"]["type"] == "too_many_streams"
        opened.set()
        assert [said(list(reader)) for reader in readers] == [CHECKED] * 2
    assert wait_until(lambda: streams.slots.readers == streams.slots.running == 0)
    assert ask().status == 200


@pytest.mark.parametrize(
    ("fault", "type", "status", "told"),
    [(failing(400), "llm_failed", 502, ""), (cut_short(3), "llm_broken_stream", 502, "Switch it")],
)
def test_a_failing_model_is_an_error_event_and_a_stored_run(
    house: Collection, model: OpenAIServer, ask: Callable[..., Any], fault: Fault, type: str, status: int, told: str
) -> None:
    model.script(fault)
    events = list(read_events(ask()))
    name, data = events[-1]
    ErrorEvent.model_validate(data)
    assert (name, data["error"]["type"], data["status"], said(events)) == ("error", type, status, told)
    run = QueryRun.objects.get(pk=data["run_id"])
    assert (run.status, run.error_type, run.error) == ("error", type, data["detail"])


@pytest.mark.parametrize(
    ("body", "status", "type"),
    [
        ({"query": " "}, 422, "invalid_input"),
        ({"temperature": 3}, 422, "invalid_input"),
        ({"stop": ["a", "b", "c", "d", "e"]}, 422, "invalid_input"),
        ({"mode": "magic"}, 422, "invalid_input"),
        ({"llm_model": "m" * 201}, 422, "invalid_input"),
        ({"plan": "nope"}, 404, "unknown_plan"),
        ({"temperature": 1, "llm_model": "extractive"}, 422, "no_chat_model"),
    ],
)
def test_what_fails_before_anything_is_found_has_its_status(
    house: Collection, model: OpenAIServer, ask: Callable[..., Any], body: Any, status: int, type: str
) -> None:
    response = ask(body)
    answer = json.loads(response.read())
    assert (response.status, answer["error"]["type"]) == (status, type)
    assert wait_until(lambda: streams.slots.readers == streams.slots.running == 0)


def test_quotations_are_told_in_pieces_too(house: Collection, ask: Callable[..., Any]) -> None:
    events = list(read_events(ask()))
    final = events[-1][1]
    assert said(events) == final["answer"]
    assert [data["marker"] for name, data in events if name == "citation"] == [
        item["marker"] for item in final["citations"]
    ]
    assert final["answerer"] == "extractive"


@pytest.mark.parametrize("action", ["redact", "refuse"])
def test_where_answers_are_held_back_nothing_is_told_before_all_is_looked_at(
    house: Collection, model: OpenAIServer, ask: Callable[..., Any], action: str
) -> None:
    Collection.objects.filter(pk=house.pk).update(security={"action": action, "min_score": 0})
    model.chat_reply = lambda messages: "Write to bob.miller@kontor-nord.de [1]."
    events = list(read_events(ask()))
    assert "bob.miller" not in json.dumps(events)
    names = [name for name, _ in events]
    assert names[-1] == ("final" if action == "redact" else "error")
    assert ("token" in names) == (action == "redact")
    assert model.bodies("/v1/chat/completions")[0].get("stream") is None


def test_a_chat_client_that_streams_hears_of_a_refusing_model_by_its_status(
    house: Collection, model: OpenAIServer, live_server: Any
) -> None:
    secret = bearer()["Authorization"].removeprefix("Bearer ")
    with openai.OpenAI(base_url=f"{live_server.url}/v1", api_key=secret, max_retries=0, timeout=20) as chat:
        asked: Any = {"model": "ragd/house", "messages": [{"role": "user", "content": QUESTION}], "stream": True}
        model.script(failing(400))
        with raises_with(openai.InternalServerError, status_code=502):
            chat.chat.completions.create(**asked)
        model.script(cut_short(4))
        parts = []
        with pytest.raises(openai.APIError) as broken:
            parts += list(chat.chat.completions.create(**asked))
        assert "broke off" in broken.value.message
        with gate(model) as opened:
            opened.set()
            parts = list(chat.chat.completions.create(**asked, max_completion_tokens=5, temperature=0.9))
        assert parts[-1].choices[0].finish_reason == "length"
    sent = model.bodies("/v1/chat/completions")[-1]
    assert (sent["temperature"], sent["max_tokens"], sent["stream"]) == (0.9, 5, True)
    assert [run.error_type for run in QueryRun.objects.order_by("created_at")] == [
        "llm_failed",
        "llm_broken_stream",
        "",
    ]


@pytest.mark.django_db
def test_the_openapi_document_shows_the_events_beside_the_json(client: Client) -> None:
    document = client.get("/v1/openapi.json").json()
    content = document["paths"]["/v1/collections/{collection}/ask"]["post"]["responses"]["200"]["content"]
    assert set(content) == {"application/json", "text/event-stream"}
    events = content["text/event-stream"]["schema"]["x-events"]
    assert list(events) == ["search_results", "token", "citation", "final", "error"]
    for name in ("search_results", "final"):
        assert events[name]["$ref"].rpartition("/")[2] in document["components"]["schemas"]
