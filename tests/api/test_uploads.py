from __future__ import annotations

import hashlib
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from collections_app.jobs.dispatch import run_job
from collections_app.models import Chunk, Collection, Document, IngestBatch, IngestJob, Upload


def run_all() -> list[str | None]:
    jobs = IngestJob.objects.filter(state="queued").order_by("created_at", "doc_id")
    return [run_job(job.pk) for job in jobs]


def test_many_files_at_once_with_one_result_each(api: Any, notes: Collection) -> None:
    response = api.upload("notes", ("a.md", b"# Title\n\nSome text."), ("b.txt", b"More text."), ("empty.txt", b""))
    assert response.status_code == 202
    first, second, third = response.json()["results"]
    assert (first["name"], first["doc_id"], first["status"], first["error"]) == ("a.md", "a.md", "queued", None)
    assert (second["status"], third["status"], third["job_id"]) == ("queued", "rejected", None)
    assert third["error"]["type"] == "empty_content"
    assert api.get(f"/jobs/{first['job_id']}").json()["state"] == "queued"
    assert run_all() == ["succeeded", "succeeded"]
    job = api.get(f"/jobs/{first['job_id']}").json()
    assert (job["state"], job["stage"]) == ("succeeded", "done")
    assert (job["chunks_done"], job["chunks_total"], job["percent"]) == (1, 1, 100)
    assert set(job["timings_ms"]) == {"parse", "chunk", "embed", "store"}
    document = api.get("/collections/notes/documents/a.md").json()
    assert (document["title"], document["source"], document["media_type"]) == ("Title", "a.md", "text/markdown")
    assert len(document["source_hash"]) == 64


def test_a_file_over_the_limit_is_refused_and_the_others_go_on(api: Any, notes: Collection, settings: Any) -> None:
    settings.RAGD_MAX_DOCUMENT_MB = 1
    big = b"x" * 1_000_001
    files = api.upload("notes", ("big.txt", big), ("a.txt", b"text")).json()["results"]
    assert [file["status"] for file in files] == ["rejected", "queued"]
    assert files[0]["error"]["type"] == "too_large" and "RAGD_MAX_DOCUMENT_MB" in files[0]["error"]["message"]
    response = api.upload("notes", ("big.txt", big), ("bigger.txt", big))
    assert (response.status_code, response.json()["error"]["type"]) == (413, "too_large")
    assert "RAGD_MAX_DOCUMENT_MB" in response.json()["detail"]
    assert Upload.objects.count() == 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"metadata": "[1]"}, "metadata"),
        ({"metadata": "{"}, "metadata"),
        ({"doc_ids": ["a", "b"]}, "doc_ids"),
        ({"acces": '{"users": []}'}, "acces"),
        ({"access": SimpleUploadedFile("access.json", b'{"users": []}')}, "access"),
    ],
)
def test_a_wrong_form_field_is_422_and_nothing_is_kept(
    api: Any, notes: Collection, fields: dict[str, Any], field: str
) -> None:
    response = api.upload("notes", ("a.txt", b"text"), fields=fields)
    assert (response.status_code, response.json()["error"]["field"]) == (422, field)
    assert not Upload.objects.exists()


def test_a_changed_file_is_a_new_revision_and_its_old_bytes_go(api: Any, notes: Collection) -> None:
    api.upload("notes", ("a.txt", b"first text"))
    run_all()
    api.upload("notes", ("a.txt", b"second text"))
    run_all()
    document = Document.objects.get()
    assert (document.text, document.revision) == ("second text", 2)
    assert list(Upload.objects.values_list("sha256", flat=True)) == [document.source_hash]


def test_a_file_that_cannot_be_read_fails_with_its_reason_and_keeps_the_old_version(
    api: Any, notes: Collection
) -> None:
    api.upload("notes", ("a.pdf", b"plain text under a wrong name"))
    run_all()
    assert Document.objects.get().text == "plain text under a wrong name"
    (file,) = api.upload("notes", ("a.pdf", b"%PDF-1.7\nbroken")).json()["results"]
    assert run_all() == ["failed"]
    job = api.get(f"/jobs/{file['job_id']}").json()
    assert (job["state"], job["error_type"]) == ("failed", "broken")
    assert job["error"]
    assert Document.objects.get().text == "plain text under a wrong name"


def test_a_newer_upload_of_the_same_document_supersedes_the_one_that_waits(api: Any, notes: Collection) -> None:
    (old,) = api.upload("notes", ("a.txt", b"first text")).json()["results"]
    api.upload("notes", ("a.txt", b"second text"))
    job = api.get(f"/jobs/{old['job_id']}").json()
    assert (job["state"], job["error"]) == ("cancelled", "superseded by a newer upload of the same document")
    assert run_all() == ["succeeded"]
    assert Document.objects.get().text == "second text"


def test_deleting_the_document_takes_its_file(api: Any, notes: Collection) -> None:
    api.upload("notes", ("a.txt", b"some text"))
    run_all()
    gone = api.delete("/collections/notes/documents/a.txt").json()
    assert gone == {"documents": 1, "chunks": 1, "revisions": 0, "overlays": 0, "uploads": 1}
    assert not Upload.objects.exists()


