"""Every call of an embedder is one embeddings span per request, with its tokens, also when it fails."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from ragd import telemetry
from ragd.errors import EmbedderError, EmptyContent
from ragd.models.embedding import LocalEmbedder, OpenAIEmbedder, Sizes
from ragd.models.openai_client import RetryPolicy, Server
from ragd.telemetry.model_calls import read_timings
from tests.fakes import faults
from tests.fakes.openai_server import OpenAIServer
from tests.telemetry.conftest import Recorder


def facts(recorder: Recorder) -> list[tuple[Any, ...]]:
    names = ("gen_ai.system", "gen_ai.request.model", "gen_ai.usage.input_tokens", "ragd.usage.estimated")
    return [tuple((span.attributes or {}).get(name) for name in names) for span in recorder.spans]


def remote(server: OpenAIServer, **options: Any) -> OpenAIEmbedder:
    place = Server(server.base_url, server.api_key)
    return OpenAIEmbedder("text-embedding-x", server.dims, place, policy=RetryPolicy(backoff_s=0.01), **options)


def test_a_local_call_counts_the_tokens_that_the_model_read(recorder: Recorder) -> None:
    LocalEmbedder().embed(["hello world", "hello", "hello world", "word " * 300])
    assert facts(recorder) == [("ragd.local", "all-MiniLM-L6-v2", 4 + 3 + 304, False)]
    assert recorder.spans[0].name == "embeddings all-MiniLM-L6-v2"


def test_a_remote_call_has_a_span_per_request_with_the_reported_tokens(
    recorder: Recorder, openai_server: OpenAIServer
) -> None:
    remote(openai_server, sizes=Sizes(batch_size=2)).embed(["one text", "two", "three and four"])
    assert facts(recorder) == [
        ("openai_compatible", "text-embedding-x", 3, False),
        ("openai_compatible", "text-embedding-x", 3, False),
    ]
    attributes = recorder.spans[0].attributes or {}
    assert (attributes["server.address"], attributes["server.port"]) == ("127.0.0.1", openai_server.port)


def test_a_failed_call_carries_the_estimated_tokens(recorder: Recorder, openai_server: OpenAIServer) -> None:
    openai_server.script(faults.failing(400))
    with pytest.raises(EmbedderError):
        remote(openai_server).embed(["one text"])
    assert facts(recorder) == [("openai_compatible", "text-embedding-x", 2, True)]
    assert recorder.spans[0].status.status_code is StatusCode.ERROR


def test_retries_stay_inside_one_span(recorder: Recorder, openai_server: OpenAIServer) -> None:
    openai_server.script(faults.failing(500), faults.failing(500))
    remote(openai_server).embed(["one text"])
    assert len(openai_server.requests) == 3
    assert facts(recorder) == [("openai_compatible", "text-embedding-x", 2, False)]


def test_no_call_no_span(recorder: Recorder, openai_server: OpenAIServer) -> None:
    remote(openai_server).embed([])
    with pytest.raises(EmptyContent):
        LocalEmbedder().embed([""])
    assert recorder.spans == []


def test_what_a_provider_says_of_its_time_is_on_the_span(recorder: Recorder, openai_server: OpenAIServer) -> None:
    openai_server.script(faults.Fault(headers={"X-Queue-Time": "12.5", "Openai-Processing-Ms": "30"}))
    remote(openai_server).embed(["one text"])
    found = recorder.spans[0].attributes or {}
    assert (found["aitf.latency.queue_time_ms"], found["aitf.latency.inference_time_ms"]) == (12.5, 30.0)


@pytest.mark.parametrize(
    ("headers", "usage", "expected"),
    [
        ({}, {}, (None, None)),
        ({"x-queue-time": "nan", "x-inference-time": "-1", "openai-processing-ms": "soon"}, {}, (None, None)),
        ({"fireworks-server-processing-time": "0.25"}, {}, (None, 250.0)),
        ({}, {"queue_time": 0.5, "prompt_time": 0.25, "completion_time": 1.0}, (500.0, 1250.0)),
        ({"x-queue-time": "0"}, {"queue_time": 0.5}, (0.0, None)),
    ],
)
def test_timings_of_providers(headers: dict[str, str], usage: dict[str, Any], expected: tuple[Any, Any]) -> None:
    found = read_timings(headers, usage)
    assert (found.queue_ms, found.inference_ms) == expected


def test_vectors_are_shown_only_where_they_are_wanted(recorder: Recorder, openai_server: OpenAIServer) -> None:
    name = "embedding.embeddings.1.embedding.vector"
    embedder = remote(openai_server)
    [_, vector] = embedder.embed(["one", "two"])
    assert name not in (recorder.spans[0].attributes or {})
    telemetry.configure(vectors=True)
    embedder.embed(["one", "two"])
    assert (recorder.spans[1].attributes or {})[name] == pytest.approx(tuple(vector))
    telemetry.configure(vectors=True, capture="hash")
    embedder.embed(["one", "two"])
    assert (recorder.spans[2].attributes or {})[name] == "__REDACTED__"


def test_a_wait_on_this_side_belongs_to_the_first_call(recorder: Recorder, openai_server: OpenAIServer) -> None:
    openai_server.script(faults.Fault(headers={"X-Queue-Time": "12"}))
    with telemetry.waited(250.0):
        remote(openai_server, sizes=Sizes(batch_size=1)).embed(["one", "two"])
    with telemetry.waited(0.0):
        remote(openai_server).embed(["three"])
    waits = [(span.attributes or {}).get("aitf.latency.queue_time_ms") for span in recorder.spans]
    assert waits == [262.0, None, None]


@pytest.mark.parametrize("sends", [True, False])
def test_dimensions_are_those_that_were_requested(recorder: Recorder, openai_server: OpenAIServer, sends: bool) -> None:
    remote(openai_server, send_dimensions=sends).embed(["one text"])
    LocalEmbedder().embed(["one text"])
    asked, local = (span.attributes or {} for span in recorder.spans)
    assert asked.get(telemetry.REQUEST_DIMENSIONS) == (openai_server.dims if sends else None)
    assert asked[telemetry.DIMENSION_COUNT] == openai_server.dims
    assert ("dimensions" in str(asked[telemetry.OI_EMBEDDING_PARAMETERS])) is sends
    assert telemetry.REQUEST_DIMENSIONS not in local and local[telemetry.DIMENSION_COUNT] == 384
