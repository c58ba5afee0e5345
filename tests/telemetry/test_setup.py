"""What the site traces and leaves out, and what reaches a collector."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags

from ragd import SPEC_VERSION, telemetry
from ragd.version import product_version
from ragd_site.observability.tracing import RagdSampler, otlp_processor
from tests.fakes.serving import Serving
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import SECRET, make_candidates, make_query_spans


def keeps(name: str, kind: SpanKind, parent: trace.Span | None = None) -> bool:
    context = trace.set_span_in_context(parent) if parent is not None else None
    return RagdSampler().should_sample(context, 1, name, kind).decision.is_sampled()


def remote(*, sampled: bool) -> NonRecordingSpan:
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    return NonRecordingSpan(SpanContext(1, 2, is_remote=True, trace_flags=flags))


@pytest.mark.parametrize(
    ("name", "kind", "kept"),
    [
        ("GET ask/", SpanKind.SERVER, True),
        ("SELECT", SpanKind.CLIENT, False),
        ("POST", SpanKind.CLIENT, False),
        ("rag.retrieve postgresql+pgvector", SpanKind.CLIENT, True),
        ("embeddings all-MiniLM-L6-v2", SpanKind.CLIENT, True),
        ("chat gpt-4o", SpanKind.CLIENT, True),
        ("rag.pipeline house", SpanKind.INTERNAL, True),
        ("run/collections.run_ingest_job", SpanKind.CONSUMER, True),
        ("run/collections.maintain_jobs", SpanKind.CONSUMER, False),
        ("apply_async/collections.maintain_jobs", SpanKind.PRODUCER, False),
    ],
)
def test_which_roots_are_kept(name: str, kind: SpanKind, kept: bool) -> None:
    assert keeps(name, kind) is kept


def test_sql_is_kept_inside_the_stages_of_a_query_only(recorder: Recorder) -> None:
    tracer = trace.get_tracer("opentelemetry.instrumentation.psycopg")
    with trace.get_tracer("opentelemetry.instrumentation.django").start_as_current_span("GET", kind=SpanKind.SERVER):
        tracer.start_span("SELECT session", kind=SpanKind.CLIENT).end()
        with telemetry.stage(telemetry.VECTOR, pool=50):
            tracer.start_span("SELECT chunks", kind=SpanKind.CLIENT).end()
        with telemetry.stage(telemetry.STORE, chunks_count=3):
            tracer.start_span("INSERT chunks", kind=SpanKind.CLIENT).end()
    assert sorted(recorder.names()) == ["GET", "SELECT chunks", "rag.vector", "ragd.store"]


def test_a_client_cannot_switch_tracing_off() -> None:
    assert keeps("POST v1/", SpanKind.SERVER, remote(sampled=False))
    assert keeps("POST v1/", SpanKind.SERVER, remote(sampled=True))


def test_what_stands_in_an_unsampled_span_is_left_out() -> None:
    assert not keeps("run/collections.run_ingest_job", SpanKind.CONSUMER, remote(sampled=False))
    assert not keeps("ragd.ingest", SpanKind.INTERNAL, remote(sampled=False))


class Collector(BaseHTTPRequestHandler):
    """An OTLP/HTTP receiver that keeps what it gets."""

    requests: list[ExportTraceServiceRequest]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.path == "/v1/traces"
        self.requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ExportTraceServiceRequest]]:
    requests: list[ExportTraceServiceRequest] = []
    handler = type("Handler", (Collector,), {"requests": requests})
    with Serving(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.address)
        yield requests


@pytest.mark.parametrize(("capture", "leaks"), [("none", False), ("hash", False), ("full", True)])
def test_spans_reach_a_collector(
    recorder: Recorder, collector: list[ExportTraceServiceRequest], capture: telemetry.Capture, leaks: bool
) -> None:
    recorder.onward = otlp_processor(capture)
    make_query_spans(make_candidates(2))
    recorder.onward.shutdown()
    received = [
        span
        for request in collector
        for part in request.resource_spans
        for scope in part.scope_spans
        for span in scope.spans
    ]
    assert sorted(span.name for span in received) == sorted(recorder.names())
    assert (SECRET in str(collector)) is leaks
    retrieve = next(span for span in received if span.name.startswith("rag.retrieve"))
    found = {item.key: item.value for item in retrieve.attributes}
    assert found["openinference.span.kind"].string_value == "RETRIEVER"
    assert found["retrieval.documents.1.document.score"].double_value == 0.995
    assert found["aitf.rag.retrieve.results_count"].int_value == 2
    resource = {item.key: item.value.string_value for item in collector[0].resource_spans[0].resource.attributes}
    assert (resource["service.name"], resource["openinference.project.name"]) == ("ragd-test", "ragd")
    assert (resource["service.version"], resource["ragd.spec.version"]) == (product_version(), SPEC_VERSION)
