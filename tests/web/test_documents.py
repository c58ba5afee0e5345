"""Documents on pages: the table, uploads, pasted text, the text beside its chunks, changes to many at once."""

from __future__ import annotations

import html as html_module
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.web.pages import is_empty, text, toasts, tones

pytestmark = pytest.mark.usefixtures("bound")


def shown_text(html: str) -> str:
    """The document's text as it stands in the reader, without the marks in its margin."""
    reader = re.search(r'<div class="text">(.*?)</div>\s*</section>', html, re.DOTALL)
    assert reader
    without_edges = re.sub(r'<a class="edge.*?</a>', "", reader[1], flags=re.DOTALL)
    return html_module.unescape(re.sub(r"<[^>]+>", "", without_edges))


def listed(html: str) -> list[str]:
    return re.findall(r'name="doc_id" value="([^"]+)" data-select', html)


def test_the_table_is_filtered_and_sorted_by_its_address(visitor: Client, fill: Callable[..., Any]) -> None:
    fill()
    base = "/collections/nature/"
    assert listed(text(visitor.get(base + "?sort=doc_id"))) == ["rivers.md", "trees.md", "whales.md"]
    assert listed(text(visitor.get(base + "?sort=-doc_id"))) == ["whales.md", "trees.md", "rivers.md"]
    assert listed(text(visitor.get(base + "?q=tree"))) == ["trees.md"]
    assert listed(text(visitor.get(base + "?tag=nature&sort=doc_id"))) == ["rivers.md", "trees.md", "whales.md"]
    assert listed(text(visitor.get(base + "?tag=other"))) == []
    assert listed(text(visitor.get(base + "?state=disabled"))) == []
    assert is_empty(visitor.get(base + "?q=nothing"))


def test_many_files_are_uploaded_with_one_result_each(
    visitor: Client, fill: Callable[..., Any], django_capture_on_commit_callbacks: Any
) -> None:
    collection = fill(documents=0)
    files = [
        SimpleUploadedFile("one.md", b"# One\n\nThe first document."),
        SimpleUploadedFile("two.txt", b"The second document."),
        SimpleUploadedFile("empty.txt", b""),
    ]
    with django_capture_on_commit_callbacks(execute=True):
        response = visitor.post(
            "/collections/nature/upload/", {"uploads": files, "tags": "a, b, a", "metadata": '{"n": 1}'}
        )
    html = text(response)
    assert response.status_code == 200
    assert html.count(">Queued</a>") == 2
    assert "empty.txt is empty" in html
    assert sorted(collection.documents.values_list("doc_id", flat=True)) == ["one.md", "two.txt"]
    one = collection.documents.get(doc_id="one.md")
    assert (one.tags, one.metadata["n"]) == (["a", "b"], 1)


def test_an_upload_without_files_says_so(visitor: Client, fill: Callable[..., Any]) -> None:
    fill(documents=0)
    response = visitor.post("/collections/nature/upload/", {"tags": "kept, tags"})
    assert response.status_code == 422
    assert "choose at least one file" in text(response)
    assert 'value="kept, tags"' in text(response)


def test_a_text_is_pasted(visitor: Client, fill: Callable[..., Any]) -> None:
    collection = fill(documents=0)
    values = {"doc_id": "notes/moss", "title": "Moss", "content": "Moss grows in the shade.", "tags": "plants"}
    response = visitor.post("/collections/nature/upload/?view=text", values)
    assert response["Location"] == "/collections/nature/documents/notes/moss/"
    assert collection.documents.get(doc_id="notes/moss").text == "Moss grows in the shade."
    assert toasts(visitor.get(response["Location"])) == [("good", "notes/moss indexed: 1 chunk.")]
    assert tones(visitor.post("/collections/nature/upload/?view=text", values, follow=True)) == ["good"]
    assert collection.documents.get(doc_id="notes/moss").revision == 1


@pytest.mark.parametrize("content", ["", "   ", "\x00\x01"])
def test_a_text_without_content_is_refused_and_kept(visitor: Client, fill: Callable[..., Any], content: str) -> None:
    collection = fill(documents=0)
    values = {"doc_id": "x", "title": "Kept", "content": content}
    response = visitor.post("/collections/nature/upload/?view=text", values)
    assert response.status_code in (400, 422)
    assert 'value="Kept"' in text(response)
    assert "errorlist" in text(response) or "form-errors" in text(response)
    assert collection.documents.count() == 0


def test_the_reader_shows_exactly_the_text(visitor: Client, fill: Callable[..., Any]) -> None:
    collection = fill()
    for document in collection.documents.all():
        html = text(visitor.get(f"/collections/nature/documents/{document.doc_id}/"))
        assert shown_text(html) == document.text
        assert re.findall(r'id="chunk-(\d+)"', html) == [str(index) for index in range(document.chunk_count)]
        assert re.findall(r'id="text-(\d+)"', html) == [str(index) for index in range(document.chunk_count)]


