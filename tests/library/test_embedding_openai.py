"""OpenAI-compatible embeddings over a real socket: batches, order, windows, retries, deadlines, wrong answers.
The embedder that remembers: the same vectors, asked for once, and no more of them kept than it may."""

from __future__ import annotations

import os
import socket
import sys
import time
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ragd.errors import DimensionMismatch, EmbedderError, InvalidInput
from ragd.models.embedding import CachingEmbedder, OpenAIEmbedder, Sizes
from ragd.models.openai_client import OPENAI_URL, RetryPolicy, Server, read_retry_after
from ragd.text.windows import average_windows
from tests.builders import WordEmbedder
from tests.fakes import faults
from tests.fakes.openai_server import OpenAIServer, hashed_vector
from tests.refusals import raises_with

PATH = "/v1/embeddings"
TEXTS = [f"text number {number}" for number in range(7)]


def embedder_of(server: OpenAIServer, **options: Any) -> OpenAIEmbedder:
    values = {"api_key": server.api_key, "backoff_s": 0.01, "timeout_s": 5.0} | options
    return open_embedder("text-embedding-x", values.pop("dims", server.dims), server.base_url, **values)


def open_embedder(
    model: str, dims: int, base_url: str = OPENAI_URL, api_key: str | None = None, **options: Any
) -> OpenAIEmbedder:
    """options: fields of the policy and the sizes."""
    patience = {each.name: options[each.name] for each in fields(RetryPolicy) if each.name in options}
    sizes = {each.name: options[each.name] for each in fields(Sizes) if each.name in options}
    return OpenAIEmbedder(model, dims, Server(base_url, api_key), policy=RetryPolicy(**patience), sizes=Sizes(**sizes))


def failure_of(embedder: OpenAIEmbedder, texts: list[str] | None = None) -> EmbedderError:
    with pytest.raises(EmbedderError) as caught:
        embedder.embed(texts or ["one text"])
    return caught.value


def expected(texts: list[str], dims: int = 384) -> np.ndarray:
    return np.asarray([hashed_vector(text, dims) for text in texts])


def test_texts_travel_in_batches_and_come_back_in_order(openai_server: OpenAIServer) -> None:
    vectors = np.asarray(embedder_of(openai_server, batch_size=3).embed(TEXTS))
    assert np.allclose(vectors, expected(TEXTS), atol=1e-7)
    assert vectors.dtype == np.float32
    assert [body["input"] for body in openai_server.bodies(PATH)] == [TEXTS[:3], TEXTS[3:6], TEXTS[6:]]


def test_batches_are_also_bounded_by_tokens(openai_server: OpenAIServer) -> None:
    embedder = embedder_of(openai_server, batch_tokens=7)
    assert [embedder.count_tokens(text) for text in TEXTS] == [3] * 7
    embedder.embed(TEXTS)
    assert [len(body["input"]) for body in openai_server.bodies(PATH)] == [2, 2, 2, 1]


def test_a_text_above_the_token_bound_travels_alone(openai_server: OpenAIServer) -> None:
    embedder_of(openai_server, batch_tokens=1).embed(TEXTS[:2])
    assert [len(body["input"]) for body in openai_server.bodies(PATH)] == [1, 1]


def test_an_equal_text_travels_once(openai_server: OpenAIServer) -> None:
    vectors = np.asarray(embedder_of(openai_server).embed(["b", "a", "b"]))
    assert np.allclose(vectors, expected(["b", "a", "b"]), atol=1e-7)
    assert [body["input"] for body in openai_server.bodies(PATH)] == [["b", "a"]]


def test_rows_are_ordered_by_their_index(openai_server: OpenAIServer) -> None:
    openai_server.script(faults.reversed_rows())
    assert np.allclose(embedder_of(openai_server).embed(TEXTS), expected(TEXTS), atol=1e-7)


def test_plain_number_lists_are_read_and_brought_to_unit_length(openai_server: OpenAIServer) -> None:
    openai_server.script(faults.with_vectors([3, 4.0]))
    assert np.allclose(embedder_of(openai_server, dims=2).embed_query("x"), [0.6, 0.8])


