from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from collections_app.models import (
    ApiKey,
    AuditEvent,
    Chunk,
    ChunkOverlay,
    Collection,
    Document,
    DocumentRevision,
    Generation,
    IngestBatch,
    IngestJob,
    Operation,
    Upload,
)
from collections_app.services.chunks.chunk_edits import edit_chunk
from collections_app.services.collections.collections import create_collection
from collections_app.services.documents.documents import ingest_text
from collections_app.services.generations.generations import start_generation
from collections_app.services.governance.api_keys import create_key
from collections_app.services.uploads.uploads import submit_uploads
from collections_app.services.worker.dispatch import run_job

MODELS = (
    "collection", "document", "chunk", "ingestjob", "apikey", "upload", "workerheartbeat", "idempotencyrecord",
    "generation", "generationdocument", "documentrevision", "chunkoverlay", "ingestbatch", "operation", "storedprobe",
    "provider", "fetchedsource", "fetchhost", "nearduplicate",
)  # fmt: skip

ADDED = ("collection", "document", "apikey")
INTERNAL = {
    "upload", "workerheartbeat", "idempotencyrecord", "generationdocument", "chunkoverlay", "storedprobe", "provider",
    "fetchedsource", "fetchhost", "nearduplicate",
}  # fmt: skip


def address(model: str, action: str = "changelist") -> str:
    return f"/admin/collections_app/{model}/" + ("" if action == "changelist" else action)


def run_action(client: Client, model: str, action: str, *rows: Any, **fields: Any) -> list[tuple[str, int | None]]:
    """(level, the count that it begins with) of each message."""
    data = {"action": action, "_selected_action": [row.pk for row in rows], **fields}
    response = client.post(address(model), data, follow=True)
    assert response.status_code == 200
    counts = [(message.level_tag, re.match(r"\d+", str(message))) for message in response.context["messages"]]
    return [(level, int(count[0]) if count else None) for level, count in counts]


@pytest.fixture
def filled(notes: Collection) -> Collection:
    ingest_text(notes, "a", "text of a", title="Title A", tags=["x"])
    ingest_text(notes, "b", "text of b")
    submit_uploads(notes, [SimpleUploadedFile("c.txt", b"text of c")])
    create_key("tests")
    return notes


@pytest.mark.parametrize("model", MODELS)
def test_every_model_is_listed_searched_and_opened(admin_client: Client, filled: Collection, model: str) -> None:
    assert admin_client.get(address(model)).status_code == 200
    assert admin_client.get(address(model), {"q": "a"}).status_code == 200
    assert admin_client.get(address(model, "add/")).status_code == (200 if model in ADDED else 403)
    rows = {"collection": Collection, "document": Document, "chunk": Chunk, "ingestjob": IngestJob, "apikey": ApiKey}
    if model in rows:
        pk = rows[model].objects.first().pk  # type: ignore[attr-defined]
        assert admin_client.get(address(model, f"{pk}/change/")).status_code == 200
        assert admin_client.post(address(model, f"{pk}/delete/"), {"post": "yes"}).status_code == 403


@pytest.mark.parametrize("model", ["collection", "document", "chunk", "ingestjob"])
def test_lists_take_the_same_queries_for_three_rows_as_for_one(
    admin_client: Client, notes: Collection, model: str
) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(address(model)).status_code == 200
        return len(queries)

    def add(name: str) -> None:
        collection = notes if model != "collection" else create_collection(name=name)
        ingest_text(collection, name, "text")
        submit_uploads(collection, [SimpleUploadedFile(f"{name}.txt", b"text")])

    add("a")
    count()
    one = count()
    add("b")
    add("c")
    assert count() == one


def test_the_key_hash_and_the_vectors_are_not_shown(admin_client: Client, filled: Collection) -> None:
    key = ApiKey.objects.get()
    page = admin_client.get(address("apikey", f"{key.pk}/change/")).content.decode()
    assert bytes(key.key_hash).hex()[:12] not in page and "Key hash" not in page
    chunk = admin_client.get(address("chunk", f"{Chunk.objects.first().pk}/change/")).content.decode()  # type: ignore[union-attr]
    assert "Embedding" not in chunk


def test_chunks_are_disabled_and_enabled(admin_client: Client, filled: Collection) -> None:
    a, b = Chunk.objects.order_by("doc_id")
    assert run_action(admin_client, "chunk", "disable", a, b) == [("success", 2)]
    assert not Chunk.objects.filter(enabled=True).exists()
    assert {entry.message for entry in AuditEvent.objects.all()} >= {"chunk 0 disabled"}
    again = Chunk.objects.get(doc_id="a")
    assert run_action(admin_client, "chunk", "enable", again) == [("success", 1)]
    assert list(Chunk.objects.filter(enabled=True).values_list("doc_id", flat=True)) == ["a"]


