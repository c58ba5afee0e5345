"""What is sent again, to which lane, and what is left alone because it only waits."""

from __future__ import annotations

import socket
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from collections_app.jobs import leases
from collections_app.jobs.attempts import claim_job
from collections_app.jobs.leases import forgive_host, worker_name
from collections_app.jobs.maintenance import maintain
from collections_app.jobs.queue import BULK_QUEUE, FIRST_QUEUE, jobs_ahead, send_jobs
from collections_app.models import Collection, IngestJob
from tests.collections.test_jobs import reload, upload


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, int]]:
    """(queue, how many jobs) of each sending."""
    calls: list[tuple[str | None, int]] = []
    monkeypatch.setattr(leases.transaction, "on_commit", lambda send: send())
    monkeypatch.setattr(leases, "send", lambda task, ids, *, queue, delay_s: calls.append((queue, len(ids))))
    return calls


def make(collection: Collection, **values: Any) -> IngestJob:
    return IngestJob.objects.create(collection=collection, kind="reindex", **values)


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
