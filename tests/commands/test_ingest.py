"""`manage.py ragd ingest` and `sync`.
`manage.py ragd jobs`, and a collection that goes into a file and back.
Ctrl-C while a command waits."""

from __future__ import annotations

import os
import signal
import uuid
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management.base import CommandError
from django.db import connection

from collections_app.collections.services import create_collection
from collections_app.commands import ingest, progress
from collections_app.commands.progress import heard_interrupts
from collections_app.documents.services import ingest_text
from collections_app.jobs.batches import batch_progress
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, Document, IngestBatch, IngestJob, Status
from collections_app.uploads.services import submit_uploads
from tests.commands.conftest import run, run_json
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.s3_server import S3Server
from tests.fakes.web_server import Page, WebServer
from tests.refusals import raises_with

State = IngestJob.State


def texts() -> dict[str, str]:
    return dict(Document.objects.order_by("doc_id").values_list("doc_id", "text"))


def test_a_folder_and_a_file(notes: Collection, folder: Path) -> None:
    said = run("ingest", "notes", str(folder), "--here", "--tag", "a", "--tag", "b", "--metadata", "team=x")
    assert texts() == {"in/two.md": "# Two\n\nthe second text", "one.txt": "the first text"}
    assert "2 new" in said
    assert "2 of 2 documents ingested" in said
    document = Document.objects.get(doc_id="one.txt")
    assert (document.tags, document.metadata["team"]) == (["a", "b"], "x")
    batch = IngestBatch.objects.get()
    assert (batch.kind, batch.label, batch.open, batch.submitted) == ("folder", str(folder), False, 2)
    assert "2 unchanged" in run("ingest", "notes", str(folder), "--here")


