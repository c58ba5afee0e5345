"""Deleted documents: out of everything, undone from the toast, restored as they were, and gone after some days.
Files that failed: rows of the document list, repaired under the same document ID, and counts that add up.
The file of a document: opened, downloaded and replaced by those who may, and tables shown as tables."""

from __future__ import annotations

import io
import logging
import zipfile
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import docx
import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone
from msoffcrypto.format.ooxml import OOXMLFile

from collections_app.chunks.edits import edit_chunk
from collections_app.documents.services import change_state, ingest_text, restore_documents, trash_documents
from collections_app.index import ingestion
from collections_app.models import (
    AuditEvent,
    Chunk,
    ChunkOverlay,
    Collection,
    Document,
    DocumentRevision,
    IngestJob,
    TrashedChunk,
    TrashedDocument,
    Upload,
)
from collections_app.templatetags.reading import render_text
from evaluation_app.runs.lifecycle import apply_retention
from ragd_site.operations.erasure.documents import erase_document
from tests.parsing.builders import make_pdf
from tests.web.pages import attribute, has, is_empty, texts, toasts, tones, tree, wrong_fields

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


PASSWORD = "Ahab-and-the-whale"


def states(response: Any) -> list[str]:
    """Of the rows of the document list."""
    return [node.attributes.get("data-state") or "" for node in tree(response).css("#documents tbody .state")]


def word_file(words: str = "The whale swims in the sea.") -> bytes:
    document, file = docx.Document(), io.BytesIO()
    document.add_paragraph(words)
    document.save(file)
    return file.getvalue()


def locked_word_file() -> bytes:
    locked = io.BytesIO()
    OOXMLFile(io.BytesIO(word_file())).encrypt(PASSWORD, locked)
    return locked.getvalue()


