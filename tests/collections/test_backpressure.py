from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from collections_app.errors import ServiceError, error_response
from collections_app.jobs.queue import QueueState, check_queue, queue_state
from collections_app.models import Collection, IngestJob, Upload
from collections_app.uploads.services import submit_uploads
from tests.refusals import refuses


def wait_with(collection: Collection, count: int, size_bytes: int = 1_000_000) -> None:
    for number in range(count):
        upload = Upload.objects.create(
            collection=collection, doc_id=f"w{number}", sha256="0" * 64, name="w", size_bytes=size_bytes, content=b"w"
        )
        IngestJob.objects.create(collection=collection, doc_id=f"w{number}", upload=upload)


def test_an_empty_queue(db: None, settings: Any) -> None:
    settings.RAGD_QUEUE_MAX_JOBS, settings.RAGD_QUEUE_MAX_MB = 7, 3
    assert queue_state() == QueueState(0, 0, 0, None, None, None, 7, 3_000_000)
    check_queue(7)
    check_queue(0, 10**12)


def test_more_jobs_than_may_wait_are_refused_and_nothing_is_taken(notes: Collection, settings: Any) -> None:
    settings.RAGD_QUEUE_MAX_JOBS = 3
    wait_with(notes, 2)
    files = [SimpleUploadedFile(f"{name}.txt", b"some text") for name in "ab"]
    with refuses("queue_full", None, "2 jobs", "2 more", "pass 3") as refusal:
        submit_uploads(notes, files)
    assert (refusal.value.status, refusal.value.type, refusal.value.retry_after_s) == (429, "queue_full", 60.0)
    assert (IngestJob.objects.count(), Upload.objects.count()) == (2, 2)
    assert [outcome.status for outcome in submit_uploads(notes, files[:1])] == ["queued"]


def test_what_runs_or_has_ended_does_not_count(notes: Collection, settings: Any) -> None:
    settings.RAGD_QUEUE_MAX_JOBS = 1
    wait_with(notes, 4)
    for state, job in zip(("running", "failed", "quarantined", "cancelled"), IngestJob.objects.all(), strict=True):
        IngestJob.objects.filter(pk=job.pk).update(state=state)
    check_queue(1)


def test_more_bytes_than_may_wait_are_refused(notes: Collection, settings: Any) -> None:
    settings.RAGD_QUEUE_MAX_MB = 5
    wait_with(notes, 2, size_bytes=2_000_000)
    check_queue(1, 1_000_000)
    with refuses("queue_full", None, "4 MB", "1.1 MB", "5 MB", "RAGD_QUEUE_MAX_MB"):
        check_queue(1, 1_100_000)
    settings.RAGD_QUEUE_MAX_MB = 0
    check_queue(1, 10**15)


def test_the_wait_follows_from_what_was_done_lately(notes: Collection, settings: Any, rf: Any) -> None:
    settings.RAGD_QUEUE_MAX_JOBS = 10
    wait_with(notes, 30)
    now = timezone.now()
    ended = IngestJob.objects.filter(pk__in=list(IngestJob.objects.values_list("pk", flat=True)[:20]))
    ended.update(state="succeeded", started_at=now - timedelta(seconds=100), finished_at=now)
    assert queue_state().per_minute == pytest.approx(12, abs=0.5)  # 20 in 100 s
    assert queue_state().remaining_s == pytest.approx(50, abs=2)
    with pytest.raises(ServiceError) as refusal:
        check_queue(8)  # 8 too many, at 0.2 a second
    assert refusal.value.retry_after_s == pytest.approx(40, abs=2)
    response = error_response(rf.get("/v1/x"), refusal.value)
    assert (response.status_code, 39 <= int(response["Retry-After"]) <= 43) == (429, True)
