"""The span store: what is written, and what happens when it cannot be."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult

from collections_app.models import Status
from evaluation_app.models import Span
from evaluation_app.telemetry.store.exporter import CountingProcessor, PostgresSpanExporter
from ragd import telemetry
from ragd_site.observability import tracing as site_telemetry
from ragd_site.observability.tracing import LIMITS, build_resource
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import make_candidates, make_query_spans

pytestmark = pytest.mark.usefixtures("span_table")


@pytest.fixture
def exporter(span_table: None) -> Iterator[PostgresSpanExporter]:
    made = PostgresSpanExporter(site_telemetry.connect, name="web@test")
    yield made
    made.shutdown()


def test_spans_are_stored_as_they_were(recorder: Recorder, exporter: PostgresSpanExporter) -> None:
    trace_id = make_query_spans(make_candidates(3))
    assert exporter.export(recorder.spans) is SpanExportResult.SUCCESS
    stored = {span.name: span for span in Span.objects.of_trace(trace_id)}
    assert sorted(stored) == sorted(span.name for span in recorder.spans)
    retrieve, recorded = stored["rag.retrieve postgresql+pgvector"], recorder.named("rag.retrieve ")
    assert recorded.attributes is not None and recorded.start_time is not None and recorded.end_time is not None
    assert retrieve.attributes == dict(recorded.attributes)
    assert [event["name"] for event in retrieve.events] == [event.name for event in recorded.events]
    assert (retrieve.kind, retrieve.status_code, retrieve.scope) == ("CLIENT", "OK", "ragd")
    assert (retrieve.collection, str(retrieve.run_id)) == ("house", "00000000-0000-0000-0000-000000000001")
    assert retrieve.parent_span_id == stored["rag.pipeline house"].span_id
    assert retrieve.duration_ms == (recorded.end_time - recorded.start_time) / 1e6
    assert int(retrieve.started_at.timestamp() * 1e6) == recorded.start_time // 1000
    assert retrieve.dropped_count == 0


def test_a_failure_is_stored_with_its_description(recorder: Recorder, exporter: PostgresSpanExporter) -> None:
    with pytest.raises(TimeoutError), telemetry.EmbeddingsCall(system="openai", model="small"):
        raise TimeoutError("too slow")
    exporter.export(recorder.spans)
    span = Span.objects.get()
    assert (span.status_code, span.status_description, span.has_failed) == ("ERROR", "TimeoutError: too slow", True)


def test_what_postgres_cannot_store_is_replaced(recorder: Recorder, exporter: PostgresSpanExporter) -> None:
    with telemetry.pipeline_span("hou\x00se", 'nul \x00, surrogate \ud800, quote ", \\u0000, tab \t, new\nline'):
        telemetry.add_event(trace.get_current_span(), "odd\x00", {"not a number": float("nan"), "\ud800": "x"})
    assert exporter.export(recorder.spans) is SpanExportResult.SUCCESS
    span = Span.objects.get()
    assert span.name == "rag.pipeline house"
    assert span.attributes["aitf.rag.query"] == 'nul , surrogate ?, quote ", \\u0000, tab \t, new\nline'
    assert (span.events[0]["name"], span.events[0]["attributes"]) == ("odd", {"not a number": "nan", "?": "x"})


def test_a_name_of_any_length_is_stored(recorder: Recorder, exporter: PostgresSpanExporter) -> None:
    """No index takes a value that long, and with one span a whole batch would be lost."""
    model = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789\u65e5\u672c", k=20_000))
    origin = telemetry.QueryOrigin(api_key=model)
    with telemetry.pipeline_span("house", "q", origin), telemetry.ChatCall("openai", model):
        pass
    assert exporter.export(recorder.spans) is SpanExportResult.SUCCESS
    chat = Span.objects.get(type="gen_ai.inference")
    assert (len(chat.name), chat.model, chat.api_key) == (500, model[:500], model[:500])
    assert chat.attributes["gen_ai.request.model"] == model


def test_counts_are_kept_per_process(recorder: Recorder, exporter: PostgresSpanExporter) -> None:
    make_query_spans()
    exporter.export(recorder.spans)
    exporter.export(recorder.spans[:2])
    (writer,) = Status.objects.span_writers().values_list("name", "values__written", "values__lost")
    assert writer == (f"web@test:{os.getpid()}", len(recorder.spans) + 2, 0)


def test_a_database_that_is_away_costs_only_the_spans(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def connect() -> psycopg.Connection[Any]:
        tries.append(time.monotonic())
        if len(tries) == 1:
            raise psycopg.OperationalError("connection refused")
        return site_telemetry.connect()

    exporter = PostgresSpanExporter(connect, name="web@test")
    make_query_spans()
    assert exporter.export(recorder.spans) is SpanExportResult.FAILURE
    assert exporter.export(recorder.spans) is SpanExportResult.FAILURE
    assert (len(tries), exporter.lost) == (1, 2 * len(recorder.spans))  # the second batch did not try again at once
    monkeypatch.setattr(exporter, "_retry_at", 0.0)
    assert exporter.export(recorder.spans) is SpanExportResult.SUCCESS
    values = Status.objects.span_writers().get().values
    assert (values["written"], values["lost"]) == (len(recorder.spans), 2 * len(recorder.spans))
    assert values["last_error"] == "OperationalError: connection refused" and values["last_error_at"]
    exporter.shutdown()


def test_a_lost_connection_is_opened_again(
    recorder: Recorder, exporter: PostgresSpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_query_spans()
    exporter.export(recorder.spans)
    assert exporter._connection is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [exporter._connection.info.backend_pid])
    assert exporter.export(recorder.spans) is SpanExportResult.FAILURE
    monkeypatch.setattr(exporter, "_retry_at", 0.0)
    assert exporter.export(recorder.spans) is SpanExportResult.SUCCESS
    assert Span.objects.count() == 2 * len(recorder.spans)


def test_a_locked_table_is_waited_for_briefly(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_telemetry, "SESSION_OPTIONS", "-c lock_timeout=100")
    exporter = PostgresSpanExporter(site_telemetry.connect, name="web@test")
    make_query_spans()
    with site_telemetry.connect() as other, other.transaction():
        other.execute("LOCK TABLE spans IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        assert exporter.export(recorder.spans) is SpanExportResult.FAILURE
        assert time.monotonic() - began < 1.5
    assert (exporter.lost, Span.objects.count()) == (len(recorder.spans), 0)


def make_provider(processor: CountingProcessor) -> TracerProvider:
    provider = TracerProvider(resource=build_resource("test"), span_limits=LIMITS, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider


def test_a_full_queue_loses_and_counts() -> None:
    release = threading.Event()

    def connect() -> psycopg.Connection[Any]:
        release.wait(10)
        return site_telemetry.connect()

    exporter = PostgresSpanExporter(connect, name="web@test")
    provider = make_provider(CountingProcessor(exporter, max_queue_size=10, max_export_batch_size=10))
    tracer = provider.get_tracer("ragd")
    began = time.monotonic()
    for number in range(100):
        tracer.start_span(f"ragd.n{number}").end()
    assert time.monotonic() - began < 1.0  # nobody waited for the store
    release.set()
    provider.shutdown()
    written = Span.objects.count()
    assert written + exporter.lost == 100
    assert 10 <= written <= 30


def test_a_forked_process_writes_its_own_spans(recorder: Recorder) -> None:
    exporter = PostgresSpanExporter(site_telemetry.connect, name="worker@test")
    provider = make_provider(CountingProcessor(exporter))
    tracer = provider.get_tracer("ragd")
    tracer.start_span("ragd.parent").end()
    provider.force_flush()
    pid = os.fork()
    if pid == 0:
        tracer.start_span("ragd.child").end()
        provider.force_flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    tracer.start_span("ragd.parent").end()
    provider.force_flush()
    provider.shutdown()
    assert sorted(Span.objects.values_list("name", flat=True)) == ["ragd.child", "ragd.parent", "ragd.parent"]
    counts = Status.objects.span_writers().values_list("values__written", "values__lost")
    assert sorted(counts) == [(1, 0), (2, 0)]


def test_the_log_is_not_flooded(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def connect() -> psycopg.Connection[Any]:
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(PostgresSpanExporter, "retry_after_s", 0.0)
    exporter = PostgresSpanExporter(connect, name="web@test")
    make_query_spans()
    for _ in range(5):
        exporter.export(recorder.spans)
    assert len(caplog.records) == 1