def hashed(content: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def test_a_plan_is_asked_for_with_hashes_and_writes_nothing(api: Any, notes: Collection) -> None:
    api.upload("notes", ("a.txt", b"a"), ("b.txt", b"b"))
    run_all()
    entries = [{"name": "a.txt", **hashed(b"a")}, {"doc_id": "c.txt", **hashed(b"c")}]
    plan = api.post("/collections/notes/uploads/plan", {"entries": entries, "delete_missing": True})
    assert plan.status_code == 200
    items = [(item["doc_id"], item["status"]) for item in plan.json()["items"]]
    assert items == [("a.txt", "unchanged"), ("c.txt", "new"), ("b.txt", "would_delete")]
    totals = plan.json()["totals"]
    assert (totals["new"], totals["changed"], totals["unchanged"], totals["would_delete"]) == (1, 0, 1, 1)
    assert Document.objects.count() == 2
    wrong = api.post("/collections/notes/uploads/plan", {"entries": [{"name": "a", "sha256": "x", "size": 1}]})
    assert (wrong.status_code, wrong.json()["error"]["field"]) == (422, "sha256")


def test_a_dry_run_answers_the_plan_and_keeps_nothing(api: Any, notes: Collection) -> None:
    response = api.upload("notes", ("a.txt", b"a"), ("empty.txt", b""), fields={"dry_run": "true"})
    assert response.status_code == 200
    assert [item["status"] for item in response.json()["items"]] == ["new", "rejected"]
    assert not Upload.objects.exists() and not IngestBatch.objects.exists()


def test_clashes_are_settled_once_or_per_file(api: Any, notes: Collection) -> None:
    api.upload("notes", ("a.txt", b"1"), ("b.txt", b"1"))
    run_all()
    again = [("a.txt", b"2"), ("b.txt", b"2")]
    results = api.upload("notes", *again, fields={"on_clash": "skip"}).json()["results"]
    assert [each["status"] for each in results] == ["skipped", "skipped"]
    results = api.upload("notes", *again, fields={"on_clash": ["keep_both", "replace"]}).json()["results"]
    assert [(each["doc_id"], each["plan"]) for each in results] == [("a (2).txt", "renamed"), ("b.txt", "changed")]
    for wrong in ("merge", ["skip", "skip", "skip"]):
        response = api.upload("notes", *again, fields={"on_clash": wrong})
        assert (response.status_code, response.json()["error"]["field"]) == (422, "on_clash")


def test_requests_add_to_the_batch_that_they_name(api: Any, notes: Collection) -> None:
    first = api.upload("notes", ("a.txt", b"a"), fields={"more": "true"}).json()["batch_id"]
    second = api.upload("notes", ("b.txt", b"b"), ("a.txt", b"a"), fields={"batch": first}).json()
    assert second["batch_id"] == first
    batch = IngestBatch.objects.get()
    assert (batch.submitted, batch.unchanged, batch.open, batch.jobs.count()) == (3, 1, False, 2)
    for unknown in ("x", "5f1d3c1e-0000-4000-8000-000000000000"):
        response = api.upload("notes", ("c.txt", b"c"), fields={"batch": unknown})
        assert (response.status_code, response.json()["error"]["type"]) == (404, "unknown_batch")


def test_a_folder_is_kept_in_step(api: Any, notes: Collection) -> None:
    fields = {"doc_ids": ["hb/same", "hb/old", "hb/gone"]}
    api.upload("notes", ("1", b"same"), ("2", b"old"), ("3", b"gone"), fields=fields)
    run_all()
    files = {"same": b"same", "old": b"new", "in/added": b"added"}
    manifest = [{"path": path, **hashed(content)} for path, content in files.items()]
    stated = {"on_clash": "keep_both", "tags": ["step"]}  # kept with the batch
    body = {"manifest": manifest, "prefix": "hb", "delete_missing": True, **stated}
    look = api.post("/collections/notes/sync", body | {"dry_run": True}).json()
    assert look["batch_id"] is None and not IngestBatch.objects.filter(kind="sync").exists()
    sync = api.post("/collections/notes/sync", body).json()
    assert sync["send"] == [{"path": "old", "doc_id": "hb/old"}, {"path": "in/added", "doc_id": "hb/in/added"}]
    assert sync["would_delete"] == look["would_delete"] == ["hb/gone"]
    fields = {"doc_ids": ["hb/old", "hb/in/added"], "batch": sync["batch_id"]}
    api.upload("notes", ("o", b"new"), ("a", b"added"), fields=fields)
    run_all()
    done = api.post(f"/collections/notes/sync/{sync['batch_id']}/commit", {"delete": sync["would_delete"]})
    assert done.json() == {"deleted": ["hb/gone"], "kept": {}}
    tags = dict(Document.objects.values_list("doc_id", "tags"))
    assert tags == {"hb/same": [], "hb/old": [], "hb/old (2)": ["step"], "hb/in/added": ["step"]}
    again = api.post(f"/collections/notes/sync/{sync['batch_id']}/commit", {"delete": []})
    assert (again.status_code, again.json()["error"]["type"]) == (409, "conflict")
    empty = api.post("/collections/notes/sync", {"manifest": [], "delete_missing": True})
    assert (empty.status_code, empty.json()["error"]["field"]) == (422, "delete_missing")


def test_tags_metadata_and_ids_go_with_the_files(api: Any, notes: Collection) -> None:
    fields = {"tags": ["x", "y"], "metadata": '{"team": "support"}', "doc_ids": ["handbook/a", "handbook/b"]}
    response = api.upload("notes", ("a.txt", b"text a"), ("a.txt", b"text b"), fields=fields)
    assert [file["doc_id"] for file in response.json()["results"]] == ["handbook/a", "handbook/b"]
    run_all()
    assert set(Document.objects.values_list("doc_id", flat=True)) == {"handbook/a", "handbook/b"}
    chunk = Chunk.objects.get(doc_id="handbook/a")
    assert (chunk.tags, chunk.metadata["team"], chunk.content) == (["x", "y"], "support", "text a")
