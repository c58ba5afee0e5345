"""A span store that takes nothing: questions are answered and kept all the same, and what was lost is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
import pytest
from django.test import Client

from evaluation_app.telemetry.metrics.instruments import Instruments, SpanMeter
from evaluation_app.telemetry.store.exporter import CountingProcessor
from ragd.telemetry import metrics
from ragd_site.observability import tracing as site_telemetry
from ragd_site.observability.tracing import connect, local_processor
from retrieval_app.models import QueryRun
from tests.retrieval.corpus import bearer, make_collection, post
from tests.telemetry.conftest import Recorder, provider, recorder, span_table  # noqa: F401  (fixtures)
from tests.telemetry.test_metrics import counts, sample, scrape  # noqa: F401  (fixtures)

REFUSE = """
CREATE OR REPLACE FUNCTION refuse_spans() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no spans today'; END $$
"""
TABLES = ("spans", "statuses")


@pytest.fixture
def store(
    span_table: None,  # noqa: F811
    recorder: Recorder,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[CountingProcessor]:
    monkeypatch.setattr(site_telemetry, "SESSION_OPTIONS", "-c lock_timeout=200 -c statement_timeout=2000")
    processor = local_processor("test", "full")
    recorder.onward = processor
    yield processor
    recorder.onward = None
    processor.shutdown()


@contextmanager
def refused(other: psycopg.Connection[Any]) -> Iterator[None]:
    other.execute(REFUSE)
    other.execute("CREATE TRIGGER refuse BEFORE INSERT ON spans EXECUTE FUNCTION refuse_spans()")
    try:
        yield
    finally:
        other.execute("DROP TRIGGER refuse ON spans")


@contextmanager
def locked(other: psycopg.Connection[Any]) -> Iterator[None]:
    with other.transaction(force_rollback=True):
        for table in TABLES:
            other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


@pytest.mark.parametrize("fault", [refused, locked])
def test_searches_are_answered_and_the_lost_spans_counted(
    fault: Callable[[psycopg.Connection[Any]], AbstractContextManager[None]],
    client: Client,
    store: CountingProcessor,
    recorder: Recorder,  # noqa: F811
    counts: Instruments,  # noqa: F811
) -> None:
    meter = SpanMeter(counts, {metrics.SPANS_LOST: lambda: store.exporter.lost})
    make_collection()
    headers = bearer()
    store.force_flush()
    written, began = store.exporter.delivered, len(recorder.spans)
    with connect() as other, fault(other):
        for _ in range(3):
            status, body = post(client, "/v1/collections/house/search", {"query": "pump"}, headers)
            assert (status, QueryRun.objects.filter(pk=body["run_id"]).exists()) == (200, True)
        store.force_flush()
    lost = len(recorder.spans) - began
    assert (store.exporter.lost, store.exporter.delivered) == (lost, written)
    meter.shutdown()
    assert sample(scrape(), "ragd_spans_lost_total") == lost > 0
