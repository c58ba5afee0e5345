"""Spans of calls to model servers, through a server on the loopback: answers and failures."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from opentelemetry.trace import StatusCode

from collections_app.models import Collection
from tests.fakes.faults import failing, without
from tests.fakes.openai_server import OpenAIServer
from tests.retrieval.corpus import bearer, post
from tests.telemetry.conftest import Recorder
from tests.telemetry.test_conventions import assert_required
from tests.telemetry.test_spans import attributes

pytestmark = pytest.mark.django_db
QUESTION = {"query": "How many litres does the pump move?", "k": 3}


def test_an_answer_of_a_chat_model(house: Collection, client: Client, recorder: Recorder, chat: OpenAIServer) -> None:
    recorder.spans.clear()
    status, body = post(client, "/v1/collections/house/ask", QUESTION, bearer())
    assert (status, body["status"]) == (200, "ok")
    span = recorder.named("chat gpt-4o-mini")
    assert_required(span)
    found = attributes(span)
    assert recorder.parent(span) == "rag.pipeline house"
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (
        body["token_usage"]["context_tokens"],
        body["token_usage"]["generation_tokens"],
    )
    assert found["ragd.usage.estimated"] is False
    assert set(found) >= {
        "server.address", "server.port", "gen_ai.request.max_tokens", "gen_ai.request.temperature",
        "gen_ai.request.seed", "gen_ai.request.stream", "gen_ai.system_prompt.hash", "gen_ai.response.id",
        "gen_ai.response.model", "gen_ai.response.finish_reasons", "gen_ai.input.messages", "gen_ai.output.messages",
        "gen_ai.system_instructions",
    }  # fmt: skip
    events = [event.name for event in span.events]
    assert events == ["gen_ai.content.prompt", "gen_ai.content.completion"]
    assert attributes(recorder.named("rag.pipeline "))["output.value"] == body["answer"]


def test_usage_that_was_not_reported_is_an_estimate(
    house: Collection, client: Client, recorder: Recorder, chat: OpenAIServer
) -> None:
    recorder.spans.clear()
    chat.script(without("usage"))
    post(client, "/v1/collections/house/ask", QUESTION, bearer())
    found = attributes(recorder.named("chat "))
    assert (found["ragd.usage.estimated"], found["gen_ai.usage.input_tokens"] > 50) == (True, True)


def test_a_failing_chat_model(house: Collection, client: Client, recorder: Recorder, chat: OpenAIServer) -> None:
    recorder.spans.clear()
    chat.script(*[failing(400)] * 3)
    status, body = post(client, "/v1/collections/house/ask", QUESTION, bearer())
    assert status == 502
    for span in (recorder.named("chat "), recorder.named("rag.pipeline ")):
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == f"ModelError: {body['error']['message']}"
        assert_required(span)
    found = attributes(recorder.named("chat "))
    assert (found["gen_ai.usage.output_tokens"], found["ragd.usage.estimated"]) == (0, True)
    assert found["gen_ai.usage.input_tokens"] > 50
    assert attributes(recorder.named("rag.pipeline "))["aitf.rag.pipeline.stage"] == "generate"


@pytest.mark.parametrize("capture", ["hash", "none"])
def test_nothing_of_prompt_or_answer_gets_out(
    house: Collection, client: Client, recorder: Recorder, chat: OpenAIServer, capture: Any
) -> None:
    from ragd import telemetry

    recorder.spans.clear()
    telemetry.configure(capture=capture)
    post(client, "/v1/collections/house/ask", QUESTION, bearer())
    said = "\n".join(span.to_json() for span in recorder.spans)
    assert ("litres" in said, "red key" in said) == (False, False)
    assert attributes(recorder.named("chat "))["gen_ai.system_prompt.hash"].startswith("sha256:")