def test_a_long_text_is_the_mean_of_its_windows(openai_server: OpenAIServer) -> None:
    embedder = embedder_of(openai_server, window=8)
    text = "alpha beta gamma delta epsilon zeta eta theta iota kappa"
    vector = embedder.embed_query(text)
    [body] = openai_server.bodies(PATH)
    pieces = body["input"]
    assert len(pieces) > 1 and "".join(pieces) == text
    weights = [embedder.count_tokens(piece) for piece in pieces]
    assert max(weights) <= 8
    assert np.allclose(vector, average_windows(list(expected(pieces)), weights), atol=1e-6)


def test_without_a_window_nothing_is_split(openai_server: OpenAIServer) -> None:
    text = "many words " * 6000
    embedder_of(openai_server, window=None).embed([text])
    assert openai_server.bodies(PATH)[0]["input"] == [text]


@pytest.mark.parametrize(
    ("model", "dims", "send", "sent"),
    [
        ("other-model", 384, None, None),
        ("other-model", 384, True, 384),
        ("text-embedding-3-small", 1536, None, None),
        ("text-embedding-3-small", 512, None, 512),
        ("text-embedding-3-small", 512, False, None),
    ],
)
def test_dimensions_are_sent_only_when_asked_for(
    openai_server: OpenAIServer, model: str, dims: int, send: bool | None, sent: int | None
) -> None:
    openai_server.dims = dims
    embedder = OpenAIEmbedder(model, dims, Server(openai_server.base_url, openai_server.api_key), send_dimensions=send)
    assert len(embedder.embed_query("x")) == dims
    assert openai_server.bodies(PATH)[0].get("dimensions") == sent


def test_other_dimensions_name_model_expected_and_got(openai_server: OpenAIServer) -> None:
    with pytest.raises(DimensionMismatch) as caught:
        embedder_of(openai_server, dims=768).embed_query("x")
    assert "'text-embedding-x' was expected to give vectors of 768 dimensions and gave 384" in caught.value.message
    assert len(openai_server.requests) == 1


@pytest.mark.parametrize("fault", [faults.failing(500), faults.failing(503), faults.failing(408), faults.failing(409)])
def test_passing_failures_are_repeated(openai_server: OpenAIServer, fault: faults.Fault) -> None:
    openai_server.script(fault, fault)
    assert np.allclose(embedder_of(openai_server).embed(["x"]), expected(["x"]), atol=1e-7)
    assert len(openai_server.requests) == 3


@pytest.mark.parametrize(
    "fault",
    [faults.connection_reset(), faults.bad_json(), faults.not_json(), faults.cut_short(20), faults.rate_limited()],
)
def test_broken_answers_are_repeated(openai_server: OpenAIServer, fault: faults.Fault) -> None:
    openai_server.script(fault)
    assert np.allclose(embedder_of(openai_server).embed(["x"]), expected(["x"]), atol=1e-7)
    assert len(openai_server.requests) == 2


def test_waits_grow_by_two(openai_server: OpenAIServer) -> None:
    openai_server.script(*[faults.failing(500)] * 3)
    embedder_of(openai_server, backoff_s=0.04).embed(["x"])
    times = [request.at_s for request in openai_server.requests]
    waits = [after - before for before, after in pairwise(times)]
    assert all(asked <= wait < asked + 1 for wait, asked in zip(waits, (0.04, 0.08, 0.16), strict=True))


def test_retry_after_in_seconds_is_honoured(openai_server: OpenAIServer) -> None:
    openai_server.script(faults.rate_limited("1"))
    embedder_of(openai_server).embed(["x"])
    first, second = (request.at_s for request in openai_server.requests)
    assert 1.0 <= second - first < 1.5


def test_retry_after_beyond_the_deadline_gives_up_at_once(openai_server: OpenAIServer) -> None:
    openai_server.script(faults.rate_limited("90"))
    started = time.monotonic()
    error = failure_of(embedder_of(openai_server, deadline_s=30.0))
    assert (error.kind, error.retryable) == ("rate_limited", True)
    assert "answered 429 (Rate limit reached for requests); gave up after 1 attempt in " in error.message
    assert error.message.endswith(" s; it asks to wait 90 s")
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Sat, 21 Nov 2026 03:00:10 GMT"}, 10.0),
        ({"retry-after": "Sat, 21 Nov 2026 02:59:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
    ],
)
def test_retry_after_is_read(headers: dict[str, str], wait_s: float | None) -> None:
    assert read_retry_after(headers, now_s=1795230000.0) == wait_s


