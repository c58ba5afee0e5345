from __future__ import annotations

from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile

from collections_app.collections.services import create_collection
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.recovery import retry_job, retry_jobs
from collections_app.models import Collection, IngestJob
from collections_app.uploads.services import submit_uploads
from tests.collections.test_jobs import reload, upload


def send(collection: Collection, name: str, content: bytes = b"some text") -> Any:
    (outcome,) = submit_uploads(collection, [SimpleUploadedFile(name, content)])
    return outcome


def test_the_same_bytes_again_are_refused_with_the_reason_and_the_way_out(notes: Collection) -> None:
    job = upload(notes)
    IngestJob.objects.update(state="quarantined", error="quarantined after 3 attempts: The reader crashed.")
    outcome = send(notes, "other name.txt")
    assert (outcome.status, outcome.error_type) == ("rejected", "quarantined")
    assert "The reader crashed." in outcome.error and f"PATCH /v1/jobs?job={job.pk} with" in outcome.error
    assert send(notes, "a.txt", b"other bytes").status == "queued"
    assert send(create_collection(name="other"), "a.txt").status == "queued"

    assert retry_jobs(notes) == 0  # only when it is asked for by itself
    retry_job(reload(job))
    assert run_job(job.pk) == "succeeded"
    assert send(notes, "third.txt").status == "queued"
