"""Deleted documents: out of everything, undone from the toast, restored as they were, and gone after some days."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from collections_app.chunks.edits import edit_chunk
from collections_app.documents.services import change_state, ingest_text, restore_documents, trash_documents
from collections_app.index import ingestion
from collections_app.models import (
    Chunk,
    ChunkOverlay,
    Collection,
    Document,
    DocumentRevision,
    TrashedChunk,
    TrashedDocument,
    Upload,
)
from evaluation_app.runs.lifecycle import apply_retention
from ragd_site.operations.erasure.documents import erase_document
from tests.parsing.builders import make_pdf
from tests.web.pages import attribute, has, is_empty, texts, toasts, tones, tree

pytestmark = pytest.mark.usefixtures("bound")
STATE = ("title", "tags", "metadata", "text", "revision", "content_hash", "source_hash", "page_map", "enabled")


def state_of(collection: Collection, doc_id: str) -> Any:
    """Of a document what makes it what it is, its chunks with their vectors among it."""
    chunks = Chunk.objects.filter(collection_id=collection.pk, doc_id=doc_id).order_by("chunk_index")
    return (
        Document.objects.filter(collection=collection, doc_id=doc_id).values(*STATE).get(),
        [(chunk.content, chunk.enabled, chunk.revision, list(chunk.embedding)) for chunk in chunks],
        list(DocumentRevision.objects.filter(doc_id=doc_id).values_list("revision", "text", "reason")),
        list(ChunkOverlay.objects.filter(doc_id=doc_id).values_list("kind", "content", "applies")),
        list(Upload.objects.filter(doc_id=doc_id).values_list("name", "sha256")),
    )


@pytest.fixture
def nature(visitor: Client, fill: Callable[..., Any], django_capture_on_commit_callbacks: Any) -> Collection:
    """whales.md at revision 3 with a manual edit, trees.md, and paper.pdf with its file."""
    collection: Collection = fill(documents=2)
    ingest_text(
        collection, "whales.md", "# Whales\n\nThe blue whale is the largest animal.", title="Whales", tags=["a"]
    )
    edit_chunk(collection, "whales.md", 0, "The blue whale, edited.")
    with django_capture_on_commit_callbacks(execute=True):
        visitor.post("/collections/nature/upload/", {"uploads": [SimpleUploadedFile("paper.pdf", make_pdf(["Krill"]))]})
    return collection


def test_what_is_deleted_is_undone_from_the_toast_as_it_was(
    visitor: Client, nature: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["whales.md", "paper.pdf"]
    change_state(nature, ["paper.pdf"], "disabled")
    before = {name: state_of(nature, name) for name in names}
    page = "/collections/nature/documents/whales.md/"
    answer = visitor.post(
        "/collections/nature/?view=change",
        {"action": "delete", "doc_id": names, "confirmed": "on", "next": page},
        follow=True,
    )
    assert answer.status_code == 200 and tones(answer) == ["good"]
    assert attribute(answer, "a[href$='?view=trash']", "href") == "/collections/nature/?view=trash"
    for model in (Document, Chunk, DocumentRevision, ChunkOverlay, Upload):
        assert not model._default_manager.filter(doc_id__in=names).exists(), model
    form = tree(answer).css_first("[data-undo]")
    fields = [(each.attributes["name"], each.attributes["value"]) for each in form.css("input[type=hidden]")]
    posted: dict[str, list[str]] = {}
    for name, value in fields:
        posted.setdefault(str(name), []).append(str(value))
    embedder = ingestion.ingest_embedder(nature.embed_model, nature.embed_dims)
    unable = SimpleNamespace(model=embedder.model, dims=embedder.dims)  # to embed anything
    monkeypatch.setattr(ingestion, "ingest_embedder", lambda *_: unable)
    assert tones(visitor.post(str(form.attributes["action"]), posted, follow=True)) == ["good"]
    assert {name: state_of(nature, name) for name in names} == before
    for model in (TrashedDocument, TrashedChunk):
        assert not model._default_manager.exists()
    assert tones(visitor.post(str(form.attributes["action"]), posted, follow=True)) != ["good"], "it is back already"
    old = visitor.get("/collections/nature/documents/whales.md/?view=revision&number=1")
    assert old.status_code == 200


def test_the_trash_restores_many_and_is_emptied(visitor: Client, nature: Collection) -> None:
    address = "/collections/nature/?view=trash"
    assert is_empty(visitor.get(address))
    trash_documents(nature, ["whales.md", "trees.md", "paper.pdf"])
    ingest_text(nature, "trees.md", "Other trees have come.")
    listed = visitor.get(address)
    assert {node.attributes["data-trashed"] for node in tree(listed).css("[data-trashed]")} == {
        "whales.md", "trees.md", "paper.pdf",
    }  # fmt: skip
    assert tones(visitor.post(address, {"action": "restore"}, follow=True)) == ["watch"]
    told = toasts(visitor.post(address, {"action": "restore", "all": "on"}, follow=True))
    assert [tone for tone, _ in told] == ["good", "bad"] and "trees.md" in told[1][1]
    assert Document.objects.get(doc_id="trees.md").text == "Other trees have come."
    asked = visitor.post(address, {"action": "purge", "all": "on"})
    assert has(asked, "input[name=confirmed]") and TrashedDocument.objects.count() == 1
    ids = [node.attributes["value"] for node in tree(asked).css("#confirm input[name=id]")]
    visitor.post(address, {"action": "purge", "id": ids, "confirmed": "on"})
    assert not TrashedDocument.objects.exists() and not TrashedChunk.objects.exists()


def test_nobody_finds_what_is_in_the_trash(
    visitor: Client, nature: Collection, django_user_model: Any, ask: Callable[..., Any]
) -> None:
    from collections_app.models import RoleGrant

    trash_documents(nature, ["paper.pdf"])
    for address in (
        "",
        "?q=paper",
        "?state=any",
        "uploads/",
        "?show=statistics",
        "documents/paper.pdf/",
        "original/paper.pdf/",
    ):
        page = visitor.get(f"/collections/nature/{address}")
        assert page.status_code == 404 or "Krill" not in page.content.decode(), address
    run = ask("Krill")
    assert "paper.pdf" not in visitor.get(f"/runs/{run.pk}/").content.decode()
    grants = RoleGrant.objects.filter(user__username="ada")
    grants.filter(role="evaluator").delete()
    grants.update(role="viewer")
    assert visitor.get("/collections/nature/?view=trash").status_code == 403
    assert not texts(visitor.get("/collections/nature/"), "a[href$='?view=trash']")


def test_the_trash_forgets_by_time_and_by_erasure(nature: Collection, settings: Any) -> None:
    trash_documents(nature, ["whales.md", "paper.pdf"])
    TrashedDocument.objects.filter(doc_id="paper.pdf").update(deleted_at=timezone.now() - timedelta(days=31))
    assert apply_retention().report["trashed_documents"] == 1
    assert list(TrashedDocument.objects.values_list("doc_id", flat=True)) == ["whales.md"]
    erase_document(nature, "whales.md")
    assert not TrashedDocument.objects.exists() and not TrashedChunk.objects.exists()
    settings.RAGD_TRASH_DAYS = 0
    trash_documents(nature, ["trees.md"])
    assert not TrashedDocument.objects.exists() and not Document.objects.filter(doc_id="trees.md").exists()


def test_of_two_deletions_of_one_document_the_newest_comes_back(nature: Collection) -> None:
    for text in ("The first text.", "The second text."):
        ingest_text(nature, "twice.md", text)
        trash_documents(nature, ["twice.md"])
    restored = restore_documents(nature, list(TrashedDocument.objects.values_list("pk", flat=True)))
    assert (restored.done, restored.refused) == (["twice.md"], {})
    assert Document.objects.get(doc_id="twice.md").text == "The second text."
    assert TrashedDocument.objects.count() == 1
