"""Sentences without support are repaired by one more call; what the sources that a model reads look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from collections_app.documents.services import ingest_text
from collections_app.models import Collection
from ragd import RetrievePlan
from ragd.types import Candidate
from retrieval_app.answers.chat_answerer import ChatAnswerer, distinct_texts
from retrieval_app.answers.citations import Citation
from retrieval_app.answers.protocol import CODE_WORD
from retrieval_app.llm.chat_model import Endpoint, ModelParameters
from retrieval_app.models import QueryRun
from retrieval_app.search.query_pipeline import QueryRequest, ask
from tests.builders import WordEmbedder
from tests.fakes.faults import Fault, failing
from tests.fakes.openai_server import OpenAIServer
from tests.retrieval.corpus import bearer, post

HELD, INVENTED = "A filter lasts six months [2].", "It was made in Norway by hand."
SOURCES = [
    Candidate("pump", 0, "The pump runs at 40 bar.", 1.0, start=0, end=24, context="Pump"),
    Candidate("filter", 2, "A filter lasts six months.", 0.9, start=80, end=106, context="Filter"),
]


class Told:
    """pieces: what was told since the last restart."""

    def __init__(self) -> None:
        self.pieces, self.restarts = list[str](), 0

    def tell(self, text: str) -> None:
        self.pieces.append(text)

    def cite(self, citation: Citation) -> None: ...

    def restarted(self) -> None:
        self.pieces, self.restarts = [], self.restarts + 1


def replying(*replies: str) -> Callable[[list[dict[str, Any]]], str]:
    """The second reply to who asks for a repair, the first to the others."""
    return lambda messages: replies[sum(message["role"] == "assistant" for message in messages)]


def answerer(server: OpenAIServer, *, repair: bool | None = True) -> ChatAnswerer:
    endpoint = Endpoint(server.base_url, "test-key", 5.0, 200)
    return ChatAnswerer("gpt-test", endpoint, WordEmbedder(), parameters=ModelParameters(repair=repair))


def test_a_sentence_without_support_is_repaired_by_one_call(openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = replying(f"{HELD} {INVENTED}", HELD)
    draft = answerer(openai_server).answer("How long does a filter last?", SOURCES)
    assert (draft.checked.answer, draft.usage.repaired, draft.abstained) == (HELD, 1, False)
    first, second = openai_server.bodies("/v1/chat/completions")
    assert second["messages"][:-2] == first["messages"]
    assert second["messages"][-2] == {"role": "assistant", "content": f"{HELD} {INVENTED}"}
    assert f"- {INVENTED}\n" in second["messages"][-1]["content"] and HELD not in second["messages"][-1]["content"]
    assert draft.usage.context_tokens > answerer(openai_server, repair=None).answer("?", SOURCES).usage.context_tokens


@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        (HELD, 1),  # nothing to repair
        ("Hello there!", 1),  # states nothing
        ("Der Filter reicht für ein halbes Jahr [2]. Er muss ersetzt werden [2].", 1),  # another language
        (CODE_WORD, 1),
        (f"{HELD} {INVENTED}", 2),
    ],
)
def test_what_calls_for_a_repair(openai_server: OpenAIServer, reply: str, calls: int) -> None:
    openai_server.chat_reply = replying(reply, HELD)
    answerer(openai_server).answer("How long does a filter last?", SOURCES)
    assert len(openai_server.bodies("/v1/chat/completions")) == calls


@pytest.mark.parametrize(
    ("second", "finish"), [(f"{HELD} {INVENTED} It is also very blue.", "stop"), (CODE_WORD, "stop"), (HELD, "length")]
)
def test_a_repair_that_is_no_better_is_left(openai_server: OpenAIServer, second: str, finish: str) -> None:
    def reply(messages: list[dict[str, Any]]) -> str:
        openai_server.chat_finish = finish if len(messages) > 2 else "stop"
        return second if len(messages) > 2 else f"{HELD} {INVENTED}"

    openai_server.chat_reply = reply
    draft = answerer(openai_server).answer("How long does a filter last?", SOURCES)
    assert (draft.checked.answer, draft.usage.repaired, draft.abstained) == (f"{HELD} {INVENTED}", None, False)


def test_an_answer_of_which_nothing_is_left_is_a_refusal(openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = replying(f"{INVENTED[:-1]} ![x](https://evil.example/p.png).", CODE_WORD)
    draft = answerer(openai_server).answer("Where was it made?", SOURCES)
    assert (draft.abstained, draft.usage.repaired, len(draft.removed)) == (True, 1, 1)


def test_a_repair_that_fails_leaves_the_answer(openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = replying(f"{HELD} {INVENTED}", HELD)
    openai_server.script(Fault(), *[failing(500)] * 5)
    draft = answerer(openai_server).answer("How long does a filter last?", SOURCES)
    assert (draft.checked.answer, draft.usage.repaired) == (f"{HELD} {INVENTED}", None)


def test_who_is_told_of_the_answer_is_told_of_the_repaired_one(openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = replying(f"{HELD} {INVENTED}", HELD)
    for repair, said in ((None, f"{HELD} {INVENTED}"), (True, HELD)):
        told = Told()
        draft = answerer(openai_server, repair=repair).answer("How long does a filter last?", SOURCES, listener=told)
        assert ("".join(told.pieces), draft.checked.answer, told.restarts) == (said, said, int(bool(repair)))
    assert all("repair" not in body for body in openai_server.bodies("/v1/chat/completions"))


def test_what_a_source_repeats_is_not_shown_again() -> None:
    text = "The pump runs at 40 bar. It is red. It was built in 1987."
    spans = enumerate([(0, 35), (25, 57), (36, 50)])
    first, second, third = (Candidate("d", n, text[a:b], 1.0, start=a, end=b) for n, (a, b) in spans)
    copy, other = Candidate("e", 0, "It is  red.", 1.0), Candidate("e", 1, text[25:57], 1.0, start=25, end=57)
    assert distinct_texts([first, second, third, copy]) == [text[:35], "It was built in 1987.", "", ""]
    assert distinct_texts([second, first]) == [text[25:57], text[:24]]
    assert distinct_texts([first, other]) == [first.content, other.content]  # of another document
    assert distinct_texts([]) == []


@pytest.fixture
def chat_model(openai_server: OpenAIServer, settings: Settings) -> OpenAIServer:
    settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_API_KEY = openai_server.base_url, openai_server.api_key
    return openai_server


@pytest.mark.django_db
def test_the_run_says_what_was_repaired(house: Collection, client: Client, chat_model: OpenAIServer) -> None:
    chat_model.chat_reply = replying(f"{(good := 'The pump must be switched off [1].')} {INVENTED}", good)
    _, body = post(
        client, "/v1/collections/house/ask", {"query": "Before the pump is cleaned?", "repair": True}, bearer()
    )
    assert (body["answer"], body["token_usage"]["repaired"]) == (good, 1)


@pytest.mark.django_db
def test_the_model_is_told_the_dates_of_documents(house: Collection, chat_model: OpenAIServer) -> None:
    ingest_text(house, "dated", "The pump moves water since it was mended.", metadata={"date": "2024-03-01"})
    run: QueryRun = ask(QueryRequest(house, "When was the pump mended?", RetrievePlan(), "api"))
    sent = chat_model.bodies("/v1/chat/completions")[0]["messages"][-1]["content"]
    assert "\nDate: 2024-03-01\nThe pump moves water" in sent and (run.status, sent.count("Date: ")) == ("ok", 1)
