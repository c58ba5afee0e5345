"""Work done in the admin: a collection with its policy, files into it, edits, and who may do them."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from collections_app.admin import uploading
from collections_app.domain.permissions import Role
from collections_app.models import AuditEvent, Collection, Document, IngestBatch, IngestJob, ModelPrice, RoleGrant
from collections_app.services.documents.documents import ingest_text
from collections_app.services.worker.dispatch import run_job
from tests.fakes.openai_server import OpenAIServer

ADMIN = "/admin/collections_app"
POLICY = {"kind": "words", "target_tokens": "50", "overlap_tokens": "5", "max_chars": ""}


def files(*named: tuple[str, bytes]) -> list[SimpleUploadedFile]:
    return [SimpleUploadedFile(name, content) for name, content in named]


def add(collection: Collection, doc_id: str, text: str, **values: Any) -> Document:
    ingest_text(collection, doc_id, text, **values)
    return Document.objects.get(collection=collection, doc_id=doc_id)


def staff(client: Client, users: Any, *permissions: str) -> Client:
    user = users.objects.create_user("-".join(permissions) or "nobody", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    deletes = any(name.startswith("delete_") for name in permissions)
    RoleGrant.objects.create(user=user, role=Role.ADMINISTRATOR if deletes else Role.CURATOR)
    client.force_login(user)
    return client


def rows_of(page: Any, attribute: str) -> list[tuple[str, str]]:
    """(state, file) of the rows of a batch's page."""
    found = re.findall(rf'<tr data-{attribute}="(\w+)"><td>(?:<a[^>]*>)?([^<]*)', page.content.decode())
    return [(state, name) for state, name in found]


def test_a_collection_is_made_with_its_policy_in_fields(admin_client: Client, embeddings: OpenAIServer) -> None:
    form = {
        "name": "handbook", "description": "How we work", "hybrid_enabled": "on", "language": "german",
        "embed_model": "text-embedding-3-small", "embed_dims": "32", **POLICY,
    }  # fmt: skip
    page = admin_client.get(f"{ADMIN}/collection/add/").content.decode()
    assert all(f'name="{name}"' in page for name in form)
    answer = admin_client.post(f"{ADMIN}/collection/add/", form)
    made = Collection.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"{ADMIN}/collection/{made.pk}/change/")
    assert (made.name, made.language, made.description) == ("handbook", "german", "How we work")
    assert made.chunk_policy == {"kind": "words", "target_tokens": 50, "overlap_tokens": 5}
    assert AuditEvent.objects.get(subject_name="handbook").actor_name == "admin"
    again = admin_client.post(f"{ADMIN}/collection/add/", form)
    assert (again.status_code, list(again.context["form"].errors)) == (409, ["name"])
    settings = f"{ADMIN}/collection/{made.pk}/settings/"
    assert "target_tokens" not in admin_client.get(settings).content.decode()
    changed = {"description": "", "revisions": "3", "runs_days": "", "action": ""}
    assert admin_client.post(settings, changed).status_code == 302
    made.refresh_from_db()
    assert (made.chunk_policy["target_tokens"], made.retention, made.description) == (50, {"revisions": 3}, "")
    assert admin_client.post(settings, changed | {"revisions": "-2"}).status_code == 422


def test_files_are_uploaded_and_their_page_tells_of_each(admin_client: Client, notes: Collection) -> None:
    ingest_text(notes, "old.txt", "old")
    upload = f"{ADMIN}/collection/{notes.pk}/upload/"
    page = admin_client.get(upload).content.decode()
    assert re.search(r'<input type="file" name="uploads"[^>]* multiple', page)
    sent = files(("a.txt", b"first text"), ("b.txt", b""), ("c.xyz", b"\x00\x01\x02" * 99), ("d.txt", b"second text"))
    form = {"uploads": sent, "tags": "red, blue", "metadata": "", "on_clash": "replace"}
    page = admin_client.post(upload, form, follow=True)
    batch = IngestBatch.objects.get()
    assert page.redirect_chain[-1][0] == f"{ADMIN}/ingestbatch/{batch.pk}/change/"
    assert (batch.created_by, batch.rejected, batch.submitted) == ("admin", 1, 4)
    assert rows_of(page, "state") == [("queued", "a.txt"), ("queued", "c.xyz"), ("queued", "d.txt")]
    assert rows_of(page, "outcome") == [("rejected", "b.txt")]
    assert 'hx-trigger="every 2s"' in page.content.decode()
    for job in IngestJob.objects.filter(batch=batch):
        run_job(job.pk)
    page = admin_client.get(f"{ADMIN}/ingestbatch/{batch.pk}/change/")
    assert rows_of(page, "state") == [("failed", "c.xyz"), ("succeeded", "a.txt"), ("succeeded", "d.txt")]
    assert IngestJob.objects.get(doc_id="c.xyz").error in html.unescape(page.content.decode())
    assert "hx-trigger" not in page.content.decode()
    assert Document.objects.get(doc_id="a.txt").tags == ["red", "blue"]


