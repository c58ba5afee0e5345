"""The content switch: what spans say of texts, in memory, in the store and on the wire.
Every call of an embedder is one embeddings span per request, with its tokens, also when it fails.
Records and the attributes that their annotations name, in all three vocabularies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args, get_type_hints

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from evaluation_app.telemetry.store.collector import redacted
from evaluation_app.telemetry.store.exporter import span_row
from ragd import telemetry
from ragd.errors import EmbedderError, EmptyContent
from ragd.models.embedding import LocalEmbedder, OpenAIEmbedder, Sizes
from ragd.models.openai_client import RetryPolicy, Server
from ragd.telemetry.content import Value
from ragd.telemetry.model_calls import read_timings
from ragd.telemetry.records import attributes_of, names_of
from ragd_site.observability.tracing import widest
from tests.fakes import faults
from tests.fakes.openai_server import OpenAIServer
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import QUERY, SECRET, make_candidates, make_query_spans
from tests.telemetry.test_spans import attributes

HASHED_QUERY = f"sha256:{hashlib.sha256(QUERY.encode()).hexdigest()}"


def everything(spans: Sequence[ReadableSpan]) -> str:
    """All that the spans say, as one text."""
    return "\n".join(span.to_json() for span in spans)


def test_the_example_has_something_to_leak(recorder: Recorder) -> None:
    make_query_spans(make_candidates(2))
    with pytest.raises(ValueError, match=SECRET), telemetry.retrieve_span(query=QUERY, top_k=1):
        raise ValueError(f"no {SECRET}")
    assert everything(recorder.spans).count(SECRET) > 30


@pytest.mark.parametrize("capture", ["hash", "none"])
def test_no_text_gets_out(recorder: Recorder, capture: telemetry.Capture) -> None:
    telemetry.configure(capture=capture)
    make_query_spans(make_candidates(2))
    with pytest.raises(ValueError, match=SECRET), telemetry.retrieve_span(query=QUERY, top_k=1):
        raise ValueError(f"no {SECRET}")
    assert SECRET not in everything(recorder.spans)


@pytest.mark.parametrize(("capture", "expected"), [("full", QUERY), ("hash", HASHED_QUERY), ("none", "__REDACTED__")])
def test_the_three_modes(recorder: Recorder, capture: telemetry.Capture, expected: str) -> None:
    telemetry.configure(capture=capture)
    make_query_spans(make_candidates(1))
    found = attributes(recorder.named("rag.retrieve "))
    for name in ("aitf.rag.query", "input.value", "gen_ai.retrieval.query.text"):
        assert found[name] == expected


def test_json_stays_json(recorder: Recorder) -> None:
    telemetry.configure(capture="none")
    make_query_spans(make_candidates(1))
    found = attributes(recorder.named("rag.retrieve "))
    assert json.loads(found["aitf.rag.retrieval.docs"]) == [
        {"id": "doc-0#0", "score": 1.0, "snippet": "__REDACTED__", "provenance": "house/doc-0"}
    ]
    messages = json.loads(attributes(recorder.named("chat "))["gen_ai.output.messages"])
    tool = {"type": "tool_call", "id": "call-1", "name": "look_up", "arguments": "__REDACTED__"}
    text = {"type": "text", "content": "__REDACTED__"}
    assert messages == [{"role": "assistant", "parts": [text, tool], "finish_reason": "stop"}]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("url.query", "q=secret", "__REDACTED__"),
        ("url.full", "http://x/ask?q=secret", "http://x/ask?__REDACTED__"),
        ("http.target", "/chat/", "/chat/"),
        ("ragd.pool", 50, 50),
        ("gen_ai.request.model", "gpt", "gpt"),
        ("aitf.rag.retrieval.docs", "no json", "__REDACTED__"),
        ("embedding.embeddings.0.embedding.vector", [0.5, 0.5], "__REDACTED__"),
        ("retrieval.documents.7.document.content", "secret", "__REDACTED__"),
        ("retrieval.documents.7.document.id", "d#7", "d#7"),
        ("gen_ai.request.stop_sequences", ["secret", "word"], ["__REDACTED__", "__REDACTED__"]),
        ("llm.invocation_parameters", '{"seed":7,"stop":["secret"]}', '{"seed":7,"stop":"__REDACTED__"}'),
    ],
)
def test_one_attribute(name: str, value: Value, expected: Value) -> None:
    assert telemetry.captured(name, value, "none") == expected


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("", ""),
        ("TimeoutError", "TimeoutError"),
        ("ValueError: no xylophone", "ValueError: __REDACTED__"),
        ("no xylophone", "__REDACTED__"),
        ("the xylophone: it is gone", "__REDACTED__"),
    ],
)
def test_a_status_description_keeps_the_name_of_the_error_only(description: str, expected: str) -> None:
    assert telemetry.captured_status(description, "none") == expected
    assert telemetry.captured_status(description, "full") == description


def test_redacting_twice_changes_nothing() -> None:
    once = telemetry.captured_text("secret", "hash")
    assert (telemetry.captured_text(once, "hash"), telemetry.captured_text(once, "none")) == (once, "__REDACTED__")
    assert telemetry.captured_text("__REDACTED__", "hash") == "__REDACTED__"


def test_a_wrong_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="capture must be one of full, hash, none, not 'some'"):
        telemetry.configure(capture="some")  # type: ignore[arg-type]


KEY = f"ragd_{'aB3-' * 10}xyz"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("url.query", f"api_key={KEY}&k=5", "api_key=[secret]&k=5"),
        ("url.query", f"q={KEY}", "q=[secret]"),
        ("url.query", f"next=%2Fv1%2Fruns%3Fapi_key%3D{KEY}", "next=[secret]"),
        ("url.query", "access_token=short&ACCESS-KEY=x&client_secret=y", "access_token=[secret]&ACCESS-KEY=[secret]"
         "&client_secret=[secret]"),
        ("url.query", KEY, "[secret]"),
        ("url.query", "code=4%2F0AY0e&state=failed", "code=[secret]&state=failed"),
        ("url.query", "query=what+is+a+token&collection=keys&token=", "query=what+is+a+token&collection=keys&token="),
        ("url.query", "barcode=1&author=x&side=2", "barcode=1&author=x&side=2"),
        ("url.full", "https://me:pw@x.org/a?X-Amz-Signature=00ff&v=1", "https://x.org/a?X-Amz-Signature=[secret]&v=1"),
        ("http.target", f"/v1/{KEY}?sig=a", "/v1/[secret]?sig=[secret]"),
        ("url.path", f"/v1/runs/{KEY}", "/v1/runs/[secret]"),
        ("http.url", "http://x/chat/?a=b@c", "http://x/chat/?a=b@c"),
    ],
)  # fmt: skip
def test_no_secret_of_an_address_is_stored_or_sent(recorder: Recorder, name: str, value: str, expected: str) -> None:
    tracer = trace.get_tracer("opentelemetry.instrumentation.django")
    with tracer.start_as_current_span("GET", kind=SpanKind.SERVER, attributes={name: value}) as span:
        span.add_event("seen", {name: value})
    stored, sent = span_row(recorder.spans[0], "full"), redacted(recorder.spans[0], "full")
    stored_attributes, stored_events = (json.loads(stored[index]) for index in (14, 15))
    said = [sent.attributes, sent.events[0].attributes, stored_attributes, stored_events[0]["attributes"]]
    assert [dict(each or {})[name] for each in said] == [expected] * 4


def test_what_leaves_the_machine_has_a_switch_of_its_own(recorder: Recorder) -> None:
    make_query_spans(make_candidates(2))
    with pytest.raises(ValueError, match=SECRET), telemetry.stage("ragd.parse", text=SECRET):
        raise ValueError(f"no {SECRET}")
    outside = [redacted(span, "none") for span in recorder.spans]
    assert SECRET in everything(recorder.spans)
    assert SECRET not in everything(outside)
    assert [(span.name, span.context) for span in outside] == [(span.name, span.context) for span in recorder.spans]


def test_full_outside_is_the_span_as_it_is(recorder: Recorder) -> None:
    make_query_spans(make_candidates(1))
    span = recorder.named("rag.retrieve ")
    assert json.loads(redacted(span, "full").to_json()) == json.loads(span.to_json())


@pytest.mark.parametrize("capture", ["hash", "none"])
def test_the_store_has_its_own_switch(recorder: Recorder, capture: telemetry.Capture) -> None:
    make_query_spans(make_candidates(2))
    assert SECRET not in str([span_row(span, capture) for span in recorder.spans])


@pytest.mark.parametrize("local", get_args(telemetry.Capture))
@pytest.mark.parametrize("remote", get_args(telemetry.Capture))
def test_memory_holds_what_the_more_open_switch_needs(local: telemetry.Capture, remote: telemetry.Capture) -> None:
    order = ["full", "hash", "none"]
    assert widest(local, remote) == order[min(order.index(local), order.index(remote))]


VALUES = {str: "text", int: 3, float: 0.5, bool: True}
# what a call finds out itself, and what goes by another name
COMPUTED = {"total_ms", "risk_score", "tokens_per_second"}


@dataclass
class Sample:
    model: Annotated[str, "a.model", "b.model"]
    share: Annotated[float | None, "a.share"] = None
    words: Annotated[tuple[str, ...], "a.words"] = ()
    inside: str = "not written"

    @property
    def length(self) -> Annotated[int, "a.length"]:
        return len(self.model)


def test_a_field_has_a_name_in_each_vocabulary() -> None:
    assert attributes_of(Sample("m")) == {"a.model": "m", "b.model": "m", "a.length": 1}
    whole = attributes_of(Sample("m", share=1, words=("x", "y")))
    assert (whole["a.share"], type(whole["a.share"]), whole["a.words"]) == (1.0, float, ["x", "y"])


def sample_of(hint: Any) -> Any:
    """A value that a field of this annotation takes."""
    kind = get_args(hint)[0]
    for member in (kind, *get_args(kind)):
        if member in VALUES:
            return VALUES[member]
    return ["text"] if "Sequence" in str(kind) else get_args(kind)[0]


@pytest.mark.parametrize("kind", [telemetry.ChatCall, telemetry.EmbeddingsCall])
def test_every_field_of_a_call_reaches_its_span(recorder: Recorder, kind: type[Any]) -> None:
    """Each field by all of its names, whenever it was set: at the start or while the call ran."""
    hints = get_type_hints(kind, include_extras=True)
    written = {field.name: sample_of(hints[field.name]) for field in fields(kind) if field.name in names_of(kind)}
    with kind(system=written.pop("system"), model=written.pop("model")) as call:
        for name, value in written.items():
            setattr(call, name, value)
    found = attributes(recorder.spans[0])
    for field, (names, _) in names_of(kind).items():
        value = getattr(call, field)
        if field not in COMPUTED and value is not None:
            wanted = tuple(value) if isinstance(value, list) else value
            assert {name: found[name] for name in names} == dict.fromkeys(names, wanted), field


@pytest.mark.parametrize("kind", telemetry.RECORDS)
def test_no_two_fields_of_a_record_share_a_name(kind: type[Any]) -> None:
    names = [name for each, _ in names_of(kind).values() for name in each]
    assert len(names) == len(set(names)) and names


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
