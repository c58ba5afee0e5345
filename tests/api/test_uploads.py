from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest

from collections_app.models import Chunk, Collection, Document, IngestJob, Upload
from collections_app.services.jobs import run_job
from tests.fakes.openai_server import OpenAIServer

CONTENT_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Override PartName="/word/document.xml" '
    'ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)


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
    assert (job["state"], job["stage"], job["chunks_done"], job["chunks_total"], job["percent"]) == (
        "succeeded",
        "done",
        1,
        1,
        100,
    )
    assert set(job["timings_ms"]) == {"parse", "chunk", "embed", "store"}
    document = api.get("/collections/notes/documents/a.md").json()
    assert (document["title"], document["source"], document["media_type"]) == ("Title", "a.md", "text/markdown")
    assert len(document["source_hash"]) == 64


def test_tags_metadata_and_ids_go_with_the_files(api: Any, notes: Collection) -> None:
    fields = {"tags": ["x", "y"], "metadata": '{"team": "support"}', "doc_ids": ["handbook/a", "handbook/b"]}
    response = api.upload("notes", ("a.txt", b"text a"), ("a.txt", b"text b"), fields=fields)
    assert [file["doc_id"] for file in response.json()["results"]] == ["handbook/a", "handbook/b"]
    run_all()
    assert set(Document.objects.values_list("doc_id", flat=True)) == {"handbook/a", "handbook/b"}
    chunk = Chunk.objects.get(doc_id="handbook/a")
    assert (chunk.tags, chunk.metadata["team"], chunk.content) == (["x", "y"], "support", "text a")


def test_a_name_twice_in_one_upload_is_refused_the_second_time(api: Any, notes: Collection) -> None:
    files = api.upload("notes", ("a.txt", b"one"), ("a.txt", b"two")).json()["results"]
    assert [file["status"] for file in files] == ["queued", "rejected"]
    assert files[1]["error"]["type"] == "duplicate_name"
    run_all()
    assert Document.objects.get().text == "one"


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
    [({"metadata": "[1]"}, "metadata"), ({"metadata": "{"}, "metadata"), ({"doc_ids": ["a", "b"]}, "doc_ids")],
)
def test_a_wrong_form_field_is_422_and_nothing_is_kept(
    api: Any, notes: Collection, fields: dict[str, Any], field: str
) -> None:
    response = api.upload("notes", ("a.txt", b"text"), fields=fields)
    assert (response.status_code, response.json()["error"]["field"]) == (422, field)
    assert not Upload.objects.exists()


def test_an_upload_without_files_is_422(api: Any, notes: Collection) -> None:
    response = api.upload("notes")
    assert (response.status_code, response.json()["error"]["field"]) == (422, "files")


def test_the_same_file_again_changes_nothing(api: Any, notes: Collection, embeddings: OpenAIServer) -> None:
    api.upload("notes", ("a.md", b"# Title\n\nSome text."))
    run_all()
    before = list(Chunk.objects.values_list("id", flat=True))
    embeddings.requests.clear()
    (file,) = api.upload("notes", ("a.md", b"# Title\n\nSome text.")).json()["results"]
    assert (file["status"], file["doc_id"], file["job_id"], file["error"]) == ("unchanged", "a.md", None, None)
    assert run_all() == []
    assert list(Chunk.objects.values_list("id", flat=True)) == before
    assert embeddings.requests == []
    assert (Document.objects.get().revision, Upload.objects.count()) == (1, 1)


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


def test_a_bomb_fails_with_its_reason(api: Any, notes: Collection) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", CONTENT_TYPES)
        archive.writestr("word/document.xml", b"<w:document>" + b" " * 60_000_000)
    (file,) = api.upload("notes", ("report.docx", buffer.getvalue())).json()["results"]
    assert run_all() == ["failed"]
    assert api.get(f"/jobs/{file['job_id']}").json()["error_type"] == "bomb"


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
    assert api.delete("/collections/notes/documents/a.txt").json() == {
        "documents": 1,
        "chunks": 1,
        "revisions": 0,
        "overlays": 0,
        "uploads": 1,
    }
    assert not Upload.objects.exists()


def test_the_same_file_with_other_metadata_is_not_the_same(api: Any, notes: Collection) -> None:
    api.upload("notes", ("a.txt", b"some text"), fields={"metadata": '{"team": "support"}', "tags": ["x"]})
    run_all()
    api.upload("notes", ("a.txt", b"some text"), fields={"tags": ["y"]})
    run_all()
    document = Document.objects.get()
    assert ("team" in document.metadata, document.tags, document.revision) == (False, ["y"], 2)
    chunk = Chunk.objects.get()
    assert ("team" in chunk.metadata, chunk.tags) == (False, ["y"])