def test_retries_are_bounded(openai_server: OpenAIServer) -> None:
    openai_server.script(*[faults.failing(500)] * 9)
    error = failure_of(embedder_of(openai_server, max_retries=2))
    assert (error.kind, error.retryable, len(openai_server.requests)) == ("server", True, 3)
    assert f"endpoint {openai_server.base_url} (model 'text-embedding-x') answered 500" in error.message
    assert "gave up after 3 attempts" in error.message


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (faults.failing(401), "auth"),
        (faults.failing(403), "auth"),
        (faults.failing(400), "rejected"),
        (faults.failing(404), "rejected"),
        (faults.failing(422), "rejected"),
        (faults.out_of_quota(), "quota"),
        (faults.fewer_vectors(), "count"),
        (faults.repeated_index(), "count"),
        (faults.with_vectors([float("nan")] * 384), "invalid_vector"),
        (faults.with_vectors([1e300] * 384), "invalid_vector"),
        (faults.with_vectors([0.0] * 384), "invalid_vector"),
    ],
)
def test_what_repeating_cannot_mend_is_not_repeated(
    openai_server: OpenAIServer, fault: faults.Fault, kind: str
) -> None:
    openai_server.script(fault)
    error = failure_of(embedder_of(openai_server), ["one text", "another"])
    assert (error.kind, error.retryable, len(openai_server.requests)) == (kind, False, 1)


@pytest.mark.parametrize(
    "fault",
    [
        faults.bad_json(),
        faults.not_json(),
        faults.without("data"),
        faults.with_vectors("not base64!"),
        faults.with_vectors("AAAA"),
        faults.with_vectors(["1", "2"]),
        faults.with_vectors([[1.0]]),
        faults.with_vectors([[1.0], 2.0]),
        faults.with_vectors(None),
        faults.with_vectors([None]),
        faults.with_vectors([10**400]),
        faults.Fault(200, b"[" * 100_000),
        faults.Fault(200, b"[]"),
        faults.Fault(200, b"null"),
        faults.Fault(200, b'{"data": {"0": 1}}'),
        faults.Fault(200, b'{"data": [1]}'),
    ],
)
def test_an_unreadable_answer_is_named(openai_server: OpenAIServer, fault: faults.Fault) -> None:
    openai_server.script(fault, fault)
    error = failure_of(embedder_of(openai_server, max_retries=1))
    assert (error.kind, error.retryable, len(openai_server.requests)) == ("malformed", True, 2)


def test_an_answer_without_usage_and_model_is_good(openai_server: OpenAIServer) -> None:
    openai_server.script(faults.without("usage", "model"))
    assert np.allclose(embedder_of(openai_server).embed(["x"]), expected(["x"]), atol=1e-7)


def test_a_slow_endpoint_times_out(openai_server: OpenAIServer) -> None:
    openai_server.script(faults.slow(20))
    started = time.monotonic()
    error = failure_of(embedder_of(openai_server, timeout_s=0.3, max_retries=0))
    assert (error.kind, error.retryable) == ("timeout", True)
    assert time.monotonic() - started < 2


def test_an_endpoint_that_drips_its_answer_times_out(openai_server: OpenAIServer) -> None:
    openai_server.script(faults.dripping(0.05))
    started = time.monotonic()
    error = failure_of(embedder_of(openai_server, timeout_s=0.4, max_retries=0))
    assert error.kind == "timeout"
    assert time.monotonic() - started < 2


def test_the_deadline_bounds_all_attempts(openai_server: OpenAIServer) -> None:
    openai_server.script(*[faults.slow(20)] * 9)
    started = time.monotonic()
    error = failure_of(embedder_of(openai_server, timeout_s=0.4, deadline_s=1.0, max_retries=9))
    assert error.kind == "timeout"
    assert 0.8 < time.monotonic() - started < 1.6


def test_a_closed_port_is_a_lost_connection() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    error = failure_of(open_embedder("m", 3, url, backoff_s=0.01, max_retries=1))
    assert (error.kind, error.retryable) == ("connection", True)
    assert "ConnectError" in error.message


def test_a_wrong_key_is_named_and_not_shown(openai_server: OpenAIServer) -> None:
    error = failure_of(embedder_of(openai_server, api_key="secret-value"))
    assert error.kind == "auth" and "check the API key" in error.message
    assert "secret-value" not in error.message