def test_documents_are_disabled_enabled_indexed_again_and_deleted(admin_client: Client, filled: Collection) -> None:
    a, b = Document.objects.order_by("doc_id")
    assert run_action(admin_client, "document", "disable", a) == [("success", 1)]
    assert list(Chunk.objects.order_by("doc_id").values_list("enabled", flat=True)) == [False, True]
    assert run_action(admin_client, "document", "enable", a, b) == [("success", 1)]
    assert Chunk.objects.filter(enabled=True).count() == 2
    assert run_action(admin_client, "document", "reindex", a, b) == [("success", 2)]
    assert IngestJob.objects.filter(kind="reindex", state="queued").count() == 2
    assert run_action(admin_client, "document", "delete_documents", a) == [("success", 1)]
    assert list(Chunk.objects.values_list("doc_id", flat=True)) == ["b"]
    log = list(AuditEvent.objects.order_by("pk").values_list("subject_name", "message"))
    assert ("a", "disabled") in log and ("a", "deleted from notes") in log


def test_a_disabled_document_stays_disabled_when_it_changes(admin_client: Client, filled: Collection) -> None:
    run_action(admin_client, "document", "disable", Document.objects.get(doc_id="a"))
    ingest_text(filled, "a", "other text of a")
    assert Document.objects.get(doc_id="a").enabled is False
    assert Chunk.objects.get(doc_id="a").enabled is False


def test_jobs_are_cancelled_and_retried(admin_client: Client, filled: Collection) -> None:
    job = IngestJob.objects.get()
    assert run_action(admin_client, "ingestjob", "cancel", job) == [("success", 1)]
    assert run_action(admin_client, "ingestjob", "cancel", job) == [("warning", None), ("success", 0)]
    assert run_action(admin_client, "ingestjob", "retry", job) == [("success", 1)]
    assert run_job(job.pk) == "succeeded"
    assert AuditEvent.objects.filter(message="retried").count() == 1


def test_keys_are_revoked_and_never_deleted(admin_client: Client, filled: Collection) -> None:
    assert run_action(admin_client, "apikey", "revoke", ApiKey.objects.get()) == [("success", 1)]
    assert ApiKey.objects.get().status == "revoked"


def test_collections_are_indexed_again_and_deleted(admin_client: Client, filled: Collection) -> None:
    assert run_action(admin_client, "collection", "reindex_all", filled) == [("success", 2)]
    said = run_action(admin_client, "collection", "delete_collections", filled)
    assert said == [("success", None)]
    assert Operation.objects.get(kind="deletion").report["before"]["documents"] == 2
    assert not Collection.objects.exists() and not Chunk.objects.exists()


