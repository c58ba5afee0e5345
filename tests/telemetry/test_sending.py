"""Spans to a collector: what it is told in which protocol, and what happens when it is away."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace.export import SpanExportResult

from collections_app.access.permissions import Role
from collections_app.models import RoleGrant, Status
from evaluation_app.telemetry.store import collector as collector_module
from evaluation_app.telemetry.store.collector import (
    TEST_SPAN,
    Collector,
    CollectorClient,
    CollectorExporter,
    name_endpoint,
)
from evaluation_app.telemetry.store.exporter import CountingProcessor
from evaluation_app.telemetry.store.span_store import collector_state
from ragd_site.observability import tracing as site_telemetry
from ragd_site.observability.tracing import configured, request_headers, traces_endpoint
from tests.fakes.serving import Serving
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import make_candidates, make_query_spans
from tests.telemetry.test_exports import spans_of, to_request
from tests.web.pages import has

PREFIX = "OTEL_EXPORTER_OTLP"


@dataclass
class Receiver:
    """A collector. status, answer: what it answers."""

    url: str = ""
    status: int = 200
    answer: bytes = b""
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            made.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(made.status)
            self.send_header("Content-Length", str(len(made.answer)))
            if 300 <= made.status < 400:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(made.answer)

        do_GET = do_POST

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with Serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        made.url = server.address
        monkeypatch.setenv(f"{PREFIX}_ENDPOINT", made.url)
        yield made


def sender() -> CollectorExporter:
    return CollectorExporter(site_telemetry.connect, name="web@test")


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_both_protocols_say_the_same(
    recorder: Recorder, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, settings: Any, protocol: str
) -> None:
    monkeypatch.setenv(f"{PREFIX}_PROTOCOL", protocol)
    settings.OTEL_EXPORTER_OTLP_HEADERS = "api-key=s%20ecret,x-team=rag"
    monkeypatch.setenv(f"{PREFIX}_COMPRESSION", "gzip")
    trace_id = make_query_spans(make_candidates(2))
    client = CollectorClient(configured())
    client.deliver(recorder.spans)
    client.exporter.shutdown()  # type: ignore[no-untyped-call]
    ((path, headers, body),) = receiver.requests
    kind = "application/json" if protocol == "http/json" else "application/x-protobuf"
    assert (path, headers["content-type"], headers["content-encoding"]) == ("/v1/traces", kind, "gzip")
    assert (headers["api-key"], headers["x-team"]) == ("s ecret", "rag")
    text = gzip.decompress(body)
    request = to_request(text.decode()) if protocol == "http/json" else ExportTraceServiceRequest.FromString(text)
    sent = {span.name: span for span in spans_of(request)}
    assert sorted(sent) == sorted(span.name for span in recorder.spans)
    assert {span.trace_id.hex() for span in sent.values()} == {trace_id}
    if protocol == "http/json":
        assert f'"traceId":"{trace_id}"'.encode() in text and b'"kind":3' in text
        assert json.loads(text)["resourceSpans"]


def test_redirects_are_not_followed_and_other_headers_stay_here(
    receiver: Receiver, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(f"{PREFIX}_HEADERS", "api-key=of-another-collector")
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ada password lovelace")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    client = CollectorClient(Collector(f"{receiver.url}/v1/traces", "http/protobuf", {"x-team": "rag"}))
    make_query_spans()
    receiver.status = 302
    with pytest.raises(OSError, match="answered 302"):
        client.deliver(recorder.spans)
    ((_, headers, _),) = receiver.requests
    assert headers["x-team"] == "rag" and not {"api-key", "authorization"} & headers.keys()


def test_an_error_does_not_repeat_the_query_of_an_endpoint(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}_TIMEOUT", "0.5")
    make_query_spans()
    with pytest.raises(OSError, match="ConnectionRefusedError") as failed:
        CollectorClient(Collector("http://127.0.0.1:9/v1/traces?key=1", "http/json", {})).deliver(recorder.spans)
    assert "key" not in str(failed.value)


def test_headers_of_one_signal_go_before_those_of_all(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.OTEL_EXPORTER_OTLP_HEADERS = "api-key=all"
    monkeypatch.setenv(f"{PREFIX}_METRICS_HEADERS", "api-key=metrics")
    assert (request_headers("TRACES"), request_headers("METRICS")) == ({"api-key": "all"}, {"api-key": "metrics"})


def test_an_endpoint_is_named_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert name_endpoint("https://ada:word@host:4318/v1/traces?key=1") == "https://host:4318/v1/traces"
    monkeypatch.delenv(f"{PREFIX}_ENDPOINT", raising=False)
    assert traces_endpoint() == ""
    monkeypatch.setenv(f"{PREFIX}_ENDPOINT", "http://host:4318/")
    assert traces_endpoint() == "http://host:4318/v1/traces"
    monkeypatch.setenv(f"{PREFIX}_TRACES_ENDPOINT", "http://other/x")
    assert traces_endpoint() == "http://other/x"


@pytest.mark.usefixtures("span_table")
def test_a_collector_that_refuses_is_left_alone_and_what_it_missed_counted(
    recorder: Recorder, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{PREFIX}_TIMEOUT", "0.5")  # shorter than the wait before the exporter asks again
    monkeypatch.setattr(collector_module, "NOTE_EVERY_S", 0.0)
    make_query_spans()
    exporter, count = sender(), len(recorder.spans)
    for _ in range(3 * count):
        exporter.offer()
    receiver.status = 503
    assert exporter.export(recorder.spans) is SpanExportResult.FAILURE
    assert exporter.export(recorder.spans) is SpanExportResult.FAILURE
    assert len(receiver.requests) == 1  # the second batch was not even prepared
    exporter._retry_at = 0.0
    receiver.status = 200
    assert exporter.export(recorder.spans) is SpanExportResult.SUCCESS
    assert (exporter.delivered, exporter.lost) == (count, 2 * count)
    state = collector_state()
    assert (state.sent, state.lost, state.endpoint) == (count, 2 * count, f"{receiver.url}/v1/traces")
    assert "answered 503" in state.last_error and state.last_error_at is not None
    exporter.shutdown()
    Status.objects.span_writers().delete()


@pytest.mark.usefixtures("span_table")
def test_a_collector_that_is_away_costs_nothing(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv(f"{PREFIX}_TIMEOUT", "0.5")
    processor = CountingProcessor(sender())
    recorder.onward = processor
    began = time.monotonic()
    traces = [make_query_spans() for _ in range(3)]
    assert all(traces) and time.monotonic() - began < 0.5  # nobody waited for the collector
    processor.force_flush()
    deadline = time.monotonic() + 10
    while processor.exporter.lost < len(recorder.spans) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (processor.exporter.delivered, processor.exporter.lost) == (0, len(recorder.spans))
    processor.shutdown()
    values = Status.objects.span_writers().get().values
    assert (values["written"], values["lost"]) == (0, len(recorder.spans)) and "127.0.0.1" in values["last_error"]
    Status.objects.span_writers().delete()


def test_a_full_queue_is_counted() -> None:
    exporter = sender()
    exporter.waiting = lambda: 4
    for _ in range(10):
        exporter.offer()
    assert exporter.lost == 6
    exporter._begin()
    exporter.waiting = lambda: 0
    assert exporter.lost == 0  # a forked child counts its own


COLLECTOR = "/settings/server/?view=collector"


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_a_test_span_says_what_came_back(
    admin_client: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, settings: Any, protocol: str
) -> None:
    monkeypatch.setenv(f"{PREFIX}_PROTOCOL", protocol)
    settings.OTEL_EXPORTER_OTLP_HEADERS = "api-key=secret"
    trial = admin_client.post(COLLECTOR).context["trial"]
    ((path, headers, body),) = receiver.requests
    request = to_request(body.decode()) if protocol == "http/json" else ExportTraceServiceRequest.FromString(body)
    assert [(span.name, span.trace_id.hex()) for span in spans_of(request)] == [(TEST_SPAN, trial.trace_id)]
    assert (path, headers["api-key"]) == ("/v1/traces", "secret")
    assert (trial.passed, trial.status, trial.endpoint) == (True, 200, f"{receiver.url}/v1/traces")
    page = admin_client.get(COLLECTOR)
    assert page.context["header_names"] == ["api-key"] and b"secret" not in page.content
    receiver.status, receiver.answer = 401, b"no key"
    trial = admin_client.post(COLLECTOR).context["trial"]
    assert (trial.passed, trial.status, trial.said) == (False, 401, "no key")
    rejected = ExportTraceServiceResponse(
        partial_success=ExportTracePartialSuccess(rejected_spans=1, error_message="too old")
    )
    receiver.status = 200
    receiver.answer = MessageToJson(rejected).encode() if protocol == "http/json" else rejected.SerializeToString()
    trial = admin_client.post(COLLECTOR).context["trial"]
    assert (trial.passed, trial.status) == (False, 200) and "too old" in trial.said
    receiver.answer = b"<html>"
    assert admin_client.post(COLLECTOR).context["trial"].passed is False


def test_where_spans_go_is_for_administrators(client: Client, receiver: Receiver, django_user_model: Any) -> None:
    ada = django_user_model.objects.create_user("ada")
    for role in (Role.CURATOR, Role.EVALUATOR):
        RoleGrant.objects.create(user=ada, collection_id=0, role=role)
    client.force_login(ada)
    assert [client.get(COLLECTOR).status_code, client.post(COLLECTOR).status_code] == [403, 403]
    assert not receiver.requests
    assert not has(client.get("/settings/appearance/?view=connections"), "#collector")
