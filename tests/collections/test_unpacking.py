"""Archives become file jobs of their members, mails bring documents of their attachments.
What a file says of itself is kept apart from what its caller says, everywhere, and decides nothing."""

from __future__ import annotations

import io
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable
from email.message import EmailMessage
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client

from collections_app.access.api_keys import NewKey, create_key
from collections_app.collections.invariants import check_invariants
from collections_app.collections.services import create_collection
from collections_app.documents.edits import edit_document, roll_back
from collections_app.documents.revisions.services import find_revision
from collections_app.documents.services import delete_documents, get_document, ingest_text, reindex_documents
from collections_app.documents.stored_documents import attachments_of, with_attachments
from collections_app.index.stores import open_store
from collections_app.jobs.attempts import JobProgress
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.recovery import cancel_jobs
from collections_app.models import Chunk, Collection, Document, IngestBatch, IngestJob, Upload
from collections_app.uploads import archives
from collections_app.uploads.archives import preview_uploads
from collections_app.uploads.options import IngestOptions, Origin
from collections_app.uploads.plan import Entry, plan_uploads
from collections_app.uploads.services import UploadOutcome, submit_uploads
from ragd import RetrievePlan, retrieve
from ragd.readers import ParseLimits
from ragd.types import Filters
from tests.fakes.openai_server import OpenAIServer
from tests.parsing.builders import make_docx, make_zip, with_member
from tests.stated import split


def pack(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def mail(subject: str, attachments: dict[str, bytes]) -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "ada@example.org", "team@example.org", subject
    message.set_content("Please read what is attached.")
    for name, content in attachments.items():
        message.add_attachment(content, maintype="application", subtype="octet-stream", filename=name)
    return message.as_bytes()


def send(collection: Collection, name: str, content: bytes, **values: Any) -> UploadOutcome:
    options, others = split(values)
    (outcome,) = submit_uploads(collection, [SimpleUploadedFile(name, content)], options, **others)
    return outcome


def run_all() -> list[str | None]:
    states = []
    while jobs := list(IngestJob.objects.filter(state="queued").order_by("created_at", "doc_id")):
        states += [run_job(job.pk) for job in jobs]
    return states


def texts() -> dict[str, str]:
    return dict(Document.objects.values_list("doc_id", "text"))


def test_members_and_attachments_are_in_the_language_that_was_stated(notes: Collection) -> None:
    inner = pack({"deep.txt": b"The deepest."})
    send(notes, "bundle.zip", pack({"one.txt": b"The first.", "inner.zip": inner}), language="fr")
    send(notes, "mail.eml", mail("Keys", {"note.txt": b"The attached."}), language="de")
    send(notes, "plain.zip", pack({"two.txt": b"The second text of all."}))
    assert set(run_all()) == {"succeeded"}
    stated = dict(Document.objects.values_list("doc_id", "language_stated"))
    of_mail = {"mail.eml": "de", "mail.eml/note.txt": "de"}
    assert stated == of_mail | {"one.txt": "fr", "inner.zip/deep.txt": "fr", "two.txt": ""}


MEMBERS = {
    "guide/one.md": b"# One\n\nThe first.",
    "guide/two.txt": b"The second.",
    ".git/config": b"[core]",
    "__MACOSX/guide/._one.md": b"junk",
    "guide/.DS_Store": b"junk",
    "guide/empty.txt": b"",
}


def test_an_archive_becomes_a_job_per_member_in_one_batch(notes: Collection) -> None:
    outcome = send(notes, "bundle.zip", pack(MEMBERS), tags=["t"], metadata={"team": "x"})
    assert outcome.job is not None
    assert (outcome.status, outcome.plan, outcome.job.kind) == ("queued", "archive", "archive")
    assert run_job(outcome.job.pk) == "succeeded"
    job = IngestJob.objects.get(pk=outcome.job.pk)
    members = IngestJob.objects.filter(kind="file").order_by("doc_id")
    same = [(each.tags, each.metadata, each.batch_id) for each in members]
    assert same == [(["t"], {"team": "x"}, job.batch_id)] * 2
    assert [each.doc_id for each in members] == ["guide/one.md", "guide/two.txt"]
    assert members[0].origin == Origin("member", of="bundle.zip", path="guide/one.md")
    assert [(row.stage, row.done, row.total, row.unit) for row in job.stage_rows] == [("parse", 3, 3, "files")]
    assert not Upload.objects.filter(doc_id="bundle.zip").exists()
    assert [word for word in job.warnings if "empty.txt is empty" in word]
    assert [word for word in job.warnings if word == "1 hidden file is left out, such as .git/config"]
    batch = IngestBatch.objects.get()
    assert (batch.submitted, batch.rejected) == (4, 1)
    run_all()
    assert sorted(texts()) == ["guide/one.md", "guide/two.txt"]


def test_a_tar_in_a_folder_is_unpacked_there(notes: Collection) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo("a.txt")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"text"))
    send(notes, "x", buffer.getvalue(), doc_ids=["docs/old/bundle.tgz"])
    run_all()
    assert texts() == {"docs/old/a.txt": "text"}


