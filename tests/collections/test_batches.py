from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from collections_app.documents.services import ingest_text, reindex_documents
from collections_app.errors import ServiceError, error_response
from collections_app.jobs.batches import BatchProgress, batch_jobs, batch_progress
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.queue import QueueState, check_queue, queue_state
from collections_app.jobs.recovery import cancel_jobs, retry_job, retry_jobs
from collections_app.models import Collection, IngestBatch, IngestJob, Status, Upload
from collections_app.uploads.services import submit_uploads
from tests.refusals import refuses


def make_batch(collection: Collection, states: str = "", **values: Any) -> IngestBatch:
    """One job per letter: q(ueued), r(unning), s(ucceeded), f(ailed), c(ancelled), x (quarantined)."""
    words = {"q": "queued", "r": "running", "s": "succeeded", "f": "failed", "c": "cancelled", "x": "quarantined"}
    batch = IngestBatch.objects.create(collection=collection, **{"submitted": len(states)} | values)
    for number, letter in enumerate(states):
        job = IngestJob(collection=collection, batch=batch, kind="reindex", doc_id=f"{number}", state=words[letter])
        if letter == "r":
            job.lease_until = timezone.now() + timedelta(seconds=30)
        job.save()
    return batch


def progress_of(batch: IngestBatch) -> BatchProgress:
    (progress,) = batch_progress([IngestBatch.objects.get(pk=batch.pk)])
    return progress


def beat() -> None:
    Status.objects.create(kind="worker", name="host:1")


@pytest.mark.parametrize(
    ("states", "values", "status", "percent"),
    [
        ("", {}, "empty", 100),
        ("", {"deleted": 1}, "completed", 100),
        ("", {"submitted": 3, "unchanged": 3}, "completed", 100),
        ("", {"submitted": 1, "rejected": 1}, "completed_with_errors", 100),
        ("", {"open": True}, "waiting", 100),
        ("qq", {}, "waiting", 0),
        ("ss", {}, "completed", 100),
        ("ss", {"open": True}, "running", 100),
        ("ss", {"rejected": 1}, "completed_with_errors", 100),
        ("sf", {}, "completed_with_errors", 100),
        ("sx", {}, "completed_with_errors", 100),
        ("sc", {}, "cancelled", 100),
        ("scqf", {}, "waiting", 75),
    ],
)
def test_a_batch_says_how_it_stands(
    notes: Collection, states: str, values: dict[str, Any], status: str, percent: int
) -> None:
    beat()
    found = progress_of(make_batch(notes, states, **values))
    assert (found.status, found.percent, found.documents) == (status, percent, len(states))


def test_without_a_worker_a_batch_is_interrupted_unless_a_lease_holds(notes: Collection) -> None:
    batch = make_batch(notes, "sqr")
    IngestJob.objects.exclude(state="queued").update(started_at=timezone.now())
    assert progress_of(batch).status == "running"
    IngestJob.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert progress_of(batch).status == "interrupted"
    beat()
    assert progress_of(batch).status == "running"


def test_rates_are_of_the_last_minute_and_in_the_end_of_the_whole(notes: Collection) -> None:
    beat()
    batch = make_batch(notes, "ssssqq")
    now = timezone.now()
    done = IngestJob.objects.filter(state="succeeded")
    done.update(started_at=now - timedelta(minutes=10), finished_at=now - timedelta(minutes=5), chunks_done=30)
    done.filter(doc_id__in=("0", "1")).update(finished_at=now - timedelta(seconds=10))
    found = progress_of(batch)
    assert (found.done, found.documents, found.documents_per_minute, found.chunks_per_s) == (4, 6, 2.0, 1.0)
    assert found.remaining_s == 60.0
    IngestJob.objects.filter(state="queued").update(state="failed", finished_at=now - timedelta(minutes=1))
    found = progress_of(batch)
    assert found.documents_per_minute == pytest.approx(6 / (590 / 60), abs=0.1)
    assert (found.took_s, found.remaining_s) == (590.0, None)


