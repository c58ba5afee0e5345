"""The core of background work: one process holds a piece of work, and what a dead one held comes back.
What is sent again, to which lane, and what is left alone because it only waits."""

from __future__ import annotations

import socket
import threading
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from celery import current_app
from django.db import connection, transaction
from django.utils import timezone

from collections_app.collections.services import create_collection
from collections_app.jobs import leases
from collections_app.jobs.attempts import claim_job, hold_lease
from collections_app.jobs.leases import (
    Lease,
    LeaseLostError,
    RetryPolicy,
    cancel,
    claim,
    forgive_host,
    held_by_host,
    lease_length,
    requeue,
    worker_name,
)
from collections_app.jobs.maintenance import maintain
from collections_app.jobs.queue import BULK_QUEUE, FIRST_QUEUE, jobs_ahead, send_jobs
from collections_app.jobs.workers import beat
from collections_app.models import Collection, IngestJob, Status
from tests.collections.test_jobs import reload, upload
from tests.fakes.openai_server import OpenAIServer
from tests.simultaneous import call_together

TASK = "collections.run_ingest_job"


def make(collection: Collection, **values: Any) -> IngestJob:
    return IngestJob.objects.create(collection=collection, kind="reindex", **values)


def take(job: IngestJob, owner: str = "a:1") -> Lease[IngestJob] | None:
    return claim(IngestJob, job.pk, owner, "state IN ('queued', 'running')", "state = 'running'")


def expire() -> None:
    IngestJob.objects.update(lease_until=timezone.now() - timedelta(seconds=1))


def test_one_of_two_gets_it_and_a_write_of_a_lost_attempt_changes_nothing(notes: Collection) -> None:
    job = make(notes)
    first = take(job)
    assert first is not None and take(job, "b:2") is None
    expire()
    second = take(job, "b:2")
    assert second is not None and (first.attempt, second.attempt) == (1, 2)
    with pytest.raises(LeaseLostError):
        first.heartbeat(title="of the first")
    with pytest.raises(LeaseLostError):
        first.check()
    assert not first.release(title="of the first")
    second.heartbeat(title="of the second")
    job.refresh_from_db()
    assert (job.title, job.worker, job.state) == ("of the second", "b:2", "running")
    assert second.release(state="queued")
    job.refresh_from_db()
    assert (job.lease_until, job.worker, job.tries) == (None, "", 2)


def test_a_claim_is_one_statement_and_takes_nothing_that_another_transaction_holds(
    committed: None, embeddings: OpenAIServer, django_assert_num_queries: Any
) -> None:
    job = make(create_collection(name="notes"))
    with django_assert_num_queries(1):
        lease = take(job)
    assert lease is not None and (lease.work.state, lease.work.attempts, lease.attempt) == ("running", 1, 1)
    expire()
    claimed: list[Lease[IngestJob] | None] = []

    def claim_elsewhere() -> None:
        claimed.append(take(job, "b:2"))
        connection.close()

    for is_held in (True, False):
        with transaction.atomic():
            if is_held:
                IngestJob.objects.select_for_update().get(pk=job.pk)
            thread = threading.Thread(target=claim_elsewhere)
            thread.start()
            thread.join()
    assert [lease is not None for lease in claimed] == [False, True]


def test_what_was_cancelled_or_has_ended_is_not_claimed(notes: Collection) -> None:
    job = make(notes)
    held = take(job)
    assert held is not None and cancel(IngestJob.objects.active(), "enough") == 1
    with pytest.raises(LeaseLostError):
        held.heartbeat()
    job.refresh_from_db()
    assert (job.state, job.error, job.lease_until) == ("cancelled", "enough", None)
    assert take(job) is None and cancel(IngestJob.objects.active(), "again") == 0


def test_of_many_threads_one_claims(committed: None, embeddings: OpenAIServer) -> None:
    job = make(create_collection(name="notes"))
    won = call_together(*(partial(take, job, f"t:{number}") for number in range(6)))
    assert sum(lease is not None for lease in won) == 1
    assert IngestJob.objects.get().attempts == 1