def test_credentials_in_the_address_are_not_shown(openai_server: OpenAIServer) -> None:
    openai_server.script(faults.failing(400))
    url = openai_server.base_url.replace("http://", "http://user:hidden@")
    error = failure_of(open_embedder("m", 384, url, "key"))
    assert "hidden" not in error.message


def test_no_key_is_needed_where_none_is_asked(openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    openai_server.api_key = None
    embedder_of(openai_server, api_key=None).embed(["x"])
    assert "from-the-environment" not in openai_server.requests[0].headers["authorization"]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"dims": 0}, "dims"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_tokens": 0}, "batch_tokens"),
        ({"window": 0}, "window"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"deadline_s": float("inf")}, "deadline_s"),
        ({"max_retries": -1}, "max_retries"),
        ({"backoff_s": float("nan")}, "backoff_s"),
        ({"base_url": "localhost:8080/v1"}, "base_url"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, Any], field: str) -> None:
    with raises_with(InvalidInput, field=field):
        open_embedder(**({"model": "m", "dims": 3, "base_url": "http://127.0.0.1/v1"} | options))


def test_address_and_port_are_known_to_telemetry() -> None:
    there = OpenAIEmbedder("m", 3)
    local = open_embedder("m", 3, "http://127.0.0.1:8080/v1")
    assert (there.server_address, there.server_port, there.system) == ("api.openai.com", 443, "openai")
    assert (local.server_address, local.server_port, local.system) == ("127.0.0.1", 8080, "openai_compatible")


def test_tokens_are_estimated() -> None:
    embedder = OpenAIEmbedder("m", 3)
    assert [embedder.count_tokens(text) for text in ("", "two words", "ภาษาไทย", "\u200b", "a\ud800")] == [
        0,
        2,
        7,
        1,
        1,
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_forked_child_opens_its_own_connection(openai_server: OpenAIServer) -> None:
    embedder = embedder_of(openai_server)
    embedder.embed(["before"])
    child = os.fork()
    if child == 0:
        good = np.allclose(embedder.embed(["in the child"]), expected(["in the child"]), atol=1e-7)
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.allclose(embedder.embed(["after"]), expected(["after"]), atol=1e-7)


class CountingEmbedder(WordEmbedder):
    """A question is read in another way than a passage."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def embed_query(self, text: str) -> Any:
        self.asked.append(text)
        return self._vector(f"query {text}")


def test_a_text_is_embedded_once_and_its_vector_is_the_same() -> None:
    inner = CountingEmbedder()
    embedder = CachingEmbedder(inner)
    first = embedder.embed(["a b", "c", "a b"])
    assert inner.embedded == ["a b", "c"] and first[0] is first[2]
    again = embedder.embed(["c", "d", "a b"])
    assert inner.embedded == ["a b", "c", "d"]
    assert [list(vector) for vector in again] == [list(inner._vector(text)) for text in ("c", "d", "a b")]
    assert embedder.embed([]) == [] and embedder.count_tokens("a b") == 2
    assert (embedder.model, embedder.dims, embedder.window, embedder.system) == ("words", 32, None, "ragd.test")


def test_a_question_is_not_taken_for_a_passage() -> None:
    inner = CountingEmbedder()
    embedder = CachingEmbedder(inner)
    passage, question = embedder.embed(["a"])[0], embedder.embed_query("a")
    assert not np.array_equal(passage, question)
    assert embedder.embed_query("a") is question and inner.asked == ["a"]


def test_what_was_asked_longest_ago_is_forgotten() -> None:
    inner = CountingEmbedder()
    embedder = CachingEmbedder(inner, passages=2)
    embedder.embed(["a", "b"])
    embedder.embed(["a"])
    embedder.embed(["c"])  # b goes
    embedder.embed(["a", "c"])
    assert inner.embedded == ["a", "b", "c"]
    assert len(embedder.embed(["d", "e", "f"])) == 3  # more than are kept come out whole


def test_a_failure_is_passed_on_and_nothing_is_remembered() -> None:
    class Failing(CountingEmbedder):
        def embed(self, texts: Any) -> Any:
            raise EmbedderError("away", kind="unreachable", retryable=True)

    embedder = CachingEmbedder(Failing())
    for _ in range(2):
        with pytest.raises(EmbedderError, match="away"):
            embedder.embed(["a"])
