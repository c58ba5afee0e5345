"""The stand-in speaks the protocol as the official client reads it."""

from __future__ import annotations

import numpy as np
import openai
import pytest

from tests.fakes import faults
from tests.fakes.openai_server import OpenAIServer, hashed_vector


@pytest.fixture
def client(openai_server: OpenAIServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=openai_server.base_url, api_key=openai_server.api_key, max_retries=0)


def ask(client: openai.OpenAI, **options: object) -> openai.types.chat.ChatCompletion:
    return client.chat.completions.create(
        model="gpt-4o-mini", messages=[{"role": "user", "content": "Where is Paris?"}], **options
    )


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_embeddings_in_both_encodings(client: openai.OpenAI, encoding: str | None) -> None:
    options = {"encoding_format": encoding} if encoding == "float" else {}
    answer = client.embeddings.create(model="e", input=["red house", "blue house"], dimensions=8, **options)
    assert [row.index for row in answer.data] == [0, 1]
    assert np.allclose(answer.data[1].embedding, hashed_vector("blue house", 8))
    assert (answer.usage.prompt_tokens, answer.model, answer.object) == (4, "e", "list")


def test_vectors_are_near_where_words_are_shared() -> None:
    house, same, other = (hashed_vector(text, 384) for text in ("a red house", "the red house", "an oak tree"))
    assert float(house @ same) > 0.5 > abs(float(house @ other))


def test_an_empty_input_is_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="input"):
        client.embeddings.create(model="e", input=[""])


def test_chat_answers_with_the_scripted_text(client: openai.OpenAI, openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = lambda messages: f"{messages[0]['content']} In France [1]."
    answer = ask(client)
    assert answer.choices[0].message.content == "Where is Paris? In France [1]."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (4, 10, 14)
    assert openai_server.bodies("/v1/chat/completions")[0]["model"] == "gpt-4o-mini"


def test_a_limit_cuts_the_answer(client: openai.OpenAI, openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = lambda messages: "one two three four"
    answer = ask(client, max_completion_tokens=2)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("one two", "length")


def test_a_stream_carries_the_same_text_and_usage(client: openai.OpenAI, openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = lambda messages: "In  France\n[1]. "
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "In  France\n[1]. "
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None and chunks[-1].usage.prompt_tokens == 4


def test_a_stream_can_break_off(client: openai.OpenAI, openai_server: OpenAIServer) -> None:
    openai_server.script(faults.cut_short(2))
    received = []
    with pytest.raises(openai.APIConnectionError):
        received.extend(ask(client, stream=True))


def test_models_are_listed(client: openai.OpenAI, openai_server: OpenAIServer) -> None:
    assert [model.id for model in client.models.list()] == openai_server.models


def test_scripts_are_met_in_order_and_by_model(client: openai.OpenAI, openai_server: OpenAIServer) -> None:
    openai_server.script(faults.rate_limited("3"), faults.failing(503))
    openai_server.script(faults.failing(404), model="other")
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="other", input="x")
    with pytest.raises(openai.RateLimitError) as limited:
        ask(client)
    with pytest.raises(openai.InternalServerError):
        ask(client)
    assert limited.value.response.headers["retry-after"] == "3"
    assert ask(client).choices[0].message.content == "You said: Where is Paris?"


def test_a_wrong_key_is_refused(openai_server: OpenAIServer) -> None:
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=openai_server.base_url, api_key="wrong", max_retries=0).models.list()


def test_an_unknown_path_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.files.list()
