"""The admin: every model looked at by a table, nothing foreign shown, files uploaded, rows changed by actions."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from collections_app.access.api_keys import NewKey, create_key
from collections_app.access.permissions import Role
from collections_app.chunks.edits import edit_chunk
from collections_app.documents.services import ingest_text
from collections_app.index.services import start_index_version
from collections_app.jobs.dispatch import run_job
from collections_app.models import (
    ApiKey,
    AuditEvent,
    Chunk,
    ChunkOverlay,
    Collection,
    Document,
    DocumentRevision,
    FetchedSource,
    IndexVersion,
    IndexVersionDocument,
    IngestBatch,
    IngestJob,
    ModelPrice,
    NearDuplicate,
    Operation,
    RoleGrant,
    Upload,
)
from collections_app.uploads.services import submit_uploads
from evaluation_app.models import PromotionGate, RunScore, Sampling
from ragd.types import RetrievePlan
from retrieval_app.models import SavedPlan
from retrieval_app.plans import services
from tests.access.house import House, Place, build_house, build_place
from tests.retrieval.corpus import make_collection

pytestmark = pytest.mark.django_db
ADMIN = "/admin/collections_app"
MODELS: list[type[Model]] = [model for model in apps.get_models() if admin.site.is_registered(model)]
ADDED = {"auth.user", "auth.group", "collections_app.modelprice", "collections_app.document"}
CHANGED = ADDED - {"collections_app.document"}
OF_NOBODY = {  # whose rows no place has: they are about the server, people or log-ins
    "axes", "auth", "mfa", "socialaccount", "usersessions", "modelprice", "modelsetting", "provider", "status",
    "idempotencyrecord", "apikey", "keptjudgement",
}  # fmt: skip


def list_of(model: type[Model]) -> str:
    return f"/admin/{model._meta.app_label}/{model._meta.model_name}/"


def label_of(model: type[Model]) -> str:
    return model._meta.label_lower


def fill(place: Place) -> None:
    """Make a row of every model that a place of the house has none of; its word stands in each."""
    collection, word = place.collection, place.word
    names = {"collection": collection, "doc_id": f"{word}.md"}
    document = Document.objects.get(**names)
    submit_uploads(collection, [SimpleUploadedFile(f"{word}.txt", f"text of {word}".encode())])
    edit_chunk(collection, document.doc_id, 0, f"The {word}, changed by hand.")
    ingest_text(collection, document.doc_id, f"Another text of the {word}.")
    NearDuplicate.objects.create(
        **names, chunk_index=0, of_doc_id=f"{word}-more.md", of_chunk_index=0, revision=1, share=1
    )
    FetchedSource.objects.create(document=document, address=f"https://{word}.example/", sha256="0" * 64)
    index_version = start_index_version(collection, {"language": "german"}, automatic=False)
    IndexVersionDocument.objects.create(
        index_version=index_version, doc_id=document.doc_id, document_id=document.pk, revision=1, enabled=True,
        chunk_count=1, content_hash=word, chunk_policy={},
    )  # fmt: skip
    services.save_plan(collection, f"{word} plan", RetrievePlan())
    named = {"collection_name": collection.name}
    RunScore.objects.create(query_run=place.query.pk, question_text=f"{word}?", asked_at=timezone.now(), **named)
    Sampling.objects.create(updated_by=word, **named)
    PromotionGate.objects.create(golden_set=place.golden_set, set_name=place.golden_set.name, updated_by=word, **named)


@pytest.fixture
def house() -> House:
    made = build_house()
    fill(made.own)
    fill(made.foreign)
    return made


def rows_of(model: type[Model], name: str) -> list[Any]:
    """The first, which the own place has, and the last, which the foreign one has; to an administrator the last."""
    known = list(model._default_manager.order_by("pk").values_list("pk", flat=True))
    return known[-1:] if name == "administrator" else [*known[:2], *known[2:][-2:]]


def test_every_model_is_listed_searched_filtered_and_opened_and_none_is_changed_by_hand(house: House) -> None:
    client, wrong = house.client("root"), []
    client.raise_request_exception = False

    def expect(status: int, response: Any, what: str) -> None:
        if response.status_code != status:
            wrong.append(f"{label_of(model)} {what}: {response.status_code}")

    for model in MODELS:
        label, address = label_of(model), list_of(model)
        page = client.get(address)
        expect(200, page, "list")
        expect(200, client.get(address, {"q": "1"}), "search")
        for spec in page.context["cl"].filter_specs if page.status_code == 200 else ():
            choices = [each["query_string"] for each in spec.choices(page.context["cl"])]
            expect(200, client.get(address + choices[-1]), f"filter {spec.title}")
        expect(200 if label in ADDED else 403, client.get(f"{address}add/"), "add")
        pk = model._default_manager.values_list("pk", flat=True).first()
        if pk is None:
            continue
        row = client.get(f"{address}{quote(pk)}/change/")
        expect(200, row, "row")
        if label not in CHANGED:
            expect(403, client.post(f"{address}{quote(pk)}/change/", {"name": "x", "question": "x"}), "change")
        expect(302, client.get(f"{address}{quote(pk)}/history/"), "history")
    assert not wrong, "\n".join(wrong)


def test_nothing_of_a_foreign_collection_leaks(house: House) -> None:
    """To whom every permission of Django is given, and a role in one collection."""
    wrong, empty = [], []
    for name in ("curator", "administrator"):
        person = house.people[name]
        person.is_staff = True
        person.save()
        person.user_permissions.set(Permission.objects.all())
        client = house.client(name)
        words = [house.foreign.word, house.foreign.name, *([house.hidden] if name == "curator" else [])]
        for model in MODELS:
            address, rows = list_of(model), rows_of(model, name)
            empty += [] if rows else [label_of(model)]
            for page, pk in [("", ""), ("?q=the", ""), *((f"{quote(pk)}/change/", pk) for pk in rows)]:
                body = client.get(address + page, follow=True).content.decode().replace(f"“{pk}”", "")
                wrong += [f"{name}: {address}{page}: tells {word}" for word in words if re.search(rf"\b{word}", body)]
    assert not wrong, "\n".join(wrong)
    assert [each for each in empty if not OF_NOBODY & set(each.split("."))] == []


def test_no_foreign_row_is_changed(house: House) -> None:
    person = house.people["administrator"]
    person.is_staff = True
    person.save()
    person.user_permissions.set(Permission.objects.all())
    client, foreign = house.client("administrator"), house.foreign.collection
    for model, actions in {
        Document: ("disable", "reindex", "delete"), Chunk: ("disable",), Collection: ("delete_collections",),
        IngestJob: ("retry",), IngestBatch: ("retry_failed",), SavedPlan: ("delete_plans",),
    }.items():  # fmt: skip
        rows = model._default_manager.filter(**{"pk": foreign.pk} if model is Collection else {"collection": foreign})
        for action in actions:
            client.post(list_of(model), {"action": action, "_selected_action": [str(row.pk) for row in rows]})
    assert Collection.objects.live().filter(pk=foreign.pk).exists()
    assert Document.objects.filter(collection=foreign, enabled=True).count() == 2
    assert not Chunk.objects.filter(collection=foreign, enabled=False).exists()
    assert IngestJob.objects.get(pk=house.foreign.job.pk).state == "failed"
    assert SavedPlan.objects.filter(collection=foreign).exists()


def test_lists_take_the_same_queries_however_many_rows_there_are(house: House) -> None:
    def counts() -> dict[str, int]:
        found = {}
        for model in MODELS:
            with CaptureQueriesContext(connection) as queries:
                assert client.get(list_of(model)).status_code == 200
            found[label_of(model)] = len(queries)
        return found

    client = house.client("root")
    create_key(NewKey("one", acts_as="root"))
    client.get("/admin/")  # the first request of a log-in notes its session
    before = counts()
    create_key(NewKey("two", acts_as="viewer"))
    fill(build_place("meadow", "clover", house.people["root"]))
    assert counts() == before


def address(model: str, action: str = "changelist") -> str:
    return f"{ADMIN}/{model}/" + ("" if action == "changelist" else action)


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
    create_key(NewKey("tests"))
    return notes


def staff(client: Client, users: Any, *permissions: str) -> Client:
    user = users.objects.create_user("-".join(permissions) or "nobody", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    deletes = any(name.startswith("delete_") for name in permissions)
    RoleGrant.objects.create(user=user, role=Role.ADMINISTRATOR if deletes else Role.CURATOR)
    client.force_login(user)
    return client


def files(*named: tuple[str, bytes]) -> list[SimpleUploadedFile]:
    return [SimpleUploadedFile(name, content) for name, content in named]


def test_secrets_hashes_and_vectors_are_not_shown(admin_client: Client, filled: Collection) -> None:
    key = ApiKey.objects.get()
    page = admin_client.get(address("apikey", f"{key.pk}/change/")).content.decode()
    assert bytes(key.key_hash).hex()[:12] not in page and "Key hash" not in page
    chunk = admin_client.get(address("chunk", f"{Chunk.objects.first().pk}/change/")).content.decode()  # type: ignore[union-attr]
    assert "Embedding" not in chunk
    for model in MODELS:
        fields = admin.site.get_model_admin(model).get_fields(None) if label_of(model) not in CHANGED else ()  # type: ignore[arg-type]
        names = {getattr(each, "__name__", each) for each in fields}
        assert not names & {"key_hash", "previous_hash", "secret", "data", "extra_data", "session_key", "response"}


def test_stored_structures_are_tables_and_escaped(admin_client: Client, notes: Collection) -> None:
    hostile = {"<b>name</b>": "<script>alert(1)</script>", "list": [{"a": 1, "took_ms": 1234.5}], "plain": "<i>"}
    ingest_text(notes, "a", "text", metadata=hostile)
    shown = admin_client.get(address("document", f"{Document.objects.get().pk}/change/")).content.decode()
    assert '<table class="readable">' in shown and "1.23 s" in shown
    assert "<script>alert(1)" not in shown and "<b>name" not in shown and "<i>" not in shown
    assert "&quot;list&quot;" not in shown and "{&quot;" not in shown


def test_files_are_uploaded_and_the_page_of_their_batch_opens(admin_client: Client, notes: Collection) -> None:
    ingest_text(notes, "old.txt", "old")
    upload = address("document", "add/")
    page = admin_client.get(upload).content.decode()
    assert re.search(r'<input type="file" name="uploads"[^>]* multiple', page)
    sent = files(("a.txt", b"first text"), ("b.txt", b""), ("c.xyz", b"\x00\x01\x02" * 99), ("d.txt", b"second text"))
    form = {"collection": notes.pk, "uploads": sent, "tags": "red, blue", "metadata": "", "on_clash": "replace"}
    page = admin_client.post(upload, form, follow=True)
    batch = IngestBatch.objects.get()
    assert page.redirect_chain[-1][0] == reverse("collections:batch", args=["notes", batch.pk])
    assert (batch.created_by, batch.rejected, batch.submitted) == ("admin", 1, 4)
    assert [str(each).partition(" (")[0] for each in page.context["messages"]] == ["b.txt: rejected"]
    assert sorted(IngestJob.objects.values_list("doc_id", flat=True)) == ["a.txt", "c.xyz", "d.txt"]
    run_job(IngestJob.objects.get(doc_id="a.txt").pk)
    assert Document.objects.get(doc_id="a.txt").tags == ["red", "blue"]


def test_an_upload_is_refused_beside_its_field(admin_client: Client, notes: Collection, settings: Any) -> None:
    upload = address("document", "add/")
    missing = admin_client.post(upload, {"uploads": files(("a.txt", b"text"))})
    assert (missing.status_code, list(missing.context["form"].errors)) == (422, ["collection"])
    empty = admin_client.post(upload, {"collection": notes.pk})
    assert (empty.status_code, list(empty.context["form"].errors)) == (422, ["uploads"])
    settings.RAGD_QUEUE_MAX_JOBS = 1
    full = admin_client.post(upload, {"collection": notes.pk, "uploads": files(("a.txt", b"a"), ("b.txt", b"b"))})
    assert full.status_code == 429 and full.context["form"].non_field_errors()
    assert not IngestJob.objects.exists() and not IngestBatch.objects.exists()


def test_who_may_add_documents_uploads_and_sees_no_list(
    client: Client, notes: Collection, django_user_model: Any
) -> None:
    form = {"collection": notes.pk, "uploads": files(("a.txt", b"text"))}
    looker = staff(Client(), django_user_model, "view_document", "view_collection")
    assert looker.post(address("document", "add/"), form).status_code == 403
    adder = staff(client, django_user_model, "add_document")
    form = {"collection": notes.pk, "uploads": files(("a.txt", b"text"))}
    assert adder.post(address("document", "add/"), form, follow=True).status_code == 200
    assert list(IngestJob.objects.values_list("doc_id", flat=True)) == ["a.txt"]
    assert adder.get(address("ingestbatch")).status_code == 403


def test_who_may_only_look_has_no_actions(client: Client, filled: Collection, django_user_model: Any) -> None:
    reader = staff(client, django_user_model, "view_document")
    run_action(reader, "document", "delete", *Document.objects.all())
    assert Document.objects.count() == 2
    page = reader.get(address("document", f"{Document.objects.first().pk}/change/"))  # type: ignore[union-attr]
    assert page.status_code == 200 and "row_actions" not in page.context
    assert 'name="action"' not in reader.get(address("document")).content.decode()


def test_who_may_change_may_not_delete(client: Client, filled: Collection, django_user_model: Any) -> None:
    def delete(model: str, action: str, row: Any, *permissions: str) -> None:
        user = staff(client, django_user_model, f"view_{model}", *permissions)
        user.post(address(model), {"action": action, "_selected_action": [row.pk]})

    document = Document.objects.get(doc_id="a")
    delete("document", "delete", document, "change_document")
    delete("collection", "delete_collections", filled, "change_collection")
    assert Document.objects.filter(pk=document.pk).exists() and Collection.objects.live().exists()
    page = client.get(address("collection", f"{filled.pk}/change/"))
    actions = {name for name, _ in page.context["row_actions"].fields["action"].choices}
    assert "reindex_all" in actions and "delete_collections" not in actions
    delete("document", "delete", document, "delete_document")
    assert not Document.objects.filter(pk=document.pk).exists()
    delete("collection", "delete_collections", filled, "delete_collection")
    assert not Collection.objects.exists()


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
    ingest_text(filled, "a", "other text of a")
    assert list(Chunk.objects.order_by("doc_id").values_list("enabled", flat=True)) == [False, True]
    assert run_action(admin_client, "document", "enable", a, b) == [("success", 1)]
    assert Chunk.objects.filter(enabled=True).count() == 2
    assert run_action(admin_client, "document", "reindex", a, b) == [("success", 2)]
    assert IngestJob.objects.filter(kind="reindex", state="queued").count() == 2
    assert run_action(admin_client, "document", "delete", a) == [("success", 1)]
    assert list(Chunk.objects.values_list("doc_id", flat=True)) == ["b"]
    log = list(AuditEvent.objects.order_by("pk").values_list("subject_name", "message"))
    assert ("a", "disabled") in log and ("a", "deleted from notes") in log


def test_jobs_and_batches_are_cancelled_and_retried(admin_client: Client, filled: Collection) -> None:
    job = IngestJob.objects.get()
    assert run_action(admin_client, "ingestjob", "cancel", job) == [("success", 1)]
    assert run_action(admin_client, "ingestjob", "cancel", job) == [("warning", None), ("success", 0)]
    assert run_action(admin_client, "ingestjob", "retry", job) == [("success", 1)]
    batch = IngestBatch.objects.create(collection=filled, label="all")
    IngestJob.objects.update(batch=batch)
    assert run_action(admin_client, "ingestbatch", "cancel", batch) == [("success", 1)]
    assert run_action(admin_client, "ingestbatch", "retry_failed", batch) == [("success", 0)]
    IngestJob.objects.update(state="failed", error="x")
    assert run_action(admin_client, "collection", "retry_failed", filled) == [("success", 1)]
    assert run_action(admin_client, "collection", "cancel_jobs", filled) == [("success", 1)]
    assert AuditEvent.objects.filter(message="retried").count() == 1


def test_keys_are_revoked_and_never_deleted(admin_client: Client, filled: Collection) -> None:
    assert run_action(admin_client, "apikey", "revoke", ApiKey.objects.get()) == [("success", 1)]
    assert ApiKey.objects.get().status == "revoked"
    key = ApiKey.objects.get()
    assert admin_client.post(address("apikey", f"{key.pk}/delete/"), {"post": "yes"}).status_code == 403


def test_collections_are_indexed_again_and_deleted(admin_client: Client, filled: Collection) -> None:
    assert run_action(admin_client, "collection", "reindex_all", filled) == [("success", 2)]
    assert run_action(admin_client, "collection", "delete_collections", filled) == [("success", 1)]
    assert Operation.objects.get(kind="deletion").report["before"]["documents"] == 2
    assert not Collection.objects.exists() and not Chunk.objects.exists()


def test_index_versions_are_cancelled_and_dropped(admin_client: Client, filled: Collection) -> None:
    second = start_index_version(filled, {"language": "german"}, automatic=False)
    assert run_action(admin_client, "indexversion", "cancel", second) == [("success", 1)]
    third = start_index_version(filled, {"language": "german"}, automatic=False)
    run_job(third.jobs.get().pk)
    said = run_action(admin_client, "indexversion", "drop", *IndexVersion.objects.filter(number__in=(1, 3)))
    assert said == [("warning", None), ("success", 1)]
    states = dict(IndexVersion.objects.values_list("number", "state"))
    assert states == {1: "serving", 2: "cancelled", 3: "dropped"}


def test_what_lost_its_document_is_deleted(admin_client: Client, filled: Collection) -> None:
    (upload,) = Upload.objects.all()
    assert run_action(admin_client, "upload", "drop_unneeded", upload) == [("success", 0)]
    IngestJob.objects.update(state="cancelled")
    assert run_action(admin_client, "upload", "drop_unneeded", upload) == [("success", 1)]
    lost = ChunkOverlay.objects.create(collection=filled, doc_id="gone", kind="disable")
    kept = ChunkOverlay.objects.create(collection=filled, doc_id="a", kind="add", content="x")
    said = run_action(admin_client, "chunkoverlay", "drop_orphans", lost, kept)
    assert said == [("success", 1)] and ChunkOverlay.objects.get() == kept
    ingest_text(filled, "b", "another text of b")
    assert run_action(admin_client, "documentrevision", "drop_orphans", DocumentRevision.objects.get()) == [
        ("success", 0)
    ]


def test_saved_plans_are_marked_and_deleted_through_the_services(admin_client: Client) -> None:
    collection = make_collection(empty=True)
    one, two = (services.save_plan(collection, name, RetrievePlan(k=k)) for name, k in (("one", 1), ("two", 2)))
    base = list_of(SavedPlan)
    admin_client.post(base, {"action": "make_default", "_selected_action": [str(one.pk)]})
    assert services.choose_plan(collection, None, {}).name == one.name
    admin_client.post(base, {"action": "unmark_default", "_selected_action": [str(one.pk)]})
    assert services.choose_plan(collection, None, {}).name == ""
    admin_client.post(base, {"action": "delete_plans", "_selected_action": [str(one.pk), str(two.pk)]})
    assert list(SavedPlan.objects.all()) == []
    said = AuditEvent.objects.filter(subject_kind="savedplan", actor_name="admin")
    assert said.filter(message="deleted plan two of house").exists()


@pytest.mark.fault("F23")
def test_a_price_of_an_embedding_model_needs_no_output_price(admin_client: Client) -> None:
    form = {"model": "embed-x", "system": "", "input_per_million": "0.02", "output_per_million": "", "note": ""}
    assert admin_client.post(f"{ADMIN}/modelprice/add/", form).status_code == 302
    price = ModelPrice.objects.get(model="embed-x")
    assert (price.input_per_million, price.output_per_million) == (0.02, 0.0)
