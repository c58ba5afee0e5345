"""What a file says of itself is kept apart from what its caller says, everywhere, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from collections_app.access.api_keys import NewKey, create_key
from collections_app.collections.invariants import check_invariants
from collections_app.documents.edits import edit_document, roll_back
from collections_app.documents.revisions.services import find_revision
from collections_app.documents.services import get_document, ingest_text, reindex_documents
from collections_app.index.stores import open_store
from collections_app.models import Chunk, Collection, Document
from collections_app.uploads.options import IngestOptions
from collections_app.uploads.services import submit_uploads
from ragd import RetrievePlan, retrieve
from ragd.types import Filters

PAGE = (
    '<html lang="en"><head><title>Pumps</title><meta name="author" content="{author}"></head>'
    "<body><p>{text}</p></body></html>"
)
Send = Callable[..., Document]


@pytest.fixture
def send(notes: Collection, django_capture_on_commit_callbacks: Any) -> Send:
    def upload(author: str, text: str = "The pump hums.", metadata: dict[str, Any] | None = None) -> Document:
        content = PAGE.format(author=author, text=text).encode()
        with django_capture_on_commit_callbacks(execute=True):
            submit_uploads(notes, [SimpleUploadedFile("a.html", content)], IngestOptions(metadata=metadata))
        return get_document(notes, "a.html")

    return upload


def test_the_file_never_overwrites_what_the_caller_says(notes: Collection, send: Send) -> None:
    document = send("Ada", metadata={"author": "the caller", "year": 2024})
    assert document.metadata == {"author": "the caller", "year": 2024}
    assert document.file_metadata == {"title": "Pumps", "author": "Ada", "language": "en", "charset": "utf-8"}
    document = send("Bob", "Another text.")
    assert (document.metadata, document.file_metadata["author"]) == ({"author": "the caller", "year": 2024}, "Bob")
    document = send("Eve", "A third text.", metadata={})
    assert (document.metadata, document.file_metadata["author"]) == ({}, "Eve")


def test_filters_read_what_the_caller_says_alone(notes: Collection, send: Send) -> None:
    send("Ada", metadata={"team": "core"})
    assert all("author" not in chunk.metadata for chunk in Chunk.objects.all())

    def found(**metadata: Any) -> int:
        return len(
            retrieve("pump", RetrievePlan(mode="lexical", filters=Filters(metadata=metadata)), open_store(notes))
        )

    assert (found(team="core"), found(author="Ada"), found(charset="utf-8")) == (1, 0, 0)


def test_it_decides_no_chunk_and_follows_the_file(notes: Collection, send: Send) -> None:
    first = send("Ada")
    second = send("Bob")  # the same text by another author: nothing is made anew
    assert (second.revision, second.content_hash) == (first.revision, first.content_hash)
    assert second.file_metadata["author"] == "Bob"
    third = send("Eve", "Another text.")
    assert find_revision(third, 1).file_metadata["author"] == "Bob"
    edit_document(notes, "a.html", {"metadata": {"k": 1}})
    assert get_document(notes, "a.html").file_metadata["author"] == "Eve"
    roll_back(notes, "a.html", 1)
    back = get_document(notes, "a.html")
    assert (back.file_metadata["author"], back.metadata) == ("Bob", {})
    ingest_text(notes, "a.html", "A text by API.")
    assert get_document(notes, "a.html").file_metadata == {}


def test_reading_the_source_again_brings_it_back(
    notes: Collection, send: Send, django_capture_on_commit_callbacks: Any
) -> None:
    send("Ada", metadata={"k": 1})
    Document.objects.update(file_metadata={})
    with django_capture_on_commit_callbacks(execute=True):
        reindex_documents(notes, ["a.html"])
    document = get_document(notes, "a.html")
    assert (document.file_metadata["author"], document.metadata) == ("Ada", {"k": 1})
    assert check_invariants(notes).findings == 0


def test_api_and_pages_show_it_apart(notes: Collection, send: Send, client: Client, admin_client: Client) -> None:
    send("<b>Ada</b>", metadata={"k": 1})
    send("Bob", "Another text.")
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
