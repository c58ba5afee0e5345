"""The content switch: what spans say of texts, in memory, in the store and on the wire."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import get_args

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from evaluation_app.telemetry.store.collector import redacted
from evaluation_app.telemetry.store.exporter import span_row
from ragd import telemetry
from ragd.telemetry.content import Value
from ragd_site.observability.tracing import widest
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
