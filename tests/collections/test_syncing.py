"""A folder in step with a collection: nothing goes that was not named, and nothing that changed meanwhile."""

from __future__ import annotations

import hashlib
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile

from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, Document, IngestBatch, IngestJob
from collections_app.uploads.folder_sync import commit_sync, open_sync, plan_folder
from collections_app.uploads.options import IngestOptions
from collections_app.uploads.plan import Entry
from collections_app.uploads.services import find_batch, open_batch, submit_uploads
from tests.refusals import refuses


def entry(path: str, content: bytes) -> Entry:
    return Entry(path, hashlib.sha256(content).hexdigest(), len(content))


def put(collection: Collection, files: dict[str, bytes], batch: IngestBatch | None = None) -> None:
    held = [SimpleUploadedFile("file", content) for content in files.values()]
    submit_uploads(collection, held, doc_ids=list(files), batch=batch)
    for pk in IngestJob.objects.filter(state="queued").values_list("pk", flat=True):
        run_job(pk)


def begin(collection: Collection, manifest: list[Entry], **values: Any) -> Any:
    return open_sync(collection, plan_folder(collection, manifest, **values), IngestOptions())


def present() -> list[str]:
    return sorted(Document.objects.values_list("doc_id", flat=True))


def test_a_folder_is_brought_into_step(notes: Collection) -> None:
    put(notes, {"hb/same": b"same", "hb/old": b"old", "hb/gone": b"gone", "elsewhere": b"stays"})
    manifest = [entry("same", b"same"), entry("old", b"new"), entry("sub/added", b"added")]
    sync = begin(notes, manifest, prefix="hb", delete_missing=True)
    assert [line.asked for line in sync.to_send] == ["hb/old", "hb/sub/added"]
    assert sync.deletions == ["hb/gone"]
    assert present() == ["elsewhere", "hb/gone", "hb/old", "hb/same"]
    put(notes, {"hb/old": b"new", "hb/sub/added": b"added"}, sync.batch)
    done = commit_sync(notes, sync.batch, sync.deletions)
    assert (done.deleted, done.kept) == (["hb/gone"], {})
    assert present() == ["elsewhere", "hb/old", "hb/same", "hb/sub/added"]
    batch = find_batch(notes, sync.batch.pk)
    assert (batch.submitted, batch.unchanged, batch.deleted, batch.open) == (3, 1, 1, False)
    again = plan_folder(notes, manifest, prefix="hb", delete_missing=True)
    assert {line.status for line in again.lines} == {"unchanged"}
    assert again.batch is None and IngestBatch.objects.filter(kind="sync").count() == 1


def test_what_changed_after_the_plan_or_is_gone_is_kept_and_told(notes: Collection) -> None:
    put(notes, {"a": b"1", "b": b"2"})
    sync = begin(notes, [entry("c", b"3")], delete_missing=True)
    assert sync.deletions == ["a", "b"]
    put(notes, {"b": b"changed by somebody"})
    done = commit_sync(notes, sync.batch, ["a", "b", "never"])
    assert done.deleted == ["a"]
    assert sorted(done.kept) == ["b", "never"]
    assert present() == ["b"]


def test_a_document_whose_new_file_is_under_way_is_kept(notes: Collection) -> None:
    put(notes, {"a": b"1", "b": b"2"})
    sync = begin(notes, [entry("c", b"3")], delete_missing=True)
    (sent,) = submit_uploads(notes, [SimpleUploadedFile("file", b"by somebody else")], doc_ids=["b"])
    done = commit_sync(notes, sync.batch, ["a", "b"])
    assert (done.deleted, list(done.kept)) == (["a"], ["b"])
    assert sent.job is not None
    assert run_job(sent.job.pk) == "succeeded"
    assert Document.objects.get().text == "by somebody else"


def test_nothing_is_added_to_a_batch_that_is_closed(notes: Collection) -> None:
    sync = begin(notes, [entry("a", b"1")])
    commit_sync(notes, sync.batch)
    with refuses("batch_closed", "batch") as caught:
        put(notes, {"a": b"1"}, sync.batch)
    assert (caught.value.status, caught.value.type) == (409, "batch_closed")
    assert not IngestJob.objects.exists()


def test_an_empty_folder_deletes_nothing(notes: Collection) -> None:
    put(notes, {"a": b"1"})
    with refuses("invalid_input", "delete_missing"):
        plan_folder(notes, [], delete_missing=True)
    sync = begin(notes, [])
    assert commit_sync(notes, sync.batch).deleted == []
    assert present() == ["a"]


def test_a_commit_holds_once_and_only_for_a_sync(notes: Collection) -> None:
    sync = begin(notes, [entry("a", b"1")])
    commit_sync(notes, sync.batch)
    with refuses("conflict"):
        commit_sync(notes, sync.batch)
    with refuses("invalid_input", "batch"):
        commit_sync(notes, open_batch(notes))