def test_the_answer_as_json(notes: Collection, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = run_json("ingest", "notes", str(folder), "--prefix", "papers", "--here")
    assert [(item["doc_id"], item["status"]) for item in answer["items"]] == [
        ("papers/in/two.md", "new"), ("papers/one.txt", "new"),
    ]  # fmt: skip
    assert answer["batches"] == [str(IngestBatch.objects.get().pk)]
    assert (answer["jobs"]["documents"], answer["jobs"]["succeeded"], answer["failed"]) == (2, 2, [])
    assert capsys.readouterr().err == ""


def test_progress_is_told_in_lines_where_there_is_no_terminal(
    notes: Collection, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("ingest", "notes", str(folder), "--here")
    told = capsys.readouterr().err.splitlines()
    assert told[-1] == "documents: 2 of 2 documents"
    assert "sending: 2 of 2 files" in told


def test_an_archive(notes: Collection, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("a.txt", "first")
        archive.writestr("b/c.txt", "second")
    answer = run_json("ingest", "notes", str(tmp_path / "all.zip"), "--here")
    assert answer["totals"] == {"archive": 1}
    assert texts() == {"a.txt": "first", "b/c.txt": "second"}
    assert answer["jobs"]["documents"] == 2


def test_addresses_and_a_bucket(notes: Collection, web_server: WebServer, s3_server: S3Server, settings: Any) -> None:
    settings.RAGD_FETCH_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    settings.RAGD_FETCH_PAUSE_S = 0
    settings.RAGD_S3_ENDPOINT = s3_server.url
    settings.AWS_ACCESS_KEY_ID, settings.AWS_SECRET_ACCESS_KEY = s3_server.access_key, s3_server.secret_key
    s3_server.put("docs", "in/one.txt", b"from the bucket")
    web_server.pages["/a"] = Page(b"<p>from the web</p>")
    answer = run_json("ingest", "notes", web_server.url("/a"), web_server.url("/b"), "s3://docs/in", "--here", status=1)
    assert texts() == {f"127.0.0.1:{web_server.port}/a": "from the web", "docs/in/one.txt": "from the bucket"}
    assert answer["totals"] == {"new": 3}
    assert len(answer["batches"]) == 2
    (failed,) = answer["failed"]
    assert (failed["doc_id"], failed["error_type"]) == (f"127.0.0.1:{web_server.port}/b", "not_found")


def test_a_dry_run_writes_nothing(notes: Collection, folder: Path) -> None:
    ingest_text(notes, "one.txt", "another text")
    said = run("ingest", "notes", str(folder), "https://example.org/a", "--dry-run")
    assert "1 changed" in said and "2 new" in said
    assert "new: in/two.md" in said
    assert not IngestBatch.objects.exists() and not IngestJob.objects.exists()


def test_a_name_that_is_taken(notes: Collection, folder: Path) -> None:
    ingest_text(notes, "one.txt", "another text")
    run("ingest", "notes", str(folder / "one.txt"), "--on-clash", "keep_both", "--here")
    assert sorted(texts()) == ["one (2).txt", "one.txt"]


def test_what_is_refused_is_named_and_counts_as_failure(notes: Collection, folder: Path) -> None:
    (folder / "none.txt").write_text("")
    answer = run_json("ingest", "notes", str(folder), "--here", status=1)
    assert answer["totals"] == {"new": 2, "rejected": 1}
    assert len(texts()) == 2


def test_the_collection_is_made_when_asked_for(notes: Collection, folder: Path) -> None:
    with pytest.raises(CommandError, match="--create makes it"):
        run("ingest", "fresh", str(folder))
    run("ingest", "fresh", str(folder), "--create", "--here")
    assert Collection.objects.filter(name="fresh").exists()


@pytest.mark.parametrize("arguments", [["nowhere.txt"], ["{empty}"]])
def test_a_wrong_path_is_a_misuse(notes: Collection, tmp_path: Path, arguments: list[str]) -> None:
    paths = [argument.format(empty=tmp_path) for argument in arguments]
    with raises_with(CommandError, returncode=2) as caught:
        run("ingest", "notes", *paths)
    assert "file" in str(caught.value)


def test_without_a_worker_nothing_is_waited_for(notes: Collection, folder: Path) -> None:
    answer = run_json("ingest", "notes", str(folder), status=1)
    assert "--here" in answer["note"]
    assert answer["jobs"]["queued"] == 2
    assert set(IngestJob.objects.values_list("state", flat=True)) == {State.QUEUED}
    again = run_json("ingest", "notes", str(folder), "--here")
    assert again["totals"] == {"unchanged": 2}


def test_nothing_is_waited_for_when_not_asked(notes: Collection, folder: Path) -> None:
    said = run("ingest", "notes", str(folder), "--no-wait")
    assert f"jobs --batch {IngestBatch.objects.get().pk} --watch" in said


def test_a_full_queue_is_waited_for(
    notes: Collection, folder: Path, settings: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.RAGD_QUEUE_MAX_JOBS = 1
    monkeypatch.setattr(ingest, "GROUP_FILES", 1)

    def rest(seconds: float) -> None:
        settings.RAGD_QUEUE_MAX_JOBS = 0

    monkeypatch.setattr(ingest.time, "sleep", rest)
    assert run_json("ingest", "notes", str(folder), "--no-wait")["totals"] == {"new": 2}
    assert "Waiting" in capsys.readouterr().err


def test_stopping_puts_the_job_back(
    notes: Collection, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C in the middle of a job that this process does."""
    from collections_app.jobs.attempts import claim_job
    from collections_app.jobs.leases import worker_name

    def stop(job_id: Any) -> None:
        assert claim_job(job_id, worker_name()) is not None
        raise KeyboardInterrupt

    monkeypatch.setattr(progress, "run_job", stop)
    monkeypatch.setattr(progress.connection, "close", lambda: None)
    with raises_with(SystemExit, code=130):
        run("ingest", "notes", str(folder), "--here")
    assert set(IngestJob.objects.values_list("state", flat=True)) == {State.QUEUED}
    assert max(job.tries for job in IngestJob.objects.all()) == 0
    told = capsys.readouterr().err
    assert "Stopped watching: 2 jobs are left" in told
    assert "is in the queue again" in told


@pytest.mark.django_db(transaction=True)
def test_stopping_in_the_middle_of_a_statement_says_what_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C between a statement and its result, which leaves the connection unable to take another."""
    batch = IngestBatch.objects.create(collection=create_collection(name="notes"))

    def stop(*_: Any) -> None:
        assert connection.connection is not None
        connection.connection.pgconn.send_query(b"SELECT 1")
        raise KeyboardInterrupt

    steps = iter([stop, batch_progress])
    monkeypatch.setattr(progress, "has_worker", lambda: True)
    monkeypatch.setattr(progress, "batch_progress", lambda batches: next(steps)(batches))
    with raises_with(SystemExit, code=130):
        progress.follow([batch], here=False, quiet=True)
    assert "0 jobs are left" in capsys.readouterr().err


def test_stopping_while_files_are_sent_keeps_those(
    notes: Collection, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ingest, "GROUP_FILES", 1)
    real = ingest.submit_uploads

    def send(collection: Collection, files: Any, *options: Any, **values: Any) -> Any:
        if files[0].name == "one.txt":
            raise KeyboardInterrupt
        return real(collection, files, *options, **values)

    monkeypatch.setattr(ingest, "submit_uploads", send)
    with pytest.raises(SystemExit):
        run("ingest", "notes", str(folder))
    assert "1 of 2 files were taken" in capsys.readouterr().err
    assert IngestBatch.objects.get().open is False
    assert IngestJob.objects.get().doc_id == "in/two.md"


def test_sync_brings_in_changes_and_deletes_when_told(notes: Collection, folder: Path) -> None:
    assert run_json("sync", "notes", str(folder), "--here")["totals"] == {"new": 2}
    (folder / "one.txt").unlink()
    (folder / "in" / "two.md").write_text("# Two\n\nother")
    (folder / "three.txt").write_text("the third text")
    ingest_text(notes, "by hand", "stays, because it came from no file")
    dry = run_json("sync", "notes", str(folder), "--dry-run")
    assert dry["totals"] == {"changed": 1, "new": 1, "would_delete": 1}
    with pytest.raises(
        CommandError, match=r"1 document is not in the folder and would be deleted:\n  one\.txt"
    ) as caught:
        run("sync", "notes", str(folder))
    assert caught.value.returncode == 2
    assert sorted(texts()) == ["by hand", "in/two.md", "one.txt"]
    answer = run_json("sync", "notes", str(folder), "--yes", "--here")
    assert answer["totals"] == {"changed": 1, "new": 1, "deleted": 1}
    assert sorted(texts()) == ["by hand", "in/two.md", "three.txt"]
    batch = IngestBatch.objects.order_by("-created_at").first()
    assert batch and (batch.kind, batch.deleted, batch.open) == ("sync", 1, False)


def test_sync_leaves_what_is_missing_when_told(notes: Collection, folder: Path) -> None:
    run("sync", "notes", str(folder), "--prefix", "kept", "--here")
    (folder / "one.txt").unlink()
    answer = run_json("sync", "notes", str(folder), "--prefix", "kept", "--keep-missing", "--here")
    assert answer["totals"] == {"unchanged": 1}
    assert sorted(texts()) == ["kept/in/two.md", "kept/one.txt"]


def test_odd_files_are_passed_over(notes: Collection, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "broken").symlink_to(folder / "nowhere")
    assert [file.name for file in ingest.find_files([str(folder)])] == ["in/two.md", "one.txt"]
    (folder / "unreadable").symlink_to("x" * 300)  # it may be there, so that no sync may delete it
    with pytest.raises(ingest.UsageError, match="unreadable"):
        ingest.find_files([str(folder)])


def test_a_worker_that_goes_away_is_noticed(notes: Collection, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Status.objects.create(kind="worker", name="a worker")
    looked: list[float] = []

    def rest(seconds: float) -> None:
        looked.append(seconds)
        if len(looked) == 2:
            Status.objects.all().delete()

    monkeypatch.setattr(progress.time, "sleep", rest)
    answer = run_json("ingest", "notes", str(folder), status=1)
    assert len(looked) == 2
    assert answer["jobs"]["waiting_for"] == "a worker"


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
    with raises_with(CommandError, returncode=2):
        run("jobs", "--batch", str(uuid.uuid4()))


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
    with raises_with(CommandError, returncode=2):
        run("import", "collection", str(tmp_path / "nowhere.zip"))


def test_an_interrupt_that_was_swallowed_is_still_heard() -> None:
    before = signal.getsignal(signal.SIGINT)
    with heard_interrupts() as pressed:
        assert not pressed.is_set()
        with suppress(KeyboardInterrupt):  # as a destructor does
            os.kill(os.getpid(), signal.SIGINT)
        assert pressed.is_set()
    assert signal.getsignal(signal.SIGINT) is before
