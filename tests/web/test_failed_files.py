"""Files that failed: rows of the document list, repaired under the same document ID, and counts that add up."""

from __future__ import annotations

import io
import logging
import zipfile
from collections.abc import Callable
from typing import Any

import docx
import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from msoffcrypto.format.ooxml import OOXMLFile

from collections_app.models import AuditEvent, Document, IngestJob, Upload
from tests.parsing.builders import make_pdf
from tests.web.pages import has, texts, tones, tree

pytestmark = pytest.mark.usefixtures("bound")
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
