"""Spans of answers that come piece by piece: the first token, what was asked of the model, tools, broken streams."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from opentelemetry.trace import StatusCode

from tests.fakes.faults import Fault, cut_short
from tests.fakes.openai_server import OpenAIServer, openai_server  # noqa: F401  (a fixture)
from tests.retrieval.corpus import bearer
from tests.telemetry.conftest import Recorder
from tests.telemetry.test_conventions import assert_required
from tests.telemetry.test_spans import attributes

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("house")]
QUESTION = {"query": "How many litres does the pump move?", "k": 3}
ANSWER = "The pump moves 400 litres per minute [1]."


@pytest.fixture
def chat(openai_server: OpenAIServer, settings: Any) -> OpenAIServer:  # noqa: F811
    settings.RAGD_LLM_BASE_URL = openai_server.base_url
    settings.RAGD_LLM_API_KEY = openai_server.api_key
    openai_server.chat_reply = lambda messages: ANSWER
    return openai_server


def ask(client: Client, recorder: Recorder, **values: Any) -> list[str]:
    """The names of the events that came."""
    recorder.spans.clear()
    headers = bearer() | {"Accept": "text/event-stream"}
    answer = client.post("/v1/collections/house/ask", QUESTION | values, "application/json", headers=headers)
    body = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    return [line.removeprefix("event: ") for line in body.splitlines() if line.startswith("event: ")]


def test_a_streamed_answer_measures_its_first_token(client: Client, recorder: Recorder, chat: OpenAIServer) -> None:
    asked = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 40, "seed": 11, "stop": ["END", "STOP"], "max_tokens": 50,
        "frequency_penalty": 0.25, "presence_penalty": -0.5, "response_format": "text", "conversation_id": "c-7",
    }  # fmt: skip
    assert ask(client, recorder, **asked)[-1] == "final"
    span = recorder.named("chat ")
    assert_required(span)
    found = attributes(span)
    first_ms, total_ms = found["aitf.latency.time_to_first_token_ms"], found["aitf.latency.total_ms"]
    assert 0 < first_ms < total_ms
    assert found["gen_ai.response.time_to_first_chunk"] == pytest.approx(first_ms / 1000)
    assert found["aitf.latency.tokens_per_second"] == pytest.approx(
        found["gen_ai.usage.output_tokens"] * 1000 / (total_ms - first_ms)
    )
    wanted = {
        "gen_ai.request.stream": True, "gen_ai.request.temperature": 0.5, "gen_ai.request.top_p": 0.9,
        "gen_ai.request.top_k": 40,
        "gen_ai.request.seed": 11, "gen_ai.request.stop_sequences": ("END", "STOP"), "gen_ai.request.max_tokens": 50,
        "gen_ai.request.frequency_penalty": 0.25, "gen_ai.request.presence_penalty": -0.5,
        "gen_ai.request.response_format": "text", "gen_ai.conversation.id": "c-7", "session.id": "c-7",
        "gen_ai.usage.output_tokens": 11, "ragd.usage.estimated": False, "output.value": ANSWER,
    }  # fmt: skip
    assert {name: found.get(name) for name in wanted} == wanted
    assert attributes(recorder.named("rag.pipeline "))["output.value"] == ANSWER


def test_a_stream_that_breaks_keeps_what_came(client: Client, recorder: Recorder, chat: OpenAIServer) -> None:
    chat.script(cut_short(4))
    assert ask(client, recorder)[-1] == "error"
    span = recorder.named("chat ")
    assert_required(span)
    found = attributes(span)
    assert (span.status.status_code, found["error.type"]) == (StatusCode.ERROR, "ModelError")
    assert "broke off" in str(span.status.description)
    assert (found["gen_ai.usage.output_tokens"], found["ragd.usage.estimated"]) == (3, True)
    assert (found["output.value"], found["aitf.latency.time_to_first_token_ms"] > 0) == ("The pump moves", True)
    assert recorder.named("rag.pipeline ").status.status_code is StatusCode.ERROR


def test_a_model_that_calls_tools_instead_of_answering(client: Client, recorder: Recorder, chat: OpenAIServer) -> None:
    call = {"index": 0, "id": "t1", "function": {"name": "look_up", "arguments": '{"word": "pump"}'}}
    chunks = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode()
    chat.script(Fault(200, body, content_type="text/event-stream"))
    assert ask(client, recorder)[-1] == "error"
    span = recorder.named("chat ")
    assert attributes(span)["gen_ai.response.finish_reasons"] == ("tool_calls",)
    (event,) = [event for event in span.events if event.name == "gen_ai.tool.call"]
    assert (
        dict(event.attributes or {}).items()
        >= {
            "gen_ai.tool.name": "look_up",
            "gen_ai.tool.call_id": "t1",
            "gen_ai.tool.arguments": '{"word": "pump"}',
        }.items()
    )
