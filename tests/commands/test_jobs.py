"""`manage.py ragd jobs`, and a collection that goes into a file and back."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management.base import CommandError

from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, Document, IngestBatch, IngestJob
from collections_app.uploads.services import submit_uploads
from tests.commands.conftest import run, run_json
from tests.fakes.openai_server import OpenAIServer

CANCELLED, QUEUED = '{"state": "cancelled"}', '{"state": "queued"}'


@pytest.fixture
def jobs(notes: Collection) -> list[IngestJob]:
    """good.txt, and bad.pdf, which cannot be read."""
    files = [SimpleUploadedFile("good.txt", b"some text"), SimpleUploadedFile("bad.pdf", b"%PDF-1.7 broken")]
    return [outcome.job for outcome in submit_uploads(notes, files) if outcome.job]


def test_jobs_are_listed_with_their_stages(jobs: list[IngestJob]) -> None:
    for job in jobs:
        run_job(job.pk)
    said = run("jobs", "--collection", "notes")
    assert "notes: good.txt" in said and "1 succeeded" in said and "1 failed" in said
    assert "embed" in said
    failed = run_json("jobs", "--state", "failed")
    assert [job["doc_id"] for job in failed["jobs"]] == ["bad.pdf"]
    assert failed["jobs"][0]["error"]
    assert run_json("jobs", "--limit", "1")["totals"] == {"succeeded": 1, "failed": 1}
    assert run_json("jobs", "--batch", str(IngestBatch.objects.get().pk), "--state", "succeeded")["totals"] == {
        "succeeded": 1
    }


def test_jobs_are_cancelled_and_retried_by_the_api(jobs: list[IngestJob]) -> None:
    address = f"/v1/jobs?job={jobs[0].pk}"
    assert run_json("api", "PATCH", address, "--data", CANCELLED) == {"jobs": 1}
    assert run_json("api", "PATCH", address, "--data", CANCELLED, status=1)["error"]
    assert run_json("api", "PATCH", address, "--data", QUEUED) == {"jobs": 1}


def test_watching_ends_when_nobody_works(jobs: list[IngestJob]) -> None:
    answer = run_json("jobs", "--watch", status=1)
    assert (answer["left"], answer["workers_alive"]) == (2, False)
    for job in jobs:
        run_job(job.pk)
    assert run_json("jobs", "--watch")["left"] == 0


@pytest.mark.parametrize("arguments", [["--batch", "x"], ["--state", "odd"]])
def test_a_wrong_option_is_a_misuse(notes: Collection, arguments: list[str]) -> None:
    with pytest.raises(CommandError):
        run("jobs", *arguments)
    with pytest.raises(CommandError) as caught:
        run("jobs", "--batch", str(uuid.uuid4()))
    assert caught.value.returncode == 2


def test_a_collection_goes_into_a_file_and_back(committed: None, embeddings: OpenAIServer, tmp_path: Path) -> None:
    ingest_text(create_collection(name="notes"), "good.txt", "some text")
    file, address = tmp_path / "notes.zip", "/v1/collections/notes/export"
    run("api", "GET", address, "--output", str(file))
    with pytest.raises(CommandError, match="--force"):
        run("api", "GET", address, "--output", str(file))
    with pytest.raises(CommandError, match="notes"):
        run("import", "collection", str(file))
    assert run_json("import", "collection", str(file), "--name", "copy")["collection"] == "copy"
    assert Document.objects.get(collection__name="copy").text == "some text"
    with pytest.raises(CommandError) as caught:
        run("import", "collection", str(tmp_path / "nowhere.zip"))
    assert caught.value.returncode == 2
