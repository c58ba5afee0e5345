"""The reasoning of thinking models is kept apart from the answer, and what came of a broken stream is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.errors import ServiceError
from collections_app.models import Collection
from ragd.types import RetrievePlan
from retrieval_app.answers.citations import Citation
from retrieval_app.llm import chat_model
from retrieval_app.llm.chat_model import AnswerReader, read_completion, split_reasoning
from retrieval_app.models import QueryRun
from retrieval_app.search import query_pipeline
from retrieval_app.search.query_pipeline import QueryRequest
from tests.fakes.faults import cut_short
from tests.fakes.openai_server import OpenAIServer, openai_server
from tests.refusals import raises_with
from tests.telemetry.conftest import Recorder, provider, recorder

__all__ = ["openai_server", "provider", "recorder"]
ANSWER = "The kettle boils at 100 degrees [1]."
THOUGHT = "let me look at [1] and [2]"


@pytest.fixture(autouse=True)
def no_model_is_known() -> Iterator[None]:
    yield
    chat_model._open_thinkers.clear()


@pytest.fixture
def kettles(db: None, openai_server: OpenAIServer, settings: Any) -> Collection:
    settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_API_KEY = openai_server.base_url, openai_server.api_key
    collection = create_collection(name="kettles")
    ingest_text(collection, "kettle", "The kettle boils at 100 degrees.")
    ingest_text(collection, "pump", "The pump of the kettle is red.")
    return collection


class Told:
    def __init__(self) -> None:
        self.text = ""

    def retrieved(self, run: QueryRun) -> None: ...
    def tell(self, text: str) -> None:
        self.text += text

    def cite(self, citation: Citation) -> None: ...
    def restarted(self) -> None:
        self.text = ""


def ask(collection: Collection, listener: query_pipeline.RunListener | None = None) -> QueryRun:
    request = QueryRequest(collection, "When does the kettle boil?", RetrievePlan(), "api")
    return query_pipeline.ask(request, listener=listener)


def chat_spans(recorder: Recorder) -> list[ReadableSpan]:
    return [span for span in recorder.spans if span.name.startswith("chat ")]


SPLITS = {
    f"<think>{THOUGHT}</think>{ANSWER}": (ANSWER, THOUGHT),
    f"\n<think>\n{THOUGHT}\n</think>\n\n{ANSWER}": (ANSWER, THOUGHT),
    f"{THOUGHT}</think>{ANSWER}": (ANSWER, THOUGHT),
    f"{THOUGHT}\n</think>\n\nthe kettle": ("the kettle", THOUGHT),
    "<think>unfinished and cut": ("", "unfinished and cut"),
    "<THINKING>a</THINKING>b": ("b", "a"),
    "[THINK]a[/THINK]b": ("b", "a"),
    "◁think▷a◁/think▷b": ("b", "a"),
    "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b": (
        "b",
        "a<|end|><|start|>assistant",
    ),
    "<think>a\n<think>b</think>c</think>d": ("d", "a\n<think>b\n\nc"),
    "First [1].\n<think>more?</think>\nSecond [2].": ("First [1].\n\nSecond [2].", "more?"),
    "First [1].\n<think>more": ("First [1].", "more"),
    "Models write `<think>` and `</think>` [1].": ("Models write `<think>` and `</think>` [1].", ""),
    "The mark </think> ends it [1].": ("The mark </think> ends it [1].", ""),
    "1 < 2 and a [1] b.": ("1 < 2 and a [1] b.", ""),
    "</think>": ("", ""),
}


@pytest.mark.fault("N-22")
@pytest.mark.parametrize("text", SPLITS)
def test_reasoning_is_told_from_the_answer(text: str) -> None:
    assert split_reasoning(text) == SPLITS[text]


@pytest.mark.fault("N-22")
@pytest.mark.parametrize("text", SPLITS)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_stream_tells_no_reasoning(text: str, size: int) -> None:
    answer, reasoning = SPLITS[text]
    told: list[str] = []
    reader = AnswerReader(told.append)
    pieces = [text[first : first + size] for first in range(0, len(text), size)]
    deltas: list[dict[str, Any]] = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    completion = reader.read([*deltas, {"choices": [{"delta": {}, "finish_reason": "stop"}]}], {})
    assert (completion.text, completion.reasoning) == (answer, reasoning)
    assert completion.told_reasoning or answer.startswith("".join(told).strip())
    again: list[str] = []
    AnswerReader(again.append, opens_thinking=True).read([*deltas, {"choices": [{"finish_reason": "stop"}]}], {})
    assert THOUGHT not in "".join(again)


MESSAGES: list[dict[str, Any]] = [
    {"content": ANSWER, "reasoning_content": THOUGHT},
    {"content": ANSWER, "reasoning": THOUGHT},
    {
        "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]},
            {"type": "text", "text": ANSWER},
        ]
    },
]


@pytest.mark.fault("N-22")
@pytest.mark.parametrize("message", MESSAGES, ids=["reasoning_content", "reasoning", "parts"])
def test_reasoning_in_a_field_of_its_own(message: dict[str, Any]) -> None:
    whole = read_completion({"choices": [{"message": message, "finish_reason": "stop"}]}, {})
    chunks = [{"choices": [{"delta": {name: value}}]} for name, value in reversed(message.items())]
    told: list[str] = []
    streamed = AnswerReader(told.append).read([*chunks, {"choices": [{"finish_reason": "stop"}]}], {})
    assert (whole.text, whole.reasoning) == (streamed.text, streamed.reasoning) == (ANSWER, THOUGHT)
    assert "".join(told) == ANSWER


@pytest.mark.fault("N-22")
def test_an_answer_has_no_reasoning_and_the_span_does(
    kettles: Collection, openai_server: OpenAIServer, recorder: Recorder
) -> None:
    for reply in (f"<think>{THOUGHT}</think>{ANSWER}", f"{THOUGHT}</think>{ANSWER}"):
        for listener in (None, Told(), Told()):
            openai_server.chat_reply = lambda messages, reply=reply: reply  # type: ignore[misc]
            run = ask(kettles, listener=listener)
            assert (run.status, run.answer, [item["marker"] for item in run.citations]) == ("ok", ANSWER, [1])
            assert listener is None or listener.text == ANSWER
    (message,) = json.loads(str((chat_spans(recorder)[0].attributes or {})["gen_ai.output.messages"]))
    assert [part["type"] for part in message["parts"]] == ["reasoning", "text"]


@pytest.mark.fault("N-22")
@pytest.mark.parametrize("listener", [None, Told()])
def test_reasoning_without_an_answer_is_an_error(
    kettles: Collection, openai_server: OpenAIServer, listener: Told | None
) -> None:
    openai_server.chat_reply = lambda messages: "<think>unfinished and cut"
    with raises_with(ServiceError, type="llm_bad_answer"):
        ask(kettles, listener=listener)
    run = QueryRun.objects.get()
    assert (run.status, run.answer or "", run.citations) == ("error", "", [])


@pytest.mark.fault("API-03")
@pytest.mark.fault("F21")
def test_a_broken_stream_keeps_what_came(kettles: Collection, openai_server: OpenAIServer, recorder: Recorder) -> None:
    openai_server.chat_reply = lambda messages: ANSWER
    openai_server.script(cut_short(4), model="gpt-4o-mini")
    with raises_with(ServiceError, type="llm_broken_stream"):
        ask(kettles, listener=Told())
    run = QueryRun.objects.get()
    assert (run.status, run.answer) == ("error", "The kettle boils")
    (span,) = chat_spans(recorder)
    attributes = span.attributes or {}
    assert str(attributes["gen_ai.response.id"]).startswith("chatcmpl-")
    assert attributes["gen_ai.response.model"] == "gpt-4o-mini"