def test_a_locked_file_is_a_row_until_its_password_opens_it(
    visitor: Client, send: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    files = [
        SimpleUploadedFile("plan.docx", locked_word_file()),
        SimpleUploadedFile("plan.pdf", make_pdf(["Locked page"], password=PASSWORD)),
    ]
    send("upload/", uploads=files, tags="secret", metadata='{"year": 2024}')
    listed = visitor.get("/collections/nature/")
    assert states(listed) == ["failed", "failed", "enabled"]
    assert len(texts(listed, "[data-failed-file='encrypted']")) == 2
    assert states(visitor.get("/collections/nature/?state=failed")) == ["failed", "failed"]
    errors = list(IngestJob.objects.filter(error_type="encrypted").values_list("error", flat=True))
    assert sorted(texts(listed, ".sub.bad")) == sorted(errors)
    visitor.cookies[settings.LANGUAGE_COOKIE_NAME] = "de"
    german = texts(visitor.get("/collections/nature/"), ".sub.bad")
    assert len(german) == 2 and len(set(german)) == 1 and not {*german} & {*errors}
    visitor.cookies[settings.LANGUAGE_COOKIE_NAME] = "en"
    assert states(visitor.get("/collections/nature/?q=plan.pdf&state=failed")) == ["failed"]

    for job in IngestJob.objects.filter(error_type="encrypted"):
        address = f"uploads/files/{job.pk}/"
        page = visitor.get(f"/collections/nature/{address}")
        assert has(page, "input[type=password][name=password]")
        assert not has(page, "[name=do][value=retry]"), "it would fail again"
        assert tones(send(address, password="wrong")) == ["bad"]
        assert tones(send(address, password=PASSWORD)) == ["good"]
        job.refresh_from_db()
        assert (job.state, job.attempts) == ("succeeded", 2)
        document = Document.objects.get(doc_id=job.doc_id)
        assert (document.tags, document.metadata) == (["secret"], {"year": 2024})
    assert states(visitor.get("/collections/nature/")) == ["enabled"] * 3
    # the password is nowhere: not with the job, not in the audit log, not in a log
    kept = [repr(row) for model in (IngestJob, AuditEvent, Upload) for row in model.objects.values()]
    assert PASSWORD not in "".join(kept) + caplog.text
    assert Upload.objects.count() == 2, "the locked files are gone"


def test_a_damaged_word_file_is_one_and_is_replaced_under_its_id(visitor: Client, send: Callable[..., Any]) -> None:
    whole = word_file()
    for name in ("cut.docx", "never.docx"):
        content = whole[: len(whole) // 2] if name == "cut.docx" else b"PK\x03\x04" + bytes(200)
        send("upload/", uploads=[SimpleUploadedFile(name, content)])
        job = IngestJob.objects.get(doc_id=name)
        assert (job.kind, job.error_type) == ("file", "broken")
        assert "Word" in job.error
    job = IngestJob.objects.get(doc_id="cut.docx")
    address = f"uploads/files/{job.pk}/"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("a.txt", "several files are no document")
    refused = send(address, file=SimpleUploadedFile("a.zip", archive.getvalue()))
    assert tones(refused) == ["bad"] and IngestJob.objects.get(pk=job.pk).state == "failed"
    send(address, file=SimpleUploadedFile("another name.docx", whole))
    job.refresh_from_db()
    assert (job.state, job.doc_id, job.source) == ("succeeded", "cut.docx", "another name.docx")
    assert Document.objects.get(doc_id="cut.docx").source == "another name.docx"

    never = IngestJob.objects.get(doc_id="never.docx")
    send(f"uploads/files/{never.pk}/", do="dismiss")
    assert IngestJob.objects.get(pk=never.pk).state == "cancelled"
    assert not Upload.objects.filter(doc_id="never.docx").exists()
    assert states(visitor.get("/collections/nature/")) == ["enabled", "enabled"]


def test_retry_all_takes_what_may_succeed_and_the_counts_add_up(visitor: Client, send: Callable[..., Any]) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        for name in ("one.txt", "two.txt"):
            packed.writestr(name, f"The text of {name}.")
        packed.writestr("broken.pdf", b"%PDF-1.7\nnothing")
    send("upload/", uploads=[SimpleUploadedFile("pack.zip", archive.getvalue())])
    IngestJob.objects.filter(doc_id="two.txt").update(state="failed", error_type="embedder_failed_timeout")
    batch = IngestJob.objects.get(doc_id="one.txt").batch
    assert batch is not None
    page = visitor.get(f"/collections/nature/uploads/{batch.pk}/")
    total, *parts = (int(value) for value in texts(page, ".numbers .value"))
    assert (total, parts) == (3, [1, 2, 0, 0]) and total == sum(parts)
    assert len(texts(page, "tbody tr")) == total
    send(f"uploads/{batch.pk}/", do="retry")
    assert dict(batch.jobs.values_list("doc_id", "attempts")) == {
        "pack.zip": 1, "one.txt": 1, "two.txt": 2, "broken.pdf": 1,
    }  # fmt: skip


def test_who_only_reads_sees_the_reason_and_no_form(
    visitor: Client, send: Callable[..., Any], django_user_model: Any
) -> None:
    from collections_app.models import RoleGrant

    send("upload/", uploads=[SimpleUploadedFile("plan.docx", locked_word_file())])
    job = IngestJob.objects.get(doc_id="plan.docx")
    grants = RoleGrant.objects.filter(user__username="ada")
    grants.filter(role="evaluator").delete()
    grants.update(role="viewer")
    assert states(visitor.get("/collections/nature/"))[0] == "failed"
    address = f"/collections/nature/uploads/files/{job.pk}/"
    assert not has(visitor.get(address), f"form[action^='{address}']")
    for given in ({"password": PASSWORD}, {"do": "dismiss"}):
        assert visitor.post(address, given).status_code == 403
    assert IngestJob.objects.get(pk=job.pk).state == "failed"


PDF = make_pdf(["The whale sings under the ice"])
TABLE = "# Ships\n\n| ship | crew |\n|---|--:|\n| Pequod | 30 |\n| Rachel | 28 |\n"
FILES = {
    "paper.pdf": (PDF, "application/pdf", "inline"),
    "page.html": (b"<html><body><script>alert(1)</script><p>A whale.</p></body></html>", None, "attachment"),
    "notes.md": (TABLE.encode(), "text/plain; charset=utf-8", "inline"),
}


def test_the_original_is_opened_where_that_runs_nothing_else_downloaded(
    visitor: Client, send: Callable[..., Any]
) -> None:
    send("upload/", uploads=[SimpleUploadedFile(name, content) for name, (content, _, _) in FILES.items()])
    for name, (content, shown_as, disposition) in FILES.items():
        address = f"/collections/nature/original/{name}/"
        assert has(visitor.get(f"/collections/nature/documents/{name}/"), f"a[data-original][href^='{address}']")
        response = visitor.get(address)
        assert b"".join(response) == content
        assert response["Content-Type"] == (shown_as or "application/octet-stream")
        assert response["Content-Disposition"].startswith(disposition) and name in response["Content-Disposition"]
        assert response["X-Content-Type-Options"] == "nosniff" and "no-store" in response["Cache-Control"]
        policy = response["Content-Security-Policy"]
        assert "default-src 'none'" in policy and ("sandbox" in policy) == (name != "paper.pdf")
        download = visitor.get(f"{address}?download=1")
        assert download["Content-Disposition"].startswith("attachment")
        assert b"".join(download) == content
    assert visitor.get("/collections/nature/original/whales.md/").status_code == 404, "it came as a text"
    assert not has(visitor.get("/collections/nature/documents/whales.md/"), "[data-original]")
    listed = visitor.get("/collections/nature/")
    assert len(texts(listed, "#documents a[href*='/original/']")) == len(FILES)
    assert AuditEvent.objects.filter(action="document.original", subject_kind="document").count() == 6


def test_a_new_version_keeps_the_id_whatever_the_file_is_called(visitor: Client, send: Callable[..., Any]) -> None:
    send("upload/", uploads=[SimpleUploadedFile("notes.md", TABLE.encode())], tags="ships")
    address = "documents/notes.md/?view=new-version"
    assert has(visitor.get("/collections/nature/documents/notes.md/"), f"a[href='/collections/nature/{address}']")
    assert wrong_fields(visitor.post(f"/collections/nature/{address}")) == ["file"]
    archive = SimpleUploadedFile("a.zip", b"PK\x05\x06" + bytes(18))
    assert wrong_fields(visitor.post(f"/collections/nature/{address}", {"file": archive})) == ["file"]
    assert tones(send(address, file=SimpleUploadedFile("x.md", TABLE.encode()))) == ["watch"]
    assert tones(send(address, file=SimpleUploadedFile("Ships of 2025.pdf", PDF))) == ["good"]
    document = Document.objects.get(doc_id="notes.md")
    assert (document.revision, document.media_type, document.tags) == (2, "application/pdf", ["ships"])
    assert visitor.post("/collections/nature/documents/none.md/?view=new-version", {"file": archive}).status_code == 404


def test_tables_are_tables_with_the_cited_place_marked(visitor: Client, send: Callable[..., Any]) -> None:
    send("upload/", uploads=[SimpleUploadedFile("notes.md", TABLE.encode())])
    document = Document.objects.get(doc_id="notes.md")
    start = document.text.index("Rachel")
    page = visitor.get(f"/collections/nature/documents/notes.md/?view=formatted&start={start}&end={start + 12}")
    assert texts(page, ".prose td") == ["Pequod", "30", "Rachel", "28"]
    assert texts(page, ".prose mark") == ["Rachel", "28"]
    assert attribute(page, ".prose td:nth-child(2)", "class") == "num" and not has(page, "[style]")
    assert has(visitor.get("/collections/nature/documents/notes.md/"), ".chunk table")
    assert has(visitor.get("/collections/nature/chunks/0/notes.md/"), ".prose table")


def test_rows_without_their_head_are_a_table_and_html_stays_text() -> None:
    html = render_text("| 1 | <b>2</b> |\n| 3 | [x](javascript:y) |\n")
    assert html.count("<td>") == 4 and "<thead>" not in html
    assert "<b>" not in html and "href" not in html


def test_the_text_of_a_text_is_edited_as_a_new_revision(visitor: Client, send: Callable[..., Any]) -> None:
    send("upload/", uploads=[SimpleUploadedFile("notes.md", TABLE.encode()), SimpleUploadedFile("paper.pdf", PDF)])
    address = "/collections/nature/documents/notes.md/?view=edit-text"
    assert has(visitor.get("/collections/nature/documents/notes.md/?view=edit"), f"a[href='{address}']")
    assert not has(visitor.get("/collections/nature/documents/paper.pdf/?view=edit"), "a[href*='edit-text']")
    assert texts(visitor.get(address), "textarea") == [" ".join(TABLE.split())]
    edited = TABLE.replace("Rachel", "Bachelor").replace("\n", "\r\n")
    assert wrong_fields(visitor.post(address, {"content": "", "expected_revision": "1"})) == ["content"]
    assert visitor.post(address, {"content": edited, "expected_revision": "7"}).status_code == 409
    assert tones(visitor.post(address, {"content": edited, "expected_revision": "1"}, follow=True)) == ["good"]
    document = Document.objects.get(doc_id="notes.md")
    assert (document.revision, document.media_type, document.source_hash) == (2, "text/markdown", "")
    assert "Bachelor" in document.text and "Rachel" not in document.text and "\r" not in document.text
    assert visitor.get("/collections/nature/original/notes.md/").status_code == 404
    paper = "/collections/nature/documents/paper.pdf/?view=edit-text"
    refused = visitor.post(paper, {"content": "x", "expected_revision": "1"})
    assert refused.status_code == 409 and Document.objects.get(doc_id="paper.pdf").revision == 1
