"""What is past its time goes, by the collection's own numbers or the server's; spans go with their runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from threading import Thread
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from collections_app.access.context import SYSTEM, Access, Forbidden, using_access
from collections_app.access.permissions import GIVEN
from collections_app.collections.invariants import request_check
from collections_app.collections.retention import check_retention, drop_old_revisions, effective_retention, set_period
from collections_app.collections.retention_periods import DATABASE, DEFAULT, ENVIRONMENT, PERIODS, find_period, kept_for
from collections_app.collections.services import create_collection, update_collection
from collections_app.documents.services import ingest_text, trash_documents
from collections_app.endpoints.server_settings import stored
from collections_app.errors import ServiceError
from collections_app.index.stores import open_store
from collections_app.jobs import maintenance, operations
from collections_app.jobs.maintenance import maintain
from collections_app.models import (
    AuditEvent,
    Collection,
    Document,
    DocumentRevision,
    Operation,
    ServerSetting,
    TrashedDocument,
)
from collections_app.tasks import run_operation
from evaluation_app.models import Span
from evaluation_app.runs.lifecycle import COUNTERS, apply_retention, check_daily, count_due, last_deletions
from ragd.errors import InvalidInput
from ragd.search import lexical_search
from ragd.search.retrieval import retrieve_detailed
from ragd.store import postings
from ragd.store.store import execute
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from tests.fakes.openai_server import OpenAIServer
from tests.refusals import raises_with


@pytest.fixture(autouse=True)
def forgotten_periods() -> Iterator[None]:
    """What a test sets holds in this process after its rows are gone."""
    yield
    stored.apply({})


def make_run(collection: Collection | None, days: int, trace: str = "") -> QueryRun:
    return QueryRun.objects.create(
        kind="search",
        collection=collection,
        collection_name=collection.name if collection else "gone",
        query="q",
        channel="api",
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
    with raises_with(InvalidInput, field=field):
        check_retention(values)


def state_nothing(settings: Any) -> None:
    """As if the environment stated nothing, whatever the one of the tests does."""
    settings.RAGD_STATED = frozenset()


def test_deletions_go_by_what_was_set(
    notes: Collection, settings: Any, admin_user: User, embeddings: OpenAIServer
) -> None:
    state_nothing(settings)
    own = create_collection(name="own")
    update_collection(own, changes={"retention": {"runs_days": 90, "revisions": 9}})
    for number in range(5):
        for collection in (notes, own):
            ingest_text(collection, "a.md", f"The text number {number} of it.")
    trash_documents(notes, ["a.md"])
    TrashedDocument.objects.update(deleted_at=timezone.now() - timedelta(days=3))
    ingest_text(notes, "a.md", "Once more.")
    ingest_text(notes, "a.md", "And once more.")
    kept = make_run(own, 50), make_run(notes, 3)
    make_run(notes, 50)
    assert {"runs": 0, "revisions": 0, "trashed_documents": 0}.items() <= apply_retention().report.items()
    values = {"runs_days": 10, "revisions": 0, "trash_days": 2}
    expected = {"runs_days": 1, "revisions": 1, "trash_days": 1}
    assert count_due(values) == expected, "counted before it is set"
    with using_access(SYSTEM):
        for key, value in values.items():
            assert set_period(key, value, actor=admin_user).value == value
    stored.apply({})  # as in another process
    stored.take_over()
    assert count_due({key: kept_for(key) for key in values}) == expected
    report = apply_retention().report
    assert (report["runs"], report["revisions"], report["trashed_documents"]) == (1, 1, 1)
    assert set(QueryRun.objects.values_list("pk", flat=True)) == {run.pk for run in kept}
    assert set(count_due(values).values()) == {0} and DocumentRevision.objects.filter(collection=own).count() == 4
    last = last_deletions()
    assert last.removed == report and last.removing["runs"][1] == 1
    assert apply_retention().report["runs"] == 0
    assert last_deletions().removing["runs"] == last.removing["runs"]


def test_spans_go_by_what_was_set(notes: Collection, settings: Any, admin_user: User) -> None:
    state_nothing(settings)
    make_span("a" * 32, "1" * 16)
    make_span("b" * 32, "2" * 16)
    Span.objects.filter(trace_id="a" * 32).update(started_at=timezone.now() - timedelta(days=12))
    assert count_due({"span_days": 10, "span_mb": 0}) == {"span_days": 1, "span_mb": 0}
    assert apply_retention().report["spans"] == 0
    with using_access(SYSTEM):
        set_period("span_days", 10, actor=admin_user)
    assert apply_retention().report["spans"] == 1
    assert list(Span.objects.values_list("trace_id", flat=True)) == ["b" * 32]


def test_every_kind_of_data_has_a_count_that_matches_its_deletion() -> None:
    assert set(COUNTERS) == set(PERIODS)


def test_what_is_set_is_audited_and_taken_back(settings: Any, admin_user: User) -> None:
    state_nothing(settings)
    settings.RAGD_TRASH_DAYS = 30
    with using_access(SYSTEM):
        assert set_period("trash_days", 7, actor=admin_user).source == DATABASE
        set_period("trash_days", 7, actor=admin_user)
        back = set_period("trash_days", None, actor=admin_user)
    assert (back.value, back.source, ServerSetting.objects.count()) == (30, DEFAULT, 0)
    rows = AuditEvent.objects.filter(action="serversetting.change").order_by("id")
    assert [(row.subject_id, row.before, row.after, row.actor_name) for row in rows] == [
        ("RAGD_TRASH_DAYS", {"source": "default", "value": 30}, {"source": "database", "value": 7}, "admin"),
        ("RAGD_TRASH_DAYS", {"source": "database", "value": 7}, {"source": "default", "value": 30}, "admin"),
    ]


def test_the_environment_goes_first(settings: Any, admin_user: User) -> None:
    state_nothing(settings)
    with using_access(SYSTEM):
        set_period("trash_days", 7, actor=admin_user)
        settings.RAGD_STATED, settings.RAGD_TRASH_DAYS = frozenset({"RAGD_TRASH_DAYS"}), 12
        assert (kept_for("trash_days"), find_period("trash_days").source) == (12, ENVIRONMENT)
        with pytest.raises(ServiceError) as refused:
            set_period("trash_days", 5, actor=admin_user)
    assert (refused.value.status, ServerSetting.objects.get().value) == (409, 7)


def test_who_does_not_administer_everything_sets_nothing(settings: Any, admin_user: User) -> None:
    state_nothing(settings)
    curator = Access(everywhere=GIVEN["curator"], collections={1: GIVEN["administrator"]})
    with using_access(curator), pytest.raises(Forbidden):
        set_period("runs_days", 1, actor=admin_user)
    assert not ServerSetting.objects.exists()


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


def test_who_read_the_settings_last_applies_them_last(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Mock(**{"objects.values_list.side_effect": [[("RAGD_RUN_RETENTION_DAYS", n, "", "ada")] for n in (1, 2)]})
    monkeypatch.setattr("collections_app.endpoints.server_settings.ServerSetting", rows)
    apply, last = stored.apply, Thread(target=stored.take_over)
    monkeypatch.setattr(stored, "apply", lambda values: (last.ident or (last.start(), last.join(0.5)), apply(values)))
    stored.take_over()
    last.join()
    assert kept_for("runs_days") == 2


LEAST = 4


@pytest.fixture
def unpacked(notes: Collection, monkeypatch: pytest.MonkeyPatch) -> Collection:
    for number in range(LEAST):
        ingest_text(notes, f"tree-{number}", f"A tree of kind {number}, tall and old.")
    Document.objects.update(updated_at=timezone.now() - 2 * maintenance.QUIET_FOR)
    for module in (postings, maintenance, lexical_search):
        monkeypatch.setattr(module, "POSTINGS_MIN", LEAST)
    return notes


def test_words_that_are_not_packed_are(unpacked: Collection) -> None:
    plan = RetrievePlan("lexical", 3)
    before = retrieve_detailed("old tree", plan, open_store(unpacked))
    assert postings.read_segments(open_store(unpacked)) == []
    assert maintain()["postings"] == 1
    (segment,) = postings.read_segments(open_store(unpacked))
    assert segment.size == open_store(unpacked).state().chunk_count >= LEAST
    assert retrieve_detailed("old tree", plan, open_store(unpacked)).candidates == before.candidates
    assert maintain()["postings"] == 0


def test_a_collection_without_words_does_not_hold_up_the_next(
    unpacked: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(unpacked)
    execute(store.connection, f"UPDATE {store.collection.partition} SET lexical = NULL")
    other = create_collection(name="other")
    with monkeypatch.context() as patch:
        patch.setattr(postings, "POSTINGS_MIN", 1_000)
        for number in range(LEAST):
            ingest_text(other, f"stone-{number}", f"A stone of kind {number}, hard and old.")
    Document.objects.update(updated_at=timezone.now() - 2 * maintenance.QUIET_FOR)
    assert unpacked.pk < other.pk
    assert maintain()["postings"] == 1
    assert postings.read_segments(open_store(unpacked)) == []
    assert len(postings.read_segments(open_store(other))) == 1


def test_a_load_is_waited_for(unpacked: Collection) -> None:
    Document.objects.filter(doc_id="tree-1").update(updated_at=timezone.now())
    assert maintain()["postings"] == 0


def test_few_chunks_are_not_packed(unpacked: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "POSTINGS_MIN", 1)  # asked for, and refused by the library
    monkeypatch.setattr(postings, "POSTINGS_MIN", 1_000)
    assert maintain()["postings"] == 0
    assert postings.read_segments(open_store(unpacked)) == []