def test_one_query_for_any_number_of_batches(notes: Collection, django_assert_num_queries: Any) -> None:
    batches = [make_batch(notes, "sf") for _ in range(5)]
    with django_assert_num_queries(1):
        assert [found.errors for found in batch_progress(batches)] == [1] * 5
    assert batch_progress([]) == []


def test_failed_documents_come_first(notes: Collection) -> None:
    batch = make_batch(notes, "scqrfx")
    assert [job.state for job in batch_jobs(batch)] == [
        "quarantined", "failed", "running", "queued", "cancelled", "succeeded",
    ]  # fmt: skip


def test_cancelling_a_batch_leaves_what_has_ended_and_other_batches(notes: Collection) -> None:
    batch, other = make_batch(notes, "sqrf", open=True), make_batch(notes, "q")
    assert cancel_jobs(batch) == 2
    assert sorted(IngestJob.objects.filter(batch=batch).values_list("state", flat=True)) == [
        "cancelled", "cancelled", "failed", "succeeded",
    ]  # fmt: skip
    assert not IngestBatch.objects.get(pk=batch.pk).open
    assert cancel_jobs(batch) == 0
    assert cancel_jobs(notes) == 1
    assert progress_of(other).status == "cancelled"


def test_retrying_a_batch_takes_what_failed_and_nothing_else(notes: Collection) -> None:
    batch, other = make_batch(notes, "sffcxq"), make_batch(notes, "f")
    IngestJob.objects.filter(batch=other).update(doc_id="z")
    assert retry_jobs(batch) == 2
    assert sorted(IngestJob.objects.filter(batch=batch).values_list("state", flat=True)) == [
        "cancelled", "quarantined", "queued", "queued", "queued", "succeeded",
    ]  # fmt: skip
    assert retry_jobs(batch) == 0
    assert retry_jobs(notes) == 1
    quarantined = IngestJob.objects.get(state="quarantined")
    assert retry_job(quarantined).state == "queued"


def test_an_old_failure_of_a_document_that_came_again_is_not_retried(notes: Collection) -> None:
    make_batch(notes, "f")
    make_batch(notes, "s")  # the same doc_id
    assert retry_jobs(notes) == 0
    make_batch(notes, "f")
    make_batch(notes, "f")
    assert retry_jobs(notes) == 1


def test_retrying_more_than_may_wait_is_refused(notes: Collection, settings: Any) -> None:
    settings.RAGD_QUEUE_MAX_JOBS = 1
    batch = make_batch(notes, "ff")
    with refuses("queue_full", None, "RAGD_QUEUE_MAX_JOBS"):
        retry_jobs(batch)
    assert IngestJob.objects.filter(state="failed").count() == 2


def test_a_reindex_is_a_batch(notes: Collection) -> None:
    ingest_text(notes, "a", "text")
    ingest_text(notes, "b", "text")
    jobs = reindex_documents(notes, ["a", "b"])
    batch = IngestBatch.objects.get()
    assert (batch.kind, batch.submitted, batch.open) == ("reindex", 2, False)
    beat()
    assert progress_of(batch).status == "waiting"
    for job in jobs:
        run_job(job.pk)
    found = progress_of(batch)
    assert (found.status, found.done, found.chunks) == ("completed", 2, 2)


def test_many_jobs_wait_in_the_bulk_lane_and_a_single_one_does_not(notes: Collection) -> None:
    from collections_app.uploads.services import submit_uploads

    files = [SimpleUploadedFile(f"{number}.txt", b"text") for number in range(21)]
    submit_uploads(notes, files[:20])
    assert set(IngestJob.objects.values_list("lane", flat=True)) == {0}
    submit_uploads(notes, files)
    assert IngestJob.objects.filter(lane=1).count() == 21
    (first,) = submit_uploads(notes, [SimpleUploadedFile("one.txt", b"text")])
    assert first.job is not None and IngestJob.objects.get(pk=first.job.pk).lane == 0


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