def test_somebody_who_may_only_look_has_no_actions(client: Client, filled: Collection, django_user_model: Any) -> None:
    from django.contrib.auth.models import Permission

    user = django_user_model.objects.create_user("reader", password="x", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_document"))
    client.force_login(user)
    run_action(client, "document", "delete_documents", *Document.objects.all())
    assert Document.objects.count() == 2


def test_generations_are_let_serve_cancelled_and_dropped(admin_client: Client, filled: Collection) -> None:
    second = start_generation(filled, {"language": "german"}, automatic=False)
    assert run_action(admin_client, "generation", "cancel", second) == [("success", 1)]
    third = start_generation(filled, {"language": "german"}, automatic=False)
    run_job(third.jobs.get().pk)
    assert run_action(admin_client, "generation", "activate", third) == [("success", 1)]
    run_job(third.jobs.newest()[0].pk)
    said = run_action(admin_client, "generation", "drop", *Generation.objects.filter(number__in=(1, 3)))
    assert said == [("warning", None), ("success", 1)]
    states = dict(Generation.objects.values_list("number", "state"))
    assert states == {1: "dropped", 2: "cancelled", 3: "serving"}
    assert admin_client.get(address("generation", f"{third.pk}/change/")).status_code == 200


def test_documents_are_archived_tagged_and_rolled_back(admin_client: Client, filled: Collection) -> None:
    a, b = Document.objects.order_by("doc_id")
    assert run_action(admin_client, "document", "archive", a) == [("success", 1)]
    assert Document.objects.get(doc_id="a").archived_at is not None
    refused = run_action(admin_client, "document", "add_tags", a, b, tags="red, blue")
    assert refused == [("warning", None), ("success", 1)]
    assert Document.objects.get(doc_id="b").tags == ["red", "blue"]
    assert run_action(admin_client, "document", "add_tags", b) == [("info", None)]
    assert run_action(admin_client, "document", "remove_tags", b, tags="red") == [("success", 1)]
    assert Document.objects.get(doc_id="b").tags == ["blue"]
    assert run_action(admin_client, "document", "unarchive", a) == [("success", 1)]
    ingest_text(filled, "b", "another text of b")
    assert run_action(admin_client, "document", "roll_back_one", b) == [("success", 1)]
    assert Document.objects.get(doc_id="b").text == "text of b"
    newest = DocumentRevision.objects.filter(doc_id="b").order_by("-revision")[0]
    said = run_action(admin_client, "documentrevision", "roll_back", newest)
    assert said == [("success", 1)]
    assert Document.objects.get(doc_id="b").text == "another text of b"


def test_batches_files_overlays_and_what_lost_its_document(admin_client: Client, filled: Collection) -> None:
    batch = IngestBatch.objects.create(collection=filled, label="all")
    IngestJob.objects.update(batch=batch)
    assert run_action(admin_client, "ingestbatch", "cancel", batch) == [("success", 1)]
    assert run_action(admin_client, "ingestbatch", "retry_failed", batch) == [("success", 0)]
    (upload,) = Upload.objects.all()
    IngestJob.objects.update(state="running")
    assert run_action(admin_client, "upload", "drop_unneeded", upload) == [("success", 0)]
    IngestJob.objects.update(state="cancelled")
    assert run_action(admin_client, "upload", "drop_unneeded", upload) == [("success", 1)]
    edit_chunk(filled, "a", 0, "changed by hand")
    overlay = ChunkOverlay.objects.get()
    assert Chunk.objects.get(doc_id="a").content == "changed by hand"
    assert run_action(admin_client, "chunkoverlay", "undo", overlay) == [("success", 1)]
    assert Chunk.objects.get(doc_id="a").content == "text of a"
    lost = ChunkOverlay.objects.create(collection=filled, doc_id="gone", kind="disable")
    kept = ChunkOverlay.objects.create(collection=filled, doc_id="a", kind="add", content="x")
    said = run_action(admin_client, "chunkoverlay", "drop_orphans", lost, kept)
    assert said == [("success", 1)] and ChunkOverlay.objects.get() == kept


def test_collections_are_checked_and_what_failed_is_retried(
    admin_client: Client, filled: Collection, django_capture_on_commit_callbacks: Any
) -> None:
    IngestJob.objects.update(state="failed", error="x")
    assert run_action(admin_client, "collection", "retry_failed", filled) == [("success", 1)]
    assert run_action(admin_client, "collection", "cancel_jobs", filled) == [("success", 1)]
    assert run_action(admin_client, "collection", "probe_recall", filled) == [("warning", None), ("success", 0)]
    assert run_action(admin_client, "collection", "build_index", filled) == [("success", 1)]
    with django_capture_on_commit_callbacks(execute=True):
        assert run_action(admin_client, "collection", "check_stored", filled) == [("success", 1)]
        run_action(admin_client, "operation", "check_everything", *Operation.objects.all())
    assert sorted(Operation.objects.values_list("subject", "state")) == [("", "succeeded"), ("notes", "succeeded")]
    both = (filled, create_collection(name="second"))
    assert run_action(admin_client, "collection", "export", *both) == [("warning", None)]


def test_an_administrator_makes_a_key_and_sees_its_secret_once(admin_client: Client) -> None:
    create_collection(name="notes")
    year = timezone.now().year + 2
    form = {
        "label": "robot",
        "scopes": ["read", "ask"],
        "collections": ["notes"],
        "expires_at": f"{year}-01-01T10:00",
    }
    page = admin_client.post(address("apikey", "add/"), form)
    key = ApiKey.objects.get()
    assert (key.label, key.scope, key.collections, key.expires_at and key.expires_at.year) == (
        "robot",
        "read",
        ["notes"],
        year,
    )
    secret = page.context["secret"]
    assert "no-store" in page["Cache-Control"]
    assert f'<code id="secret">{secret}</code>' in page.content.decode()
    assert Client().get("/v1/collections/notes", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    assert secret not in admin_client.get(address("apikey")).content.decode()
    assert [entry.actor_name for entry in AuditEvent.objects.filter(subject_name=str(key))] == ["admin"]


def test_a_key_with_a_wrong_field_is_refused_beside_it(admin_client: Client) -> None:
    page = admin_client.post(
        address("apikey", "add/"), {"label": "x", "scopes": ["read"], "expires_at": "2001-01-01T10:00"}
    )
    assert (page.status_code, list(page.context["form"].errors)) == (422, ["expires_at"])
    late = admin_client.post(
        address("apikey", "add/"), {"label": "x", "scopes": ["read"], "expires_at": "9999-12-31T23:59"}
    )
    assert (late.status_code, list(late.context["form"].errors)) == (422, ["expires_at"])
    assert not ApiKey.objects.exists()


def test_keys_are_made_by_who_may_add_them(client: Client, django_user_model: Any) -> None:
    client.force_login(django_user_model.objects.create_user("staff", is_staff=True))
    assert client.post(address("apikey", "add/"), {"label": "x", "scope": "write"}).status_code == 403
    assert not ApiKey.objects.exists()