def test_text_that_looks_like_html_is_text(visitor: Client, fill: Callable[..., Any]) -> None:
    from collections_app.documents.services import ingest_text

    hostile = '<script>alert(1)</script> & <img src=x onerror="alert(2)"> in {{ braces }}'
    ingest_text(fill(documents=0), "<b>.md", hostile, title="<i>Title</i>", tags=["<u>"], metadata={"<s>": "</pre>"})
    for address in ("", "documents/%3Cb%3E.md/", "chunks/0/%3Cb%3E.md/", "?show=statistics"):
        html = text(visitor.get(f"/collections/nature/{address}"))
        for tag in ("<script>alert", "<img", "<b>.md", "<i>Title", "<u>", '</pre>"'):
            assert tag not in html
    assert shown_text(text(visitor.get("/collections/nature/documents/%3Cb%3E.md/"))) == hostile


@pytest.mark.parametrize(
    "place", ["start=5&end=5", "start=9&end=2", "start=-1&end=4", "start=x&end=y", "start=99999&end=100000", "start=3"]
)
def test_a_place_that_makes_no_sense_marks_nothing(visitor: Client, fill: Callable[..., Any], place: str) -> None:
    fill(documents=1)
    response = visitor.get(f"/collections/nature/documents/whales.md/?{place}")
    assert response.status_code == 200
    assert 'id="cited"' not in text(response)


def test_a_long_document_is_read_in_parts(visitor: Client, fill: Callable[..., Any]) -> None:
    from collections_app.documents.reading_views import CHUNKS_PER_PAGE
    from collections_app.documents.services import ingest_text

    collection = fill(documents=0)
    long_text = "\n\n".join(f"## Part {n}\n\nThis is what stands in part number {n}." for n in range(95))
    ingest_text(collection, "long.md", long_text, policy={"target_tokens": 14, "overlap_tokens": 3})
    document = collection.documents.get(doc_id="long.md")
    assert document.chunk_count > 2 * CHUNKS_PER_PAGE
    parts = -(-document.chunk_count // CHUNKS_PER_PAGE)
    address = "/collections/nature/documents/long.md/"
    seen = [text(visitor.get(f"{address}?page={number}")) for number in range(1, parts + 1)]
    indices = [int(index) for html in seen for index in re.findall(r'id="chunk-(\d+)"', html)]
    assert indices == list(range(document.chunk_count))
    for html in seen:
        assert shown_text(html) in document.text
    for line in ("part number 0.", "part number 47.", "part number 94."):
        assert sum(line in shown_text(html) for html in seen) >= 1
    start = document.text.index("part number 90.")
    assert "part number 90." in shown_text(text(visitor.get(f"{address}?start={start}&end={start + 5}")))
    last = document.chunk_count - 1
    assert f'id="chunk-{last}"' in text(visitor.get(f"{address}?chunk={last}"))
    assert f'id="chunk-{last}"' in text(visitor.get(f"{address}?page=999"))


def test_ids_that_look_like_paths_have_addresses(visitor: Client, fill: Callable[..., Any]) -> None:
    from collections_app.documents.services import delete_documents, ingest_text

    collection = fill(documents=0)
    for doc_id in ("a/chunks/1", "a b/ü?#%.md", "x//y", "/lead", "trail/"):
        ingest_text(collection, doc_id, f"The text of {doc_id}.")
        page = text(visitor.get("/collections/nature/", {"q": doc_id}))
        (address,) = set(re.findall(r'href="(/collections/nature/documents/[^"?]+)"', page))
        html = text(visitor.get(html_module.unescape(address)))
        assert shown_text(html) == f"The text of {doc_id}."
        (chunk,) = re.findall(r'href="(/collections/nature/chunks/0/[^"?]+)"', html)
        assert visitor.get(html_module.unescape(chunk)).status_code == 200
        delete_documents(collection, [doc_id])


def test_documents_are_indexed_again(visitor: Client, fill: Callable[..., Any]) -> None:
    from collections_app.models import IngestJob

    fill()
    change = "/collections/nature/?view=change"
    answer = visitor.post(change, {"action": "reindex", "doc_id": ["whales.md"]}, follow=True)
    assert tones(answer) == ["good"]
    assert list(IngestJob.objects.values_list("kind", "doc_id")) == [("reindex", "whales.md")]


def test_deleting_documents_asks_first(visitor: Client, fill: Callable[..., Any]) -> None:
    collection = fill()
    change = "/collections/nature/?view=change"
    going = collection.documents.filter(doc_id__in=["whales.md", "trees.md"])
    chunks = sum(going.values_list("chunk_count", flat=True))
    asked = text(visitor.post(change, {"action": "delete", "doc_id": ["whales.md", "trees.md"]}))
    assert f"2 documents with {chunks} chunks will be deleted from nature" in asked
    assert collection.documents.count() == 3
    done = visitor.post(
        change, {"action": "delete", "confirmed": "on", "doc_id": ["whales.md", "trees.md"]}, follow=True
    )
    assert f"2 documents deleted with {chunks} chunks." in text(done)
    assert list(collection.documents.values_list("doc_id", flat=True)) == ["rivers.md"]


def test_a_change_of_nothing_changes_nothing(visitor: Client, fill: Callable[..., Any]) -> None:
    collection = fill()
    for values in ({"action": "delete"}, {"doc_id": "whales.md"}, {"action": "explode", "doc_id": "whales.md"}):
        assert tones(visitor.post("/collections/nature/?view=change", values, follow=True)) == ["watch"]
    assert collection.documents.count() == 3
    assert visitor.get("/collections/nature/?view=change&doc_id=unknown").status_code == 404