def test_a_held_lease_is_extended_and_its_loss_is_seen(
    committed: None, embeddings: OpenAIServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RAGD_JOB_LEASE_S = 2
    monkeypatch.setattr(leases, "LOOK_EVERY_S", 0.05)
    job = make(create_collection(name="notes"))
    lease = take(job)
    assert lease is not None
    with lease.hold() as lost:
        before = IngestJob.objects.get().lease_until
        assert not lost.wait(1.2)
        after = IngestJob.objects.get().lease_until
        assert before is not None and after is not None and after > before
        cancel(IngestJob.objects.all(), "enough")
        assert lost.wait(10)


def test_the_delay_doubles_up_to_its_limit_with_some_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = RetryPolicy(3, first_delay_s=5, max_delay_s=60, jitter=0.25)
    assert [policy.allows(tries) for tries in (0, 2, 3)] == [True, True, False]
    for chance, factor in ((0.0, 1.0), (0.25, 1.25)):
        monkeypatch.setattr("random.uniform", lambda low, high, value=chance: value)
        assert [policy.delay_s(tries) for tries in (1, 2, 4, 5, 9)] == [s * factor for s in (5, 10, 40, 60, 60)]
        assert [policy.delay_s(1, asked) for asked in (1, 30, 500)] == [s * factor for s in (5, 30, 120)]


def test_requeue_sends_again_gives_up_and_leaves_alone(notes: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(leases.transaction, "on_commit", lambda send: send())
    monkeypatch.setattr(leases, "send", lambda task, calls, **_: sent.extend((task, call) for call in calls))
    now = timezone.now()
    gone, past = now - timedelta(seconds=1), now - timedelta(hours=1)
    running = {"state": "running", "worker": "a:1"}
    expired = make(notes, **running, attempts=1, lease_until=gone)
    worn_out = make(notes, **running, attempts=3, lease_until=gone)
    forgiven = make(notes, **running, attempts=3, attempts_forgiven=2, lease_until=gone)
    held = make(notes, **running, attempts=1, lease_until=now + lease_length(), sent_at=past)
    unsent, fresh = make(notes, sent_at=past), make(notes)
    ended: list[IngestJob] = []
    rows = IngestJob.objects.active()
    assert requeue(rows, TASK, RetryPolicy(3), ended.append, now, state="queued") == 3
    assert {call for _, call in sent} == {(str(job.pk),) for job in (expired, forgiven, unsent)}
    assert {task for task, _ in sent} == {TASK} and ended == [worn_out]
    states = dict(IngestJob.objects.values_list("pk", "state"))
    assert [states[job.pk] for job in (expired, held, unsent, fresh)] == ["queued", "running", "queued", "queued"]
    sent.clear()
    worn_out.delete()
    assert requeue(rows, TASK, RetryPolicy(3), ended.append, now, state="queued") == 0 and sent == []


def test_what_a_host_holds_without_processes_that_died(notes: Collection) -> None:
    for owner in ("a:1", "a:2", "ab:1"):
        take(make(notes), owner)
    make(notes, worker="a:3")  # ended
    rows = IngestJob.objects.all()
    assert sorted(held_by_host(rows, "a").values_list("worker", flat=True)) == ["a:1", "a:2"]
    assert list(held_by_host(rows, "a", but=[2]).values_list("worker", flat=True)) == ["a:1"]


def test_a_message_goes_out_by_the_name_of_its_task_after_the_commit(
    notes: Collection, django_capture_on_commit_callbacks: Any
) -> None:
    job = make(notes, doc_id="none")
    with django_capture_on_commit_callbacks() as callbacks:
        leases.enqueue(TASK, str(job.pk))
    job.refresh_from_db()
    assert (job.state, len(callbacks)) == ("queued", 1)
    callbacks[0]()  # tasks run where they are sent here
    job.refresh_from_db()
    assert (job.state, job.error_type) == ("failed", "unknown_document")
    with pytest.raises(KeyError):
        leases.send("collections.no_such_task", [("x",)])


def test_a_broker_that_fails_is_asked_no_more_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    producers = set()

    def refuse(args: Any, *, producer: Any, **options: Any) -> None:
        asked.append((args, options))
        producers.add(producer)
        if len(asked) == 2:
            raise ConnectionError("down")

    current_app.loader.import_default_modules()
    monkeypatch.setattr(current_app.tasks[TASK], "apply_async", refuse)
    leases.send(TASK, [("1",), ("2",), ("3",)], queue="ragd_bulk", delay_s=2)
    assert asked == [((number,), {"countdown": 2, "queue": "ragd_bulk"}) for number in ("1", "2")]
    assert len(producers) == 1  # one asks for all whether the broker is there


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, int]]:
    """(queue, how many jobs) of each sending."""
    calls: list[tuple[str | None, int]] = []
    monkeypatch.setattr(leases.transaction, "on_commit", lambda send: send())
    monkeypatch.setattr(leases, "send", lambda task, ids, *, queue, delay_s: calls.append((queue, len(ids))))
    return calls