def test_rejected_files_are_told_of_before_those_that_did_not_change(
    admin_client: Client, notes: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "LINES_KEPT", 2)
    upload = f"{ADMIN}/collection/{notes.pk}/upload/"
    same = [(f"{number}.txt", b"text") for number in range(3)]
    admin_client.post(upload, {"uploads": files(*same)})
    page = admin_client.post(upload, {"uploads": files(*same, ("empty.txt", b""))}, follow=True)
    assert rows_of(page, "outcome") == [("rejected", "empty.txt"), ("unchanged", "0.txt")]


def test_files_are_uploaded_from_documents_too(admin_client: Client, notes: Collection) -> None:
    missing = admin_client.post(f"{ADMIN}/document/add/", {"uploads": files(("a.txt", b"text"))})
    assert (missing.status_code, list(missing.context["form"].errors)) == (422, ["collection"])
    empty = admin_client.post(f"{ADMIN}/document/add/", {"collection": notes.pk})
    assert (empty.status_code, list(empty.context["form"].errors)) == (422, ["uploads"])
    form = {"collection": notes.pk, "uploads": files(("a.txt", b"text"), ("b.txt", b"text two"))}
    assert admin_client.post(f"{ADMIN}/document/add/", form).status_code == 302
    assert sorted(IngestJob.objects.values_list("doc_id", flat=True)) == ["a.txt", "b.txt"]


def test_what_the_queue_refuses_is_told_in_the_form(admin_client: Client, notes: Collection, settings: Any) -> None:
    settings.RAGD_QUEUE_MAX_JOBS = 1
    form = {"uploads": files(("a.txt", b"a"), ("b.txt", b"b"))}
    page = admin_client.post(f"{ADMIN}/collection/{notes.pk}/upload/", form)
    assert page.status_code == 429 and page.context["form"].non_field_errors()
    assert not IngestJob.objects.exists() and not IngestBatch.objects.exists()


def test_a_document_is_edited_and_switched_on_its_page(admin_client: Client, notes: Collection) -> None:
    document = add(notes, "a", "text of a", tags=["x"])
    page = admin_client.get(f"{ADMIN}/document/{document.pk}/change/")
    actions = [name for name, _ in page.context["row_actions"].fields["action"].choices]
    assert {"reindex", "disable", "archive", "add_tags", "delete_documents"} <= set(actions)
    edit = f"{ADMIN}/document/{document.pk}/edit/"
    form = {"title": "Title", "tags": "y, z", "metadata": '{"year": 2024}', "expected_revision": "1", "kind": ""}
    assert admin_client.post(edit, form).status_code == 302
    document.refresh_from_db()
    assert (document.title, document.tags, document.metadata) == ("Title", ["y", "z"], {"year": 2024})
    assert admin_client.post(edit, form | {"title": "Late"}).status_code == 409


def test_stored_structures_are_tables_and_escaped(admin_client: Client, notes: Collection) -> None:
    hostile = {"<b>name</b>": "<script>alert(1)</script>", "list": [{"a": 1, "took_ms": 1234.5}], "plain": "<i>"}
    document = add(notes, "a", "text", metadata=hostile)
    shown = admin_client.get(f"{ADMIN}/document/{document.pk}/change/").content.decode()
    assert '<table class="readable">' in shown and "1.23 s" in shown
    assert "<script>alert(1)" not in shown and "<b>name" not in shown and "<i>" not in shown
    assert "&quot;list&quot;" not in shown and "{&quot;" not in shown