def test_a_run_that_is_killed_goes_on_and_makes_no_member_twice(
    notes: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "GROUP_MEMBERS", 2)
    outcome = send(notes, "b.zip", pack({f"m{number}.txt": f"text {number}".encode() for number in range(5)}))
    assert outcome.job is not None
    hold, held = JobProgress.hold, []

    def die_at_the_second_group(progress: JobProgress, **values: Any) -> None:
        held.append(progress)
        if len(held) == 2:
            raise SystemExit
        hold(progress, **values)

    monkeypatch.setattr(JobProgress, "hold", die_at_the_second_group)
    with pytest.raises(SystemExit):
        run_job(outcome.job.pk)
    assert IngestJob.objects.filter(kind="file").count() == 2
    IngestJob.objects.filter(pk=outcome.job.pk).update(state="queued", lease_until=None)
    assert run_job(outcome.job.pk) == "succeeded"
    assert sorted(IngestJob.objects.filter(kind="file").values_list("doc_id", flat=True)) == [
        f"m{number}.txt" for number in range(5)
    ]
    batch = IngestBatch.objects.get()
    assert (batch.submitted, batch.unchanged) == (6, 0)


def test_members_that_are_made_while_their_batch_is_cancelled_are_cancelled_too(
    committed: None, embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = create_collection(name="notes")
    outcome = send(notes, "b.zip", pack({f"m{number}.txt": f"text {number}".encode() for number in range(5)}))
    assert outcome.job is not None and outcome.batch is not None
    batch, hold = outcome.batch, JobProgress.hold

    def cancel() -> None:
        cancel_jobs(batch)
        connection.close()

    canceller = threading.Thread(target=cancel)

    def be_cancelled_after(progress: JobProgress, **values: Any) -> None:
        hold(progress, **values)
        canceller.start()
        ends_at = time.monotonic() + 20
        while not waiters() and time.monotonic() < ends_at:
            time.sleep(0.01)

    monkeypatch.setattr(JobProgress, "hold", be_cancelled_after)
    run_job(outcome.job.pk)
    canceller.join()
    assert list(IngestJob.objects.filter(kind="file").values_list("state", flat=True)) == ["cancelled"] * 5


WAITERS = """
SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (
    SELECT pid FROM pg_locks JOIN pg_database ON pg_database.oid = database WHERE datname = current_database()
)
"""


def waiters() -> int:
    """How many sessions of this database wait for another one. A transaction reads pg_stat_activity only once."""
    with connection.cursor() as cursor:
        cursor.execute(WAITERS)
        (count,) = cursor.fetchone()
    return int(count)


def test_the_choice_on_a_clash_holds_for_members(notes: Collection) -> None:
    send(notes, "a.txt", b"first")
    run_all()
    members = {"a.txt": b"second", "b.txt": b"new"}
    send(notes, "skip.zip", pack(members), on_clash="skip")
    run_all()
    assert texts() == {"a.txt": "first", "b.txt": "new"}
    send(notes, "both.zip", pack(members), on_clash="keep_both")
    run_all()
    assert texts() == {"a.txt": "first", "a (2).txt": "second", "b.txt": "new"}
    send(notes, "replace.zip", pack(members))
    run_all()
    assert texts()["a.txt"] == "second"
    assert list(IngestBatch.objects.order_by("created_at").values_list("skipped", "unchanged")) == [
        (0, 0), (1, 0), (0, 1), (0, 1),
    ]  # fmt: skip


def test_an_archive_beyond_the_limits_leaves_nothing_behind(notes: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "parse_limits", lambda **_: ParseLimits(max_unpacked_mb=1))
    bomb = pack({"a.txt": b"fine", "zeros.txt": bytes(1_500_000)})
    outcome = send(notes, "bomb.zip", bomb)
    assert run_all() == ["failed"]
    job = IngestJob.objects.get()
    assert (job.pk, job.error_type) == (outcome.job and outcome.job.pk, "bomb")
    (line,) = preview_uploads(notes, [SimpleUploadedFile("bomb.zip", bomb)]).lines
    assert (line.status, line.error_type) == ("rejected", "bomb")


def test_the_plan_of_an_archive_lists_its_members(notes: Collection) -> None:
    send(notes, "guide/two.txt", b"x", doc_ids=["guide/two.txt"])
    run_all()
    plan = preview_uploads(notes, [SimpleUploadedFile("bundle.zip", pack(MEMBERS | {"logo.gif": b"GIF89a00"}))])
    assert [(line.doc_id, line.status, line.of) for line in plan.lines] == [
        ("bundle.zip", "archive", ""),
        ("guide/one.md", "new", "bundle.zip"),
        ("guide/two.txt", "changed", "bundle.zip"),
        ("guide/empty.txt", "rejected", "bundle.zip"),
        ("logo.gif", "rejected", "bundle.zip"),
    ]
    assert plan.lines[0].reason == "4 files inside; 1 hidden file is left out, such as .git/config"
    assert IngestJob.objects.count() == 1


def test_a_word_file_is_no_archive(notes: Collection) -> None:
    content = pack({"[Content_Types].xml": b"<Types/>", "word/document.xml": b"<w:document/>"})
    outcome = send(notes, "letter.zip", content)
    assert outcome.job is not None
    assert (outcome.plan, outcome.job.kind) == ("new", "file")


def test_members_of_an_archive_that_is_there_are_not_missing(notes: Collection) -> None:
    content = pack({"one.txt": b"1"})
    send(notes, "f/b.zip", content, doc_ids=["f/b.zip"])
    run_all()
    assert list(texts()) == ["f/one.txt"]
    there = Entry("f/b.zip", "", len(content))
    assert plan_uploads(notes, [there], delete_missing=True, prefix="f").deletions == []
    other = Entry("f/c.txt", "", 1)
    assert plan_uploads(notes, [other], delete_missing=True, prefix="f").deletions == ["f/one.txt"]


def test_attachments_become_documents_that_name_their_mail(notes: Collection) -> None:
    content = mail("Plans", {"plan.txt": b"The plan is good.", "logo.png": b"\x89PNG\r\n\x1a\n0000"})
    outcome = send(notes, "mail.eml", content, tags=["post"], metadata={"team": "x"})
    assert run_all() == ["succeeded", "succeeded"]
    attached = Document.objects.get(doc_id="mail.eml/plan.txt")
    assert (attached.text, attached.tags) == ("The plan is good.", ["post"])
    assert (attached.metadata["parent"], attached.metadata["team"]) == ("mail.eml", "x")
    job = IngestJob.objects.get(doc_id="mail.eml/plan.txt")
    assert (job.origin, job.batch) == (Origin("attachment", of="mail.eml", level=1), outcome.batch)
    assert attachments_of(notes, ["mail.eml"]) == ["mail.eml/plan.txt"]


@pytest.mark.fault("N-19")
def test_files_inside_office_documents_become_documents_under_their_list(notes: Collection) -> None:
    inner = with_member(make_docx(), "word/embeddings/deep.txt", b"Words further in.")
    outer = with_member(make_docx(), "word/embeddings/letter.docx", inner)
    empty = make_zip({
        "[Content_Types].xml": "<Types/>", "word/document.xml": "<w:document xmlns:w='w'/>",
        "word/embeddings/letter.docx": make_docx(),
    })  # fmt: skip
    send(notes, "outer.docx", outer)
    send(notes, "empty.docx", empty)
    assert run_all() == ["succeeded"] * 5
    assert attachments_of(notes, ["outer.docx"]) == ["outer.docx/letter.docx"]
    assert texts()["outer.docx/letter.docx/deep.txt"] == "Words further in."
    assert texts()["empty.docx"] == "Files inside:\n- letter.docx"
    assert "Clean the blade" in texts()["empty.docx/letter.docx"]
    send(notes, "outer.docx", make_docx())
    run_all()
    assert attachments_of(notes, ["outer.docx"]) == []


def test_a_mail_that_is_replaced_takes_the_attachments_along_that_it_has_no_more(notes: Collection) -> None:
    send(
        notes, "mail.eml", mail("Plans", {"a.txt": b"text a", "b.txt": b"text b", "c.zip": pack({"in.txt": b"inside"})})
    )
    run_all()
    assert sorted(texts()) == ["mail.eml", "mail.eml/a.txt", "mail.eml/b.txt", "mail.eml/c.zip/in.txt"]
    send(notes, "mail.eml/own.txt", b"not attached", doc_ids=["mail.eml/own.txt"])
    run_all()
    send(notes, "mail.eml", mail("Plans", {"b.txt": b"text b, changed"}))
    run_all()
    assert sorted(texts()) == ["mail.eml", "mail.eml/b.txt", "mail.eml/own.txt"]
    assert texts()["mail.eml/b.txt"] == "text b, changed"


def test_a_mail_that_is_deleted_takes_its_attachments_along(notes: Collection) -> None:
    inner = mail("Inner", {"deep.txt": b"deep down"})
    send(notes, "mail.eml", mail("Plans", {"a.txt": b"text a", "note.eml": inner}))
    run_all()
    assert "mail.eml/note.eml/deep.txt" in texts()
    send(notes, "other.txt", b"stays")
    run_all()
    assert with_attachments(notes, ["mail.eml"]) == [
        "mail.eml", "mail.eml/a.txt", "mail.eml/note.eml", "mail.eml/note.eml/deep.txt",
    ]  # fmt: skip
    assert delete_documents(notes, ["mail.eml"])["documents"] == 4
    assert list(texts()) == ["other.txt"]
    assert not Upload.objects.exclude(doc_id="other.txt").exists()


def test_attachments_of_a_mail_that_is_there_are_not_missing(notes: Collection) -> None:
    content = mail("Plans", {"a.txt": b"text a"})
    send(notes, "f/mail.eml", content, doc_ids=["f/mail.eml"])
    run_all()
    assert plan_uploads(notes, [Entry("f/mail.eml", "", len(content))], delete_missing=True, prefix="f").deletions == []


def test_what_is_not_said_stays_with_a_member_that_is_replaced(notes: Collection) -> None:
    send(notes, "a.txt", b"first", tags=["kept"], metadata={"team": "x"})
    run_all()
    send(notes, "b.zip", pack({"a.txt": b"second", "b.txt": b"new"}), tags=None, metadata=None)
    run_all()
    document = Document.objects.get(doc_id="a.txt")
    assert (document.text, document.tags, document.metadata["team"]) == ("second", ["kept"], "x")
    assert Document.objects.get(doc_id="b.txt").tags == []


PAGE = (
    '<html lang="en"><head><title>Pumps</title><meta name="author" content="{author}"></head>'
    "<body><p>{text}</p></body></html>"
)
Send = Callable[..., Document]


@pytest.fixture
def send_of_file_metadata(notes: Collection, django_capture_on_commit_callbacks: Any) -> Send:
    def upload(author: str, text: str = "The pump hums.", metadata: dict[str, Any] | None = None) -> Document:
        content = PAGE.format(author=author, text=text).encode()
        with django_capture_on_commit_callbacks(execute=True):
            submit_uploads(notes, [SimpleUploadedFile("a.html", content)], IngestOptions(metadata=metadata))
        return get_document(notes, "a.html")

    return upload


def test_the_file_never_overwrites_what_the_caller_says(notes: Collection, send_of_file_metadata: Send) -> None:
    document = send_of_file_metadata("Ada", metadata={"author": "the caller", "year": 2024})
    assert document.metadata == {"author": "the caller", "year": 2024}
    assert document.file_metadata == {"title": "Pumps", "author": "Ada", "language": "en", "charset": "utf-8"}
    document = send_of_file_metadata("Bob", "Another text.")
    assert (document.metadata, document.file_metadata["author"]) == ({"author": "the caller", "year": 2024}, "Bob")
    document = send_of_file_metadata("Eve", "A third text.", metadata={})
    assert (document.metadata, document.file_metadata["author"]) == ({}, "Eve")


def test_filters_read_what_the_caller_says_alone(notes: Collection, send_of_file_metadata: Send) -> None:
    send_of_file_metadata("Ada", metadata={"team": "core"})
    assert all("author" not in chunk.metadata for chunk in Chunk.objects.all())

    def found(**metadata: Any) -> int:
        return len(
            retrieve("pump", RetrievePlan(mode="lexical", filters=Filters(metadata=metadata)), open_store(notes))
        )

    assert (found(team="core"), found(author="Ada"), found(charset="utf-8")) == (1, 0, 0)


def test_it_decides_no_chunk_and_follows_the_file(notes: Collection, send_of_file_metadata: Send) -> None:
    first = send_of_file_metadata("Ada")
    second = send_of_file_metadata("Bob")  # the same text by another author: nothing is made anew
    assert (second.revision, second.content_hash) == (first.revision, first.content_hash)
    assert second.file_metadata["author"] == "Bob"
    third = send_of_file_metadata("Eve", "Another text.")
    assert find_revision(third, 1).file_metadata["author"] == "Bob"
    edit_document(notes, "a.html", {"metadata": {"k": 1}})
    assert get_document(notes, "a.html").file_metadata["author"] == "Eve"
    roll_back(notes, "a.html", 1)
    back = get_document(notes, "a.html")
    assert (back.file_metadata["author"], back.metadata) == ("Bob", {})
    ingest_text(notes, "a.html", "A text by API.")
    assert get_document(notes, "a.html").file_metadata == {}


def test_reading_the_source_again_brings_it_back(
    notes: Collection, send_of_file_metadata: Send, django_capture_on_commit_callbacks: Any
) -> None:
    send_of_file_metadata("Ada", metadata={"k": 1})
    Document.objects.update(file_metadata={})
    with django_capture_on_commit_callbacks(execute=True):
        reindex_documents(notes, ["a.html"])
    document = get_document(notes, "a.html")
    assert (document.file_metadata["author"], document.metadata) == ("Ada", {"k": 1})
    assert check_invariants(notes).findings == 0


def test_api_and_pages_show_it_apart(
    notes: Collection, send_of_file_metadata: Send, client: Client, admin_client: Client
) -> None:
    send_of_file_metadata("<b>Ada</b>", metadata={"k": 1})
    send_of_file_metadata("Bob", "Another text.")
    _, secret = create_key(NewKey("tests"))
    headers = {"Authorization": f"Bearer {secret}"}
    detail = client.get("/v1/collections/notes/documents/a.html", headers=headers).json()
    listed = client.get("/v1/collections/notes/documents", headers=headers).json()["items"][0]
    revision = client.get("/v1/collections/notes/revisions/1?doc_id=a.html", headers=headers).json()
    assert [row["metadata"] for row in (detail, listed, revision)] == [{"k": 1}] * 3
    assert [row["file_metadata"]["author"] for row in (detail, listed)] == ["Bob"] * 2
    assert revision["file_metadata"]["author"] == "<b>Ada</b>"
    page = admin_client.get("/collections/notes/documents/a.html/").content.decode()
    assert "data-file-metadata" in page and "<dd>Bob</dd>" in page
    old = admin_client.get("/collections/notes/documents/a.html/?view=revision&number=1").content.decode()
    assert "&lt;b&gt;Ada&lt;/b&gt;" in old and "<b>Ada" not in old
    row = admin_client.get(f"/admin/collections_app/document/{Document.objects.get().pk}/change/").content.decode()
    assert "File metadata" in row and "Bob" in row
