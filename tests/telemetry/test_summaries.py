"""What Home and Operations show."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from collections_app.collections.services import create_collection
from collections_app.models import IngestJob, WorkerHeartbeat
from evaluation_app.models import GoldenQuestion, GoldenSet, SpanWriter
from ragd_site.operations.summaries import attention_summary, operations_summary
from retrieval_app.models import QueryRun

pytestmark = pytest.mark.django_db


def fill(rows: int) -> None:
    now = timezone.now()
    for number in range(rows):
        collection = create_collection(name=f"house{number}")
        for state in ("failed", "queued"):
            IngestJob.objects.create(
                collection=collection, doc_id=f"d{number}", state=state, created_at=now - timedelta(minutes=5)
            )
        QueryRun.objects.create(kind="search", collection_name=collection.name, query="q", channel="api")
        WorkerHeartbeat.objects.create(name=f"w{number}", beat_at=now - timedelta(seconds=100 * number))
        GoldenQuestion.objects.create(golden_set=GoldenSet.objects.create(name=f"set{number}"), question="q?")
    SpanWriter.objects.create(name="web", written=10, lost=2, last_error="OperationalError: away", last_error_at=now)
    SpanWriter.objects.create(name="worker", written=5, lost=0)


def test_nothing_is_there() -> None:
    home, operations = attention_summary(), operations_summary()
    assert (home.active_jobs_count, home.failed_jobs_count, home.workers_alive_count) == (0, 0, 0)
    assert operations.jobs_by_state == dict.fromkeys(
        ("queued", "running", "succeeded", "failed", "cancelled", "quarantined"), 0
    )
    assert (operations.oldest_queued_s, operations.spans.written_count, operations.spans.newest_at) == (None, 0, None)


def test_what_is_there() -> None:
    fill(3)
    home, operations = attention_summary(), operations_summary()
    assert (home.active_jobs_count, home.failed_jobs_count, home.workers_alive_count) == (3, 3, 1)
    assert [(state.worker.name, state.alive) for state in operations.workers] == [
        ("w0", True),
        ("w1", False),
        ("w2", False),
    ]
    assert operations.oldest_queued_s is not None and 295 < operations.oldest_queued_s < 400
    assert operations.runs_by_status == {"ok": 3, "abstained": 0, "refused": 0, "error": 0}
    assert (operations.spans.written_count, operations.spans.lost_count) == (15, 2)
    assert operations.spans.last_error == "OperationalError: away"


@pytest.mark.parametrize("summary", [attention_summary, operations_summary])
def test_more_rows_take_no_more_queries(summary: object) -> None:
    assert callable(summary)
    counts = []
    for rows in (1, 3):
        QueryRun.objects.all().delete()
        GoldenSet.objects.all().delete()
        SpanWriter.objects.all().delete()
        WorkerHeartbeat.objects.all().delete()
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM ingest_jobs; UPDATE collections SET deleted_at = now()")
        fill(rows)
        with CaptureQueriesContext(connection) as queries:
            found = summary()
            [str(job.collection) for job in (*getattr(found, "jobs", ()), *getattr(found, "failed_jobs", ()))]
        counts.append(len(queries))
    assert counts[0] == counts[1]
