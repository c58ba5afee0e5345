"""The partitions of the span store: made ahead, filled from the default one, ended, dropped; and nobody waits long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta

import psycopg
import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from collections_app.advisory_locks import LockSpace, release_session_lock, try_session_lock, whole
from collections_app.models import Status
from evaluation_app.models import Span
from evaluation_app.telemetry.store import span_store
from evaluation_app.telemetry.store.span_store import Partition, forget_writers, gaps, list_partitions, maintain, width
from ragd_site.observability.tracing import connect

pytestmark = pytest.mark.usefixtures("bare_store")
NOW = timezone.now()
TODAY = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
DAY = timedelta(days=1)


@pytest.fixture
def bare_store(span_table: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing but the default partition, before and after."""
    monkeypatch.setattr(span_store, "PAUSE_S", 0)
    monkeypatch.setattr(span_store, "LOCK_PAUSE_S", 0.01)
    drop_partitions()
    yield
    drop_partitions()


def drop_partitions() -> None:
    with connection.cursor() as cursor:
        for each in list_partitions():
            cursor.execute("TRUNCATE spans_default" if each.is_default else f"DROP TABLE {each.name}")


def make_span(started_at: datetime, name: str = "rag.fuse", **values: object) -> Span:
    return Span.objects.create(
        trace_id="a" * 32, span_id="b" * 16, name=name, kind="INTERNAL", started_at=started_at, ended_at=started_at,
        duration_ms=0, **values,
    )  # fmt: skip


