"""The chat facade, mostly through the real `openai` client against a server that listens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from django.test import Client
from pytest_django import Settings

from collections_app.models import Collection
from ragd.types import canonical_json
from retrieval_app.chat.api import ChatCompletion, ChatModels, OpenAIErrorAnswer
from retrieval_app.models import QueryRun
from tests.fakes.openai_server import OpenAIServer, openai_server
from tests.refusals import raises_with
from tests.retrieval.corpus import bearer, get, make_collection, post
from tests.shapes import check_shape

__all__ = ["openai_server"]

CHAT = "/v1/chat/completions"
QUESTION = "What must be done before the pump is cleaned?"
ASKED = [{"role": "user", "content": QUESTION}]
QUOTED = "Before the pump is cleaned, it must be switched off and locked with the red key."
VOLATILE = ("run_id", "timings_ms", "trace_id")


@pytest.fixture
def llm(openai_server: OpenAIServer, settings: Settings) -> OpenAIServer:
    """A chat model behind the server."""
    settings.RAGD_LLM_BASE_URL = openai_server.base_url
    settings.RAGD_LLM_API_KEY = openai_server.api_key
    openai_server.chat_reply = lambda messages: "Switch it off [1].\n\n  And lock it  [1]."
    return openai_server


@pytest.fixture
def connect(live_server: Any) -> Iterator[Callable[..., openai.OpenAI]]:
    """connect(scope="read"): a client of the server that listens, with a new key."""
    opened: list[openai.OpenAI] = []

    def make(**key: Any) -> openai.OpenAI:
        secret = bearer(**key)["Authorization"].removeprefix("Bearer ")
        opened.append(openai.OpenAI(base_url=f"{live_server.url}/v1", api_key=secret, max_retries=0, timeout=30))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


def chat(client: Client, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
    return post(client, CHAT, {"model": "ragd/house", "messages": ASKED} | body, headers)


def same(answer: Any) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in VOLATILE}


def test_the_openai_client_gets_the_answer_of_ask(
    kept_house: Collection, connect: Callable[..., openai.OpenAI], client: Client
) -> None:
    openai_client = connect(scope="read", collections=["house"])
    answer = openai_client.chat.completions.create(model="ragd/house", messages=ASKED)
    choice = answer.choices[0]
    assert (choice.message.role, choice.finish_reason, answer.model) == ("assistant", "stop", "ragd/house")
    assert choice.message.content.startswith(f"{QUOTED} [1]")
    extension = answer.model_extra["ragd"]
    asked = post(client, "/v1/collections/house/ask", {"query": QUESTION}, bearer())[1]
    assert choice.message.content == asked.pop("answer")
    assert canonical_json(same(extension)) == canonical_json(same(asked))
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == tuple(
        asked["token_usage"][name] for name in ("context_tokens", "generation_tokens", "total_tokens")
    )
    run = QueryRun.objects.get(pk=extension["run_id"])
    assert (run.channel, run.kind, run.query, run.answer) == ("chat", "ask", QUESTION, choice.message.content)
    assert answer.id == f"chatcmpl-{run.pk}"
    check_shape(ChatCompletion, json.loads(answer.model_dump_json()))


@pytest.mark.parametrize("with_usage", [True, False])
def test_the_openai_client_streams_the_same_answer(
    kept_house: Collection, connect: Callable[..., openai.OpenAI], llm: OpenAIServer, with_usage: bool
) -> None:
    openai_client = connect()
    options: Any = {"stream_options": {"include_usage": True}} if with_usage else {}
    parts = list(openai_client.chat.completions.create(model="ragd/house", messages=ASKED, stream=True, **options))
    assert {(part.object, part.model, part.id) for part in parts} == {
        ("chat.completion.chunk", "ragd/house", parts[0].id)
    }
    if with_usage:
        usage = parts.pop()
        assert (usage.choices, usage.usage.total_tokens > 0) == ([], True)
    assert all(part.usage is None for part in parts)
    assert (parts[0].choices[0].delta.role, parts[0].choices[0].delta.content) == ("assistant", "")
    assert [part.choices[0].finish_reason for part in parts] == [None] * (len(parts) - 1) + ["stop"]
    text = "".join(part.choices[0].delta.content or "" for part in parts)
    extension = parts[-1].model_extra["ragd"]
    run = QueryRun.objects.get(pk=extension["run_id"])
    assert (text, len(parts) > 6, run.answerer) == (run.answer, True, "gpt-4o-mini")
    assert [item["doc_id"] for item in extension["citations"]] == ["pump.md", "pump.md"]


def test_the_openai_client_lists_and_reads_models(
    kept_house: Collection, connect: Callable[..., openai.OpenAI]
) -> None:
    openai_client = connect()
    (model,) = openai_client.models.list().data
    assert (model.id, model.object, model.owned_by) == ("ragd/house", "model", "ragd")
    assert model.created == int(kept_house.created_at.timestamp())
    assert openai_client.models.retrieve("ragd/house") == model
    with pytest.raises(openai.NotFoundError):
        openai_client.models.retrieve("ragd/attic")


def test_the_openai_client_sees_its_own_errors(kept_house: Collection, connect: Callable[..., openai.OpenAI]) -> None:
    ask = connect().chat.completions.create
    with pytest.raises(openai.NotFoundError) as missing:
        ask(model="ragd/attic", messages=ASKED)
    assert (missing.value.code, missing.value.param, missing.value.type) == (
        "model_not_found",
        "model",
        "invalid_request_error",
    )
    assert "ragd/attic" in missing.value.message
    with raises_with(openai.BadRequestError, param="messages"):
        ask(model="ragd/house", messages=[{"role": "assistant", "content": "Hello."}])
    with pytest.raises(openai.PermissionDeniedError):
        connect(collections=["attic"]).chat.completions.create(model="ragd/house", messages=ASKED)
    with pytest.raises(openai.PermissionDeniedError):
        connect().with_options(api_key="ragd_wrong").models.list()


@pytest.mark.django_db
def test_the_plan_and_a_saved_plan_are_taken_under_ragd(house: Collection, client: Client) -> None:
    headers = bearer()
    options = {"mode": "lexical", "k": 2, "weights": {"vector": 3}, "compress": "sentences", "explain": True}
    status, body = chat(client, {"ragd": options}, headers)
    assert (status, body["ragd"]["mode"], len(body["ragd"]["results"])) == (200, "lexical", 2)
    assert set(body["ragd"]["explanation"]) >= {"columns"}
    client.put(
        "/v1/collections/house/plans/one",
        {"k": 1, "is_default": True},
        content_type="application/json",
        headers=headers,
    )
    body = chat(client, {}, headers)[1]
    assert (body["ragd"]["plan_name"], len(body["ragd"]["results"])) == ("one", 1)


@pytest.mark.django_db
def test_earlier_turns_reach_the_model_and_not_the_search(house: Collection, client: Client, llm: OpenAIServer) -> None:
    messages = [
        {"role": "system", "content": "Speak like a pirate."},
        {"role": "user", "content": "What does coffee cost in the kitchen?"},
        {"role": "assistant", "content": "50 cents."},
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
        {"role": "assistant", "content": "You must"},
    ]
    body = chat(client, {"messages": messages, "temperature": 0.9, "max_tokens": 5, "user": "u"}, bearer())[1]
    (sent,) = llm.bodies("/v1/chat/completions")
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "user"]
    assert sent["messages"][0]["content"].startswith("Speak like a pirate.\n\nBe short.\n\nRules")
    assert [message["content"] for message in sent["messages"][1:3]] == [
        "What does coffee cost in the kitchen?",
        "50 cents.",
    ]
    assert sent["messages"][3]["content"].endswith(f"Question: {QUESTION}")
    run = QueryRun.objects.get(pk=body["ragd"]["run_id"])
    assert (run.query, run.history) == (QUESTION, sent["messages"][1:3])
    alone = post(client, "/v1/collections/house/search", {"query": QUESTION}, bearer())[1]
    assert body["ragd"]["results"] == alone["results"]
    stored = get(client, f"/v1/runs/{run.pk}", bearer())[1]
    assert (stored["history"], stored["system_prompt"]) == (run.history, "Speak like a pirate.\n\nBe short.")


@pytest.mark.django_db
def test_a_long_conversation_loses_its_oldest_turns(house: Collection, client: Client, llm: OpenAIServer) -> None:
    turns = [{"role": "user", "content": f"{number} " + "x" * 6_000} for number in range(5)]
    chat(client, {"messages": [*turns, *ASKED]}, bearer())
    (sent,) = llm.bodies("/v1/chat/completions")
    assert [message["content"][0] for message in sent["messages"][1:-1]] == ["2", "3", "4"]


@pytest.mark.django_db
def test_errors_have_openais_shape(house: Collection, client: Client) -> None:
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": " "}]}, 400, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "messages.0.role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages"),
        ({"messages": "hello"}, 400, "messages"),
        ({"n": 2}, 400, "n"),
        ({"tools": [{"type": "function"}]}, 400, "tools"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format"),
        ({"ragd": {"k": 0}}, 400, "ragd.k"),
        ({"ragd": {"colour": "red"}}, 400, "ragd.colour"),
        ({"ragd": {"plan": "nope"}}, 404, "ragd.plan"),
        ({"ragd": {"llm_model": "other"}}, 400, "ragd.llm_model"),
        ({"model": "house"}, 404, "model"),
        ({"model": "ragd/"}, 404, "model"),
        ({"model": "ragd/a\u0000b"}, 404, "model"),
        ({"model": None}, 400, "model"),
    ]
    for body, status, param in cases:
        got, answer = chat(client, body, bearer())
        check_shape(OpenAIErrorAnswer, answer)
        assert (got, answer["error"]["param"], set(answer) - {"run_id"}) == (status, param, {"error"})
        assert answer["error"]["type"] == "invalid_request_error"
        streamed, again = chat(client, {"stream": True} | body, bearer())
        assert (streamed, again["error"], set(again)) == (got, answer["error"], set(answer))


@pytest.mark.django_db
def test_keys_and_failures_have_openais_shape_too(
    house: Collection, client: Client, llm: OpenAIServer, settings: Settings
) -> None:
    answer = client.post(CHAT, {"model": "ragd/house", "messages": ASKED}, content_type="application/json")
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert client.get("/v1/models").json()["error"]["code"] == "unauthenticated"
    assert "detail" in client.get("/v1/runs").json()
    settings.RAGD_LLM_BASE_URL = "http://127.0.0.1:9/v1"
    settings.RAGD_LLM_TIMEOUT_S = 0.5
    status, body = chat(client, {}, bearer())
    assert (status, body["error"]["type"], body["error"]["param"]) in [
        (502, "server_error", None),
        (504, "server_error", None),
    ]
    assert QueryRun.objects.get(status="error").channel == "chat"


@pytest.mark.django_db
def test_models_are_those_that_the_key_may_use(house: Collection, client: Client) -> None:
    make_collection("attic of the house", empty=True)
    status, body = get(client, "/v1/models", bearer())
    check_shape(ChatModels, body)
    assert (status, [item["id"] for item in body["data"]]) == (200, ["ragd/attic of the house", "ragd/house"])
    assert [item["id"] for item in get(client, "/v1/models", bearer(collections=["house"]))[1]["data"]] == [
        "ragd/house"
    ]
    assert get(client, "/v1/models/ragd/house", bearer(collections=["attic"]))[0] == 403


HISTORY: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Look up the kettle"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "the result is 42"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "43"}]},
    {"role": "tool", "tool_call_id": "c3", "content": None},
    {"role": "function", "name": "f", "content": "44"},
    {"role": "assistant", "content": [{"type": "text", "text": "The kettle is blue."}]},
    {"role": "user", "content": QUESTION},
]


@pytest.mark.fault("API-05")
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("question", "searched"),
    [
        ("And how often?", "How is the kettle cleaned?\nAnd how often?"),
        ("When does the garden open?", "When does the garden open?"),
    ],
)
def test_a_question_that_leans_on_the_one_before_it_is_searched_for_with_it(
    house: Collection, client: Client, question: str, searched: str
) -> None:
    texts = ("How is the kettle cleaned?", "With acid.", "And where?", "Outside.", question)
    messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
    status, body = chat(client, {"messages": messages}, bearer())
    assert (status, QueryRun.objects.get(pk=body["ragd"]["run_id"]).query) == (200, searched)


@pytest.mark.django_db
def test_a_history_with_tools_is_accepted(house: Collection, client: Client, llm: OpenAIServer) -> None:
    status, body = post(client, CHAT, {"model": "ragd/house", "messages": HISTORY}, bearer())
    assert status == 200, body
    sent = llm.bodies(CHAT)[-1]["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert [message["content"] for message in sent[1:3]] == ["Look up the kettle", "The kettle is blue."]
    assert sent[0]["content"].startswith("Be brief.") and "the result is" not in str(sent)


@pytest.mark.django_db
def test_a_stream_is_events_that_end_with_done(house: Collection, client: Client) -> None:
    body = {"model": "ragd/house", "messages": ASKED, "stream": True}
    answer = client.post(CHAT, body, content_type="application/json", headers=bearer())
    assert answer["Content-Type"].startswith("text/event-stream")
    text = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    events = text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(event.startswith("data: {") and "\n" not in event for event in events[:-2])
