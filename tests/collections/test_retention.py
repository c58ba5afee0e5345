"""What is past its time goes, by the collection's own numbers or the server's; spans go with their runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from collections_app.models import Collection, DocumentRevision, Operation
from collections_app.services.collections import operations
from collections_app.services.collections.collections import create_collection, update_collection
from collections_app.services.collections.invariant_check import request_check
from collections_app.services.collections.retention import check_retention, drop_old_revisions, effective_retention
from collections_app.services.documents.documents import ingest_text
from collections_app.tasks import run_operation
from evaluation_app.models import Span
from evaluation_app.runs.retention import apply_retention, check_daily
from ragd.errors import InvalidInput
from retrieval_app.models import QueryRun
from tests.fakes.openai_server import OpenAIServer


def make_run(collection: Collection | None, days: int, trace: str = "") -> QueryRun:
    return QueryRun.objects.create(
        kind="search",
        collection=collection,
        collection_name=collection.name if collection else "gone",
        query="q",
        door="api",
        trace_id=trace,
        created_at=timezone.now() - timedelta(days=days),
    )


def make_span(trace: str, span: str) -> None:
    now = timezone.now()
    Span.objects.create(
        trace_id=trace,
        span_id=span,
        name="rag.pipeline x",
        kind="INTERNAL",
        started_at=now,
        ended_at=now,
        duration_ms=1,
    )


def test_runs_go_by_their_collection_or_else_by_the_server(notes: Collection, settings: Any) -> None:
    other, endless = create_collection(name="other"), create_collection(name="endless")
    update_collection(notes, changes={"retention": {"runs_days": 5}})
    update_collection(endless, changes={"retention": {"runs_days": 0}})
    settings.RAGD_RUN_RETENTION_DAYS = 20
    old = make_run(notes, 6, "a" * 32), make_run(other, 21), make_run(None, 21)
    kept = make_run(notes, 4, "b" * 32), make_run(other, 19), make_run(endless, 900), make_run(None, 19)
    for trace, span in (("a" * 32, "1" * 16), ("a" * 32, "2" * 16), ("b" * 32, "3" * 16)):
        make_span(trace, span)
    operation = apply_retention()
    assert set(QueryRun.objects.values_list("pk", flat=True)) == {run.pk for run in kept}
    assert (operation.report["runs"], operation.report["spans_of_runs"]) == (len(old), 2)
    assert set(Span.objects.values_list("trace_id", flat=True)) == {"b" * 32}
    assert apply_retention().report["runs"] == 0


def test_a_trace_that_another_run_shares_stays(notes: Collection) -> None:
    update_collection(notes, changes={"retention": {"runs_days": 5}})
    make_run(notes, 6, "a" * 32)
    make_run(notes, 1, "a" * 32)
    make_span("a" * 32, "1" * 16)
    report = apply_retention().report
    assert (report["runs"], report["spans_of_runs"]) == (1, 0) and Span.objects.count() == 1


def test_a_lowered_number_drops_revisions_that_are_too_many(notes: Collection, embeddings: OpenAIServer) -> None:
    for number in range(6):
        ingest_text(notes, "a.md", f"The text number {number} of it.")
    assert DocumentRevision.objects.filter(collection=notes).count() == 5
    assert drop_old_revisions() == 0
    update_collection(notes, changes={"retention": {"revisions": 2}})
    assert effective_retention(Collection.objects.get(pk=notes.pk))["revisions"] == 2
    assert drop_old_revisions() == 3
    assert list(DocumentRevision.objects.values_list("revision", flat=True).order_by("revision")) == [4, 5]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"runs": 1}, "retention"),
        ({"runs_days": -1}, "runs_days"),
        ({"revisions": True}, "revisions"),
        ({"revisions": "3"}, "revisions"),
        ({"revisions": 10**6}, "revisions"),
    ],
)
def test_wrong_numbers_are_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_retention(values)
    assert refused.value.field == field


def test_everything_is_checked_once_a_day(notes: Collection, django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        assert check_daily()
    (operation,) = Operation.objects.filter(kind="check")
    assert operation.state == "succeeded" and operation.findings == 0 and operation.created_by == "the system"
    assert not check_daily()
    Operation.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert check_daily()


def test_a_check_that_was_asked_for_is_done_once(notes: Collection) -> None:
    operation = request_check(notes)
    assert request_check(notes).pk == operation.pk and operation.stage == operations.WAITING
    run_operation(str(operation.pk))
    run_operation(str(operation.pk))  # the broker delivers again
    done = Operation.objects.get(pk=operation.pk)
    assert (done.state, done.subject, done.report["collections"]) == ("succeeded", "notes", 1)
