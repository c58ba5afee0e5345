"""Where words stand on pages: stored with a text, found for every revision that has it, gone with the last one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from collections_app.chunks.policies import policy_of
from collections_app.collections.import_stage import import_collection
from collections_app.collections.retention import drop_old_revisions
from collections_app.collections.services import get_collection, update_collection
from collections_app.documents.page_pictures import find_pages
from collections_app.documents.services import delete_documents, draft_of
from collections_app.documents.stored_documents import find_stored, hash_text
from collections_app.index.ingestion import Draft, ingest
from collections_app.models import Collection, Document, StoredPage
from ragd.readers import PageLayout, Word
from tests.exports import export_to_file


def store(collection: Collection, draft: Draft) -> Document:
    before = find_stored(collection, draft.doc_id)
    ingest(collection, draft, policy_of(collection, before, None), before=before)
    return Document.objects.get(collection=collection, doc_id=draft.doc_id)


def scan(text: str, *, title: str = "") -> Draft:
    """A document of two pages, each with its first word placed."""
    half = text.index("\n\n") + 2
    pages = [
        PageLayout(1, 600, 800, [Word(0, 4, 10, 20, 60, 40, 0.9)]),
        PageLayout(2, 600, 800, [Word(half, half + 4, 10, 20, 60, 40)]),
    ]
    return Draft("scan.pdf", text, title=title, layout=pages)


def places(document: Document, text: str) -> list[tuple[int, list[str]]]:
    pages = find_pages(document, 1, 9, text_hash=hash_text(text))
    return [(page.page, [text[word.start : word.end] for word in page.words]) for page in pages]


OLD, NEW = "Once upon a time.\n\nLong ago it was.", "Some other words.\n\nWere scanned now."


def test_pages_stay_with_their_text(notes: Collection) -> None:
    document = store(notes, scan(OLD))
    assert places(document, OLD) == [(1, ["Once"]), (2, ["Long"])]
    (page,) = find_pages(document, 2, 2)
    assert (page.width, page.height, page.words[0].confidence) == (600, 800, None)
    renamed = store(notes, replace(draft_of(document), title="Tale"))
    assert (renamed.revision, places(renamed, OLD)) == (2, [(1, ["Once"]), (2, ["Long"])])

    notes.retention = {"revisions": 2}
    changed = store(notes, scan(NEW))
    assert places(changed, NEW) == [(1, ["Some"]), (2, ["Were"])] and len(places(changed, OLD)) == 2
    store(notes, scan(NEW, title="A"))
    store(notes, scan(NEW, title="B"))
    assert places(changed, OLD) == [] and len(places(changed, NEW)) == 2

    store(notes, Draft("scan.pdf", "Only text now."))
    assert len(places(changed, NEW)) == 2
    update_collection(notes, changes={"retention": {"revisions": 0}})
    drop_old_revisions()
    assert StoredPage.objects.count() == 0


def test_pages_go_with_the_document_and_no_other(notes: Collection) -> None:
    store(notes, scan(OLD))
    other = store(notes, Draft("other.pdf", OLD, layout=scan(OLD).layout))
    delete_documents(notes, ["scan.pdf"])
    assert set(StoredPage.objects.values_list("doc_id", flat=True)) == {"other.pdf"} and len(places(other, OLD)) == 2


def test_pages_travel_with_the_collection(committed: None, notes: Collection, tmp_path: Path) -> None:
    store(notes, scan(OLD))
    exported = export_to_file(notes, tmp_path / "notes.ragd.zip")
    assert exported["counts"]["page_layouts"] == 2
    import_collection(tmp_path / "notes.ragd.zip", name="copy")
    copy = Document.objects.get(collection=get_collection("copy"), doc_id="scan.pdf")
    assert places(copy, OLD) == [(1, ["Once"]), (2, ["Long"])]
    before, after = (
        list(StoredPage.objects.filter(collection=each).order_by("page").values("page", "width", "height", "words"))
        for each in (notes, copy.collection)
    )
    assert before == after