def ago(**distance: float) -> datetime:
    return timezone.now() - timedelta(**distance)


def test_many_go_to_the_bulk_lane_and_few_to_the_quick_one(notes: Collection, sent: list[Any]) -> None:
    many = [make(notes).pk for _ in range(21)]
    send_jobs(many)
    send_jobs([make(notes).pk for _ in range(20)])
    send_jobs([])
    assert sent == [(BULK_QUEUE, 21), (None, 20)]
    send_jobs(many[:1])  # it stays in its lane
    assert sent[2:] == [(BULK_QUEUE, 1)]


def test_a_job_that_lost_its_worker_goes_before_those_that_wait(notes: Collection, sent: list[Any]) -> None:
    held = make(notes, lane=1, state="running", lease_until=ago(seconds=1), attempts=1)
    waits = make(notes, lane=1)
    assert maintain()["resent"] == 1
    assert sent == [(FIRST_QUEUE, 1)]
    assert (reload(held).lane, reload(held).state, reload(waits).lane) == (2, "queued", 1)
    send_jobs([held.pk])  # a lost message is sent to the same lane again
    assert sent[1:] == [(FIRST_QUEUE, 1)]


def test_a_lane_that_waits_behind_long_jobs_of_the_other_is_left_alone(notes: Collection, sent: list[Any]) -> None:
    held = {"state": "running", "lease_until": timezone.now() + timedelta(minutes=1), "sent_at": ago(hours=1)}
    works = make(notes, lane=1, started_at=ago(minutes=50), **held)
    make(notes, lane=0, sent_at=ago(minutes=40))
    assert maintain()["resent"] == 0
    IngestJob.objects.filter(pk=works.pk).update(started_at=timezone.now())
    assert maintain()["resent"] == 1  # jobs of the other lane begin, and the two take turns: its message was lost
    assert sent == [(None, 1)]
    assert maintain()["resent"] == 0


def test_how_many_are_ahead_counts_the_lane_that_one_waits_in(notes: Collection) -> None:
    first, second = make(notes, sent_at=ago(seconds=9)), make(notes, sent_at=ago(seconds=5))
    other = make(notes, lane=1, sent_at=ago(seconds=1))
    assert [jobs_ahead(job) for job in (first, second, other)] == [0, 1, 0]
    IngestJob.objects.filter(pk=second.pk).update(state="running")
    assert jobs_ahead(reload(second)) == 0


def test_a_worker_that_is_asked_to_stop_costs_its_jobs_no_attempt(notes: Collection, settings: Any) -> None:
    settings.RAGD_JOB_MAX_ATTEMPTS = 1
    mine, other = upload(notes, name="a.txt"), upload(notes, name="b.txt")
    claim_job(mine.pk, worker_name())
    claim_job(other.pk, "elsewhere:7")
    assert forgive_host(IngestJob.objects.all(), socket.gethostname()) == 1
    IngestJob.objects.update(lease_until=ago(seconds=1))
    maintain()
    assert (reload(mine).state, reload(other).state) == ("queued", "quarantined")


def test_a_worker_gives_signs_of_life_while_it_works(notes: Collection) -> None:
    job, seen = make(notes), []
    claim_job(job.pk, worker_name())
    job.refresh_from_db()
    with hold_lease(job):
        beat(timezone.now())
        seen.append(Status.objects.alive(timedelta(minutes=1)).get().values["job"])
    beat(timezone.now())
    seen.append(Status.objects.alive(timedelta(minutes=1)).get().values["job"])
    assert seen == [str(job.pk), None]
