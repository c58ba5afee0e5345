"""The file of a document: opened, downloaded and replaced by those who may, and tables shown as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from collections_app.models import AuditEvent, Document
from collections_app.templatetags.reading import render_text
from tests.parsing.builders import make_pdf
from tests.web.pages import attribute, has, texts, tones, wrong_fields

pytestmark = pytest.mark.usefixtures("bound")
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
