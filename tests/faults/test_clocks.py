"""Clocks that are wrong: work is held by the clock of the database, and what a clock ahead left behind is taken up."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from collections_app.collections.services import create_collection
from collections_app.jobs import recovery
from collections_app.jobs.attempts import claim_job
from collections_app.jobs.leases import Lease, database_now, lease_length
from collections_app.jobs.maintenance import maintain
from collections_app.models import IngestJob

pytestmark = pytest.mark.django_db
State = IngestJob.State
SKEWS = [timedelta(hours=-3), timedelta(hours=3)]


@pytest.fixture
def job() -> IngestJob:
    job = IngestJob.objects.create(collection=create_collection(name="clocks"), doc_id="a.txt")
    job.refresh_from_db()
    return job


@pytest.fixture(params=SKEWS)
def off(request: pytest.FixtureRequest, job: IngestJob, monkeypatch: pytest.MonkeyPatch) -> timedelta:
    """The clock of this process is off by that; it was right when the job was made."""
    skew: timedelta = request.param
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + skew)
    return skew


def is_of_now(moment: datetime | None, ahead: timedelta = timedelta(0)) -> bool:
    return moment is not None and abs(moment - database_now() - ahead) < timedelta(seconds=20)


def test_a_worker_whose_clock_is_off_holds_its_job(job: IngestJob, off: timedelta) -> None:
    taken = claim_job(job.pk, "host-a:1")
    assert taken is not None
    assert is_of_now(taken.lease_until, lease_length()) and is_of_now(taken.heartbeat_at)
    Lease(taken, taken.attempts).heartbeat()
    job.refresh_from_db()
    assert is_of_now(job.lease_until, lease_length()) and is_of_now(job.heartbeat_at)
    maintain()
    job.refresh_from_db()
    assert (job.state, job.attempts, job.worker) == (State.RUNNING, 1, "host-a:1")
    assert claim_job(job.pk, "host-b:1") is None


@pytest.mark.parametrize("ahead", [timedelta(minutes=10), timedelta(days=400)])
@pytest.mark.parametrize(
    ("state", "column"), [(State.RUNNING, "lease_until"), (State.QUEUED, "sent_at")], ids=["held", "sent"]
)
def test_what_a_clock_ahead_left_is_sent_again(
    job: IngestJob, state: str, column: str, ahead: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(recovery, "send_jobs", lambda ids, **_: sent.extend(ids))
    IngestJob.objects.filter(pk=job.pk).update(
        state=state, worker="host-a:1", attempts=1, **{column: database_now() + ahead}
    )
    maintain()
    job.refresh_from_db()
    assert sent == [job.pk]
    assert (job.state, job.lease_until) == (State.QUEUED, None) and is_of_now(job.sent_at)


def test_a_job_that_ended_under_a_clock_ahead_is_no_sign_that_the_queue_moves(job: IngestJob) -> None:
    """Else what waits behind it would be sent again at every maintenance until then."""
    now = database_now()
    IngestJob.objects.filter(pk=job.pk).update(state=State.SUCCEEDED, heartbeat_at=now + timedelta(hours=3))
    waiting = IngestJob.objects.create(collection=job.collection, doc_id="b.txt", sent_at=now - timedelta(minutes=2))
    running = IngestJob.objects.create(
        collection=job.collection, doc_id="c.txt", state=State.RUNNING, sent_at=now - timedelta(minutes=3),
        lease_until=now + lease_length(),
    )  # fmt: skip
    assert recovery.resend_lost_jobs(now) == {"resent": 0, "failed": 0}
    running.delete()
    assert recovery.resend_lost_jobs(now) == {"resent": 1, "failed": 0}
    with connection.cursor() as cursor:
        cursor.execute("SELECT sent_at FROM ingest_jobs WHERE id = %s", [waiting.pk])
        assert is_of_now(cursor.fetchone()[0])