def count_in(name: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {name}")
        return int(cursor.fetchone()[0])


def bounds() -> list[tuple[datetime | None, datetime | None]]:
    return [(each.lower, each.upper) for each in list_partitions()]


def test_partitions_are_made_ahead_without_a_gap() -> None:
    done = maintain(NOW)
    days = [(TODAY + number * DAY, TODAY + (number + 1) * DAY) for number in range(3)]
    assert (done.made, bounds()) == (3, [*days, (None, None)])
    assert maintain(NOW) == span_store.Maintenance()
    assert maintain(NOW + DAY).made == 1
    assert bounds()[3] == (TODAY + 3 * DAY, TODAY + 4 * DAY)
    make_span(NOW)
    assert (count_in(list_partitions()[0].name), count_in("spans_default")) == (1, 0)


def test_the_default_partition_is_emptied_into_days() -> None:
    kept = [make_span(NOW - number * DAY) for number in (0, 0, 1, 1, 5, 29)]
    ancient, far = make_span(NOW - 60 * DAY), make_span(NOW + 40 * DAY)
    before = set(Span.objects.values_list("pk", "started_at"))
    done = maintain(NOW, keep_days=30)
    assert done.moved == 4  # those of today went where today's partition was made
    assert done.spans == 1  # the ancient one
    assert set(Span.objects.values_list("pk", "started_at")) == before - {(ancient.pk, ancient.started_at)}
    assert (count_in("spans_default"), far.pk in Span.objects.values_list("pk", flat=True)) == (1, True)
    days = {each.lower for each in list_partitions() if each.lower and each.lower <= NOW}
    assert days == {span_store._midnight(span.started_at) for span in kept}
    late = make_span(NOW - 3 * DAY)  # a day between others that has no partition
    assert maintain(NOW, keep_days=30).moved == 1
    assert Span.objects.filter(pk=late.pk).count() == 1


def test_gaps_lie_between_partitions() -> None:
    def part(lower: int, upper: int) -> Partition:
        return Partition("p", TODAY + lower * DAY, TODAY + upper * DAY, 0)

    def found(*partitions: Partition) -> list[tuple[int, int]]:
        spaces = gaps([*partitions, Partition("default", None, None, 0)], TODAY, TODAY + 4 * DAY)
        return [((lower - TODAY) // DAY, (upper - TODAY) // DAY) for lower, upper in spaces]

    assert found() == [(0, 4)]
    assert found(part(-1, 1), part(2, 3)) == [(1, 2), (3, 4)]
    assert found(part(-5, 0), part(0, 4), part(4, 9)) == []
    assert found(part(3, 9)) == [(0, 3)]


@pytest.mark.parametrize(("days", "wide"), [(1, 1), (30, 1), (90, 3), (365, 12), (9000, 30), (0, 30)])
def test_partitions_are_wider_where_spans_are_kept_for_long(days: int, wide: int) -> None:
    assert width(days) == wide * DAY


def test_partitions_past_the_age_are_dropped_whole() -> None:
    for number in (0, 5, 6, 7, 8):
        make_span(NOW - number * DAY)
    maintain(NOW, keep_days=30)
    with CaptureQueriesContext(connection) as queries:
        done = maintain(NOW, keep_days=6)
    assert (done.dropped, done.spans) == (2, 2)  # that of six days ago is not wholly past
    assert not [
        query for query in queries if "DELETE FROM spans" in query["sql"] and "spans_default" not in query["sql"]
    ]
    assert sorted((NOW - span.started_at) // DAY for span in Span.objects.all()) == [0, 5, 6]
    assert maintain(NOW, keep_days=0, max_mb=0).dropped == 0


def test_the_oldest_go_when_the_store_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        make_span(NOW - number * DAY)
    maintain(NOW, keep_days=30)
    sizes = [each.bytes for each in list_partitions()]
    assert sum(sizes) > 2 * max(sizes)  # a limit of 0 is none
    monkeypatch.setattr(span_store, "MEGABYTE", sum(sizes) - 2 * max(sizes))
    done = maintain(NOW, keep_days=30, max_mb=1)
    assert done.dropped >= 2
    assert done.spans == done.dropped
    assert [(NOW - span.started_at) // DAY for span in Span.objects.order_by("-started_at")] == list(
        range(6 - done.dropped)
    )
    monkeypatch.setattr(span_store, "MEGABYTE", 1)  # what is written now stays, however little is allowed
    assert maintain(NOW, keep_days=30, max_mb=1).dropped == 5 - done.dropped
    assert Span.objects.count() == 1


def test_a_partition_that_grows_too_large_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now = TODAY + timedelta(hours=12)
    maintain(now)
    make_span(now)
    monkeypatch.setattr(span_store, "PARTITION_BYTES_MAX", 1)
    assert maintain(now).split == 1
    at = now + span_store.SPLIT_MARGIN
    assert bounds()[:2] == [(TODAY, at), (at, TODAY + DAY)]
    make_span(at - timedelta(seconds=1))
    make_span(at)
    assert [count_in(each.name) for each in list_partitions()[:2]] == [2, 1]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_constraint WHERE conname LIKE 'spans_p%_part'")
        assert cursor.fetchone() == (0,)
    make_span(now + timedelta(minutes=30))
    assert maintain(now + timedelta(minutes=5)).split == 0  # a span of a clock that is ahead: not now
    assert Span.objects.count() == 4


def test_a_busy_store_is_left_alone_and_nobody_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    make_span(NOW - 40 * DAY)
    maintain(NOW, keep_days=45)
    monkeypatch.setattr(span_store, "LOCK_TRIES", 3)
    before = bounds()
    with connect() as reader:
        with reader.transaction():
            reader.execute("SELECT count(*) FROM spans")  # a long read: its locks are held until it ends
            done = maintain(NOW + 3 * DAY, keep_days=30)
            assert (done.made, done.dropped, bounds()) == (0, 0, before)
            assert Span.objects.count() == 1
        done = maintain(NOW + 3 * DAY, keep_days=30)
    assert (done.made, done.dropped, done.spans) == (3, 1, 1)


def test_an_analysis_of_the_store_is_waited_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock refuses new partitions, and lets all else be read and written."""
    make_span(NOW - 40 * DAY)
    monkeypatch.setattr(span_store, "LOCK_TRIES", 3)
    with connect() as other:
        with other.transaction():
            other.execute("LOCK TABLE spans IN SHARE UPDATE EXCLUSIVE MODE")
            done = maintain(NOW, keep_days=30)
            assert (done.made, done.moved, done.spans) == (0, 0, 1)
        assert maintain(NOW, keep_days=30).made == 3


def test_spans_written_while_the_default_is_emptied_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    make_span(NOW, "before")
    patiently = span_store._patiently

    def write_first(action: object) -> None:
        writer = threading.Thread(target=write)
        writer.start()
        writer.join()
        patiently(action)  # type: ignore[arg-type]

    def write() -> None:
        with connect() as other:
            other.execute(
                "INSERT INTO spans (trace_id, span_id, name, kind, started_at, ended_at, duration_ms) "
                "VALUES ('a', 'b', 'meanwhile', 'INTERNAL', %(at)s, %(at)s, 0)",
                {"at": NOW},
            )

    monkeypatch.setattr(span_store, "LOCK_TRIES", 100)  # whatever else the machine does
    monkeypatch.setattr(span_store, "_patiently", write_first)
    maintain(NOW)
    assert sorted(Span.objects.values_list("name", flat=True)) == ["before", *["meanwhile"] * 3]
    assert (count_in(list_partitions()[0].name), count_in("spans_default")) == (4, 0)


def test_what_a_round_left_behind_is_cleared_away() -> None:
    maintain(NOW)
    with connection.cursor() as cursor:
        given = {"name": list_partitions()[0].name, "lower": TODAY.isoformat(), "upper": TODAY.isoformat()}
        cursor.execute(span_store.ADD_CHECK.format(**given))
        cursor.execute(span_store.CREATE_ALONE.format(name="spans_p20200101"))
    with pytest.raises(IntegrityError):
        make_span(NOW)
    maintain(NOW)
    make_span(NOW)
    with pytest.raises(psycopg.errors.UndefinedTable, match="spans_p20200101"), connect() as other:
        other.execute("SELECT 1 FROM spans_p20200101")


def test_of_two_rounds_one_does_nothing() -> None:
    with connect() as other:
        assert try_session_lock(whole(LockSpace.SPAN_PARTITIONS), other)
        assert maintain(NOW) == span_store.Maintenance()
        release_session_lock(whole(LockSpace.SPAN_PARTITIONS), other)
        assert maintain(NOW).made == 3


def test_spans_of_the_default_partition_go_in_batches() -> None:
    for number in range(7):
        make_span(NOW - 31 * DAY - timedelta(minutes=number))
    new = make_span(NOW - 29 * DAY)
    with CaptureQueriesContext(connection) as queries:
        assert span_store.delete_from_default(NOW - 30 * DAY, batch=3) == 7
    assert len([query for query in queries if "DELETE FROM spans_default" in query["sql"]]) == 3
    assert list(Span.objects.all()) == [new]
    assert maintain(NOW, keep_days=0, max_mb=0).spans == 0


def test_counts_of_writers_that_are_gone_are_forgotten() -> None:
    Status.objects.create(kind="span_writer", name="gone", made_at=timezone.now() - timedelta(days=8))
    Status.objects.create(kind="span_writer", name="here", made_at=timezone.now())
    assert forget_writers() == 1
    assert list(Status.objects.values_list("name", flat=True)) == ["here"]
