"""Chat completions that come as a stream: pieces, usage, tools, and every way in which a stream can fail."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from collections_app.errors import ServiceError
from retrieval_app.llm.chat_model import Completion, Endpoint, ToolCall, complete
from tests.fakes.faults import Fault, connection_reset, cut_short, dripping, failing, not_json, rate_limited, slow
from tests.fakes.openai_server import OpenAIServer
from tests.refusals import raises_with

SAID = "A filter lasts six months [2]."
MESSAGES = [{"role": "user", "content": "How long does a filter last?"}]
EVENTS = "text/event-stream"


@pytest.fixture
def server(openai_server: OpenAIServer) -> OpenAIServer:
    openai_server.chat_reply = lambda messages: SAID
    return openai_server


def stream(server: OpenAIServer, pieces: list[str] | None = None, timeout_s: float = 5.0, **more: Any) -> Completion:
    endpoint = Endpoint(server.base_url, "test-key", timeout_s, 200)
    told = [] if pieces is None else pieces
    return complete(endpoint, "gpt-test", MESSAGES, on_text=told.append, **more)


def events(*chunks: Any, done: bool = True) -> Fault:
    """A good status with these chunks as events."""
    lines = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks]
    lines += ["[DONE]"] if done else []
    return Fault(200, "".join(f"data: {line}\r\n\r\n" for line in lines).encode(), content_type=EVENTS)


def delta(finish_reason: str | None = None, **values: Any) -> dict[str, Any]:
    return {"id": "c1", "model": "m1", "choices": [{"index": 0, "delta": values, "finish_reason": finish_reason}]}


def test_pieces_come_one_by_one_and_usage_at_the_end(server: OpenAIServer) -> None:
    pieces: list[str] = []
    answer = stream(server, pieces, temperature=0.0)
    assert "".join(pieces) == answer.text == SAID
    assert len(pieces) == 6
    assert (answer.finish_reason, answer.output_tokens, answer.input_tokens) == ("stop", 9, 7)
    (body,) = server.bodies("/v1/chat/completions")
    assert (body["stream"], body["stream_options"], body["temperature"]) == (True, {"include_usage": True}, 0.0)


def test_what_the_server_tells_beside_the_text(server: OpenAIServer) -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 6},
        "completion_tokens_details": {"reasoning_tokens": 2},
        "queue_time": 0.25,
    }
    server.script(
        events(
            delta(role="assistant", content=None),
            delta(content=" Six"),
            delta(content=" months. "),
            delta("max_output"),
            {"choices": [], "usage": usage},
        )
    )
    assert stream(server) == Completion("Six months.", "max_output", "c1", "m1", 9, 4, 6, 2, 250.0)


def test_tool_calls_are_put_together_from_their_parts(server: OpenAIServer) -> None:
    server.script(
        events(
            delta(tool_calls=[{"index": 0, "id": "t1", "function": {"name": "look_up", "arguments": '{"word'}}]),
            delta(tool_calls=[{"index": 0, "function": {"arguments": '": "filter"}'}}]),
            delta("tool_calls"),
        )
    )
    answer = stream(server)
    assert (answer.text, answer.tool_calls) == ("", (ToolCall("t1", "look_up", '{"word": "filter"}'),))


def test_a_server_that_does_not_stream_answers_whole(server: OpenAIServer) -> None:
    whole = {"choices": [{"message": {"content": SAID}, "finish_reason": "stop"}]}
    server.script(Fault(200, json.dumps(whole).encode(), headers={"x-queue-time": "12", "x-inference-time": "300"}))
    pieces: list[str] = []
    answer = stream(server, pieces)
    assert (pieces, answer.text, answer.queue_ms, answer.inference_ms) == ([SAID], SAID, 12.0, 300.0)


def test_a_server_that_knows_no_stream_options_is_asked_without(server: OpenAIServer) -> None:
    said = json.dumps({"error": {"message": "Unknown parameter: 'stream_options'."}}).encode()
    server.script(Fault(400, said))
    answer = stream(server)
    assert (answer.text, answer.output_tokens) == (SAID, None)
    assert ["stream_options" in body for body in server.bodies("/v1/chat/completions")] == [True, False]


@pytest.mark.parametrize("fault", [rate_limited("0.05"), failing(503), connection_reset(), cut_short(0), cut_short(1)])
def test_trouble_before_the_first_piece_is_tried_again(server: OpenAIServer, fault: Fault) -> None:
    server.script(fault)
    pieces: list[str] = []
    assert stream(server, pieces).text == SAID
    assert ("".join(pieces), len(server.requests)) == (SAID, 2)


@pytest.mark.parametrize(
    ("fault", "type"),
    [
        (cut_short(3), "llm_broken_stream"),
        (events(delta(content="Six"), done=False), "llm_broken_stream"),
        (events(delta(content="Six"), {"error": {"message": "overloaded"}}), "llm_failed"),
        (events(delta(content="Six"), '{"choices": [{"de'), "llm_bad_answer"),
        (events(delta(content="Six"), "[1, 2]"), "llm_bad_answer"),
    ],
)
def test_trouble_after_the_first_piece_is_told_at_once(server: OpenAIServer, fault: Fault, type: str) -> None:
    server.script(fault)
    pieces: list[str] = []
    with pytest.raises(ServiceError) as caught:
        stream(server, pieces)
    assert (caught.value.type, caught.value.status, len(server.requests)) == (type, 502, 1)
    assert len("".join(pieces)) > 0


@pytest.mark.parametrize(
    ("fault", "type", "requests"),
    [
        (failing(401), "llm_refused", 1),
        (failing(400), "llm_failed", 1),
        (not_json(), "llm_bad_answer", 1),
        (events(delta("stop")), "llm_bad_answer", 1),
        (events(), "llm_bad_answer", 1),
    ],
)
def test_a_stream_without_an_answer_is_one_clear_error(
    server: OpenAIServer, fault: Fault, type: str, requests: int
) -> None:
    server.script(fault)
    with pytest.raises(ServiceError) as caught:
        stream(server)
    assert (caught.value.type, len(server.requests)) == (type, requests)
    assert "test-key" not in str(caught.value)


@pytest.mark.parametrize("fault", [slow(3.0), dripping(0.3)])
def test_the_time_limit_bounds_the_whole_stream(server: OpenAIServer, fault: Fault) -> None:
    server.script(fault)
    began = time.monotonic()
    with raises_with(ServiceError, type="llm_timeout", status=504):
        stream(server, timeout_s=0.5)
    assert time.monotonic() - began < 2.5
