"""Reading the span store back: runs, waterfalls, retention."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evaluation_app.models import Span
from evaluation_app.telemetry.store.span_store import run_spans
from evaluation_app.telemetry.traces.waterfall import build_waterfall, run_waterfall, trace_waterfall
from retrieval_app.models import QueryRun

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
TRACE = "a" * 32


def make_span(name: str, parent: str | None = None, *, at_ms: float = 0, took_ms: float = 10, **values: object) -> Span:
    started_at = values.pop("started_at", NOON + timedelta(milliseconds=at_ms))
    assert isinstance(started_at, datetime)
    return Span.objects.create(
        **{
            "trace_id": TRACE,
            "span_id": name,
            "parent_span_id": parent,
            "name": name,
            "kind": "INTERNAL",
            "started_at": started_at,
            "ended_at": started_at + timedelta(milliseconds=took_ms),
            "duration_ms": took_ms,
            **values,
        }
    )


def make_run(**values: object) -> QueryRun:
    defaults = {"kind": "search", "collection_name": "house", "query": "pump", "channel": "api", "trace_id": TRACE}
    return QueryRun.objects.create(**(defaults | values))


@pytest.fixture
def run(db: None) -> Iterator[QueryRun]:
    run = make_run()
    make_span("request", took_ms=100)
    make_span("root", "request", at_ms=10, took_ms=80, run_id=run.pk)
    make_span("retrieve", "root", at_ms=20, took_ms=40, run_id=run.pk)
    make_span("sql", "retrieve", at_ms=25, took_ms=10)
    make_span("query", "root", at_ms=12, took_ms=5, run_id=run.pk, status_code="ERROR")
    yield run


def test_a_waterfall_is_nested_and_in_order(run: QueryRun) -> None:
    waterfall = run_waterfall(run)
    assert [(row.span.name, row.depth, row.offset_ms, row.duration_ms) for row in waterfall.rows] == [
        ("root", 0, 0, 80),
        ("query", 1, 2, 5),
        ("retrieve", 1, 10, 40),
        ("sql", 2, 15, 10),
    ]
    assert [(row.left, row.width) for row in waterfall.rows[:3]] == [(0, 100), (2.5, 6.25), (12.5, 50)]
    assert (waterfall.total_ms, waterfall.failed_count) == (80, 1), "the axis is the time that the run took"
    whole = trace_waterfall(TRACE)
    assert [row.span.name for row in whole.rows] == ["request", "root", "query", "retrieve", "sql"]
    assert (whole.total_ms, whole.started_at) == (100, NOON)


def test_two_runs_of_one_trace_are_kept_apart(run: QueryRun) -> None:
    other = make_run()
    make_span("root2", "request", at_ms=95, took_ms=5, run_id=other.pk)
    make_span("sql2", "root2", at_ms=96, took_ms=1)
    assert [span.name for span in run_spans(run)] == ["request", "root", "query", "retrieve", "sql"]
    assert [span.name for span in run_spans(other)] == ["request", "root2", "sql2"]


def test_of_a_trace_of_many_runs_only_the_own_spans_are_read(run: QueryRun) -> None:
    make_span("root2", "request", at_ms=95, took_ms=5, run_id=make_run().pk)
    with CaptureQueriesContext(connection) as asked:
        run_spans(run)
    tree, whole, *_ = (query["sql"] for query in asked.captured_queries)
    assert '"attributes"' not in tree and '"span_id" IN' in whole


def test_a_run_without_spans(db: None) -> None:
    waterfall = run_waterfall(make_run(trace_id=""))
    assert (waterfall.rows, waterfall.total_ms, waterfall.started_at) == ([], 0.0, None)


def test_a_run_is_found_by_its_id_when_its_trace_is_unknown(run: QueryRun) -> None:
    run.trace_id = ""
    assert [span.name for span in run_spans(run)] == ["root", "query", "retrieve"]


def test_spans_without_duration_and_orphans(db: None) -> None:
    spans = [make_span("a", "gone", took_ms=0), make_span("b", "gone", took_ms=0)]
    rows = build_waterfall(spans).rows
    assert [(row.span.name, row.depth, row.left, row.width) for row in rows] == [("a", 0, 0, 100), ("b", 0, 0, 100)]


def test_spans_that_point_at_each_other_end(db: None) -> None:
    run = make_run()
    spans = [make_span("a", "b", run_id=run.pk), make_span("b", "a")]
    assert build_waterfall(spans).rows == []
    assert {span.name for span in run_spans(run)} == {"a", "b"}


def test_the_models_mirror_the_table(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name, is_nullable = 'YES', data_type FROM information_schema.columns "
            "WHERE table_name = 'spans' ORDER BY ordinal_position"
        )
        columns = cursor.fetchall()
    assert [name for name, _, _ in columns] == [field.column for field in Span._meta.concrete_fields]
    assert {name for name, nullable, _ in columns if nullable} == {
        field.column for field in Span._meta.concrete_fields if field.null
    }


def test_a_span_lands_in_the_default_partition(db: None) -> None:
    make_span("a", run_id=uuid4())
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM spans_default")
        assert cursor.fetchone() == (1,)
    assert isinstance(Span.objects.get().run_id, UUID)