def test_internal_tables_are_listed_for_those_who_ask(admin_client: Client) -> None:
    def listed() -> set[str]:
        return set(re.findall(r'class="model-(\w+)', admin_client.get("/admin/").content.decode()))

    internal = {"idempotencyrecord", "fetchhost", "generationdocument", "chunkoverlay", "spanwriter"}
    work = {"collection", "document", "apikey", "modelprice", "user", "group", "sweep", "reviewtask", "goldenset"}
    before = listed()
    assert (before & internal, before & work) == (set(), work)
    assert admin_client.post("/admin-internals/").status_code == 302
    assert internal <= listed()
    admin_client.post("/admin-internals/")
    assert listed() == before
    assert admin_client.get("/admin-internals/").status_code == 405


def test_the_switch_is_for_staff(client: Client, django_user_model: Any) -> None:
    client.force_login(django_user_model.objects.create_user("reader"))
    client.post("/admin-internals/")
    assert "admin_internals" not in client.session


@pytest.mark.parametrize(
    "path",
    ["collection/add/", "document/add/", "collection/{c}/upload/", "collection/{c}/settings/", "document/{d}/edit/"],
)
def test_who_may_only_look_is_refused(client: Client, notes: Collection, django_user_model: Any, path: str) -> None:
    document = add(notes, "a", "text of a")
    address = f"{ADMIN}/" + path.format(c=notes.pk, d=document.pk)
    reader = staff(client, django_user_model, "view_collection", "view_document", "view_ingestbatch")
    forms = {"name": "x", "uploads": files(("a.txt", b"text")), "collection": notes.pk, "title": "Changed"}
    assert (reader.get(address).status_code, reader.post(address, forms).status_code) == (403, 403)
    assert Collection.objects.count() == 1 and not IngestJob.objects.exists()
    assert Document.objects.get().title == ""
    page = reader.get(f"{ADMIN}/document/{document.pk}/change/")
    assert page.status_code == 200 and "row_actions" not in page.context
    assert [words for words, _ in page.context["row_tools"]] == ["Open"]
    assert 'name="action"' not in reader.get(f"{ADMIN}/document/").content.decode()


def test_whoever_may_change_documents_may_not_delete_them(
    client: Client, notes: Collection, django_user_model: Any
) -> None:
    document = add(notes, "a", "text of a")

    def delete(model: str, action: str, row: Any, *permissions: str) -> None:
        user = staff(client, django_user_model, f"view_{model}", *permissions)
        user.post(f"{ADMIN}/{model}/", {"action": action, "_selected_action": [row.pk]})

    delete("document", "delete_documents", document, "change_document")
    delete("collection", "delete_collections", notes, "change_collection")
    assert Document.objects.exists() and Collection.objects.live().exists()
    page = client.get(f"{ADMIN}/collection/{notes.pk}/change/")
    actions = {name for name, _ in page.context["row_actions"].fields["action"].choices}
    assert "reindex_all" in actions and "delete_collections" not in actions
    delete("document", "delete_documents", document, "delete_document")
    delete("collection", "delete_collections", notes, "delete_collection")
    assert not Document.objects.exists() and not Collection.objects.exists()


def test_who_may_add_documents_uploads_and_sees_the_batch_and_no_more(
    client: Client, notes: Collection, django_user_model: Any
) -> None:
    adder = staff(client, django_user_model, "add_document")
    page = adder.post(f"{ADMIN}/collection/{notes.pk}/upload/", {"uploads": files(("a.txt", b"text"))}, follow=True)
    assert page.status_code == 200 and rows_of(page, "state") == [("queued", "a.txt")]
    assert adder.get(f"{ADMIN}/ingestbatch/").status_code == 403
    assert adder.get(f"{ADMIN}/collection/{notes.pk}/settings/").status_code == 403
    assert adder.get(f"{ADMIN}/collection/999999/upload/").status_code == 404


@pytest.mark.fault("F23")
def test_a_price_of_an_embedding_model_needs_no_output_price(admin_client: Client) -> None:
    form = {"model": "embed-x", "system": "", "input_per_million": "0.02", "output_per_million": "", "note": ""}
    assert admin_client.post(f"{ADMIN}/modelprice/add/", form).status_code == 302
    price = ModelPrice.objects.get(model="embed-x")
    assert (price.input_per_million, price.output_per_million) == (0.02, 0.0)
