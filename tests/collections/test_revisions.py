"""Earlier revisions: kept when something replaces them, read back, dropped when they are too many."""

from __future__ import annotations

from typing import Any

from collections_app.collections.deletion import delete_collection
from collections_app.documents.revisions.services import (
    any_revision,
    drop_history,
    find_revision,
    keep_labels,
    revision_chunks,
    revision_text,
)
from collections_app.documents.services import delete_documents, get_document, ingest_text, reindex_documents
from collections_app.models import Chunk, Collection, Document, DocumentRevision
from ragd.types import Segment
from tests.refusals import refuses

SMALL = {"target_tokens": 8, "overlap_tokens": 0}
WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"


def write(collection: Collection, text: Any, doc_id: str = "a", **values: Any) -> int:
    return ingest_text(collection, doc_id, text, policy=SMALL, **values).revision


def numbers(collection: Collection, doc_id: str = "a") -> list[int]:
    return list(DocumentRevision.objects.of_document(collection.pk, doc_id).values_list("revision", flat=True))


def contents(document: Document, number: int) -> list[str]:
    return [chunk.content for chunk in revision_chunks(document, number)]


def test_what_is_replaced_is_kept_with_its_text_and_chunks(notes: Collection) -> None:
    write(notes, WORDS, title="First", tags=["x"], metadata={"n": 1})
    before = list(Chunk.objects.of_document(get_document(notes, "a")).values_list("content", "context"))
    assert numbers(notes) == []
    assert write(notes, "Something else entirely.", title="Second") == 2
    document = get_document(notes, "a")
    kept = find_revision(document, 1)
    assert (kept.title, kept.tags, kept.metadata, kept.reason) == ("First", ["x"], {"n": 1}, "text")
    assert revision_text(document, 1) == WORDS
    assert revision_text(document, 1, 4, 13) == "two three"
    assert [(chunk.content, chunk.context) for chunk in revision_chunks(document, 1)] == before
    assert contents(document, 2) == ["Something else entirely."]
    assert any_revision(document, 2).title == "Second"


def test_the_same_content_makes_no_revision(notes: Collection, django_capture_on_commit_callbacks: Any) -> None:
    ingest_text(notes, "a", WORDS)
    ingest_text(notes, "a", WORDS)
    with django_capture_on_commit_callbacks(execute=True):
        reindex_documents(notes, ["a"])
    assert numbers(notes) == []
    assert get_document(notes, "a").revision == 1


def test_a_text_that_stays_is_stored_once(notes: Collection) -> None:
    write(notes, WORDS, title="First")
    write(notes, WORDS, title="Second")
    ingest_text(notes, "a", WORDS, title="Second", policy={"target_tokens": 4, "overlap_tokens": 0})
    write(notes, "Short.", title="Third")
    stored = dict(DocumentRevision.objects.filter(collection=notes).values_list("revision", "text"))
    assert stored == {1: "", 2: "", 3: WORDS}
    document = get_document(notes, "a")
    assert [revision_text(document, number) for number in (1, 2, 3, 4)] == [WORDS, WORDS, WORDS, "Short."]
    assert [len(contents(document, number)) for number in (1, 2, 3, 4)] == [2, 2, 4, 1]
    assert contents(document, 1)[0] == "one two three four five six seven eight"
    assert revision_chunks(document, 1)[0].context == "First"


def test_the_oldest_are_dropped_and_the_rest_stays_whole(notes: Collection) -> None:
    notes.retention = {"revisions": 2}
    notes.save()
    for number in range(5):
        write(notes, WORDS, title=f"Title {number}")
    assert numbers(notes) == [4, 3]
    document = get_document(notes, "a")
    assert revision_text(document, 3) == WORDS
    with refuses("unknown_revision", "revision", "revision 2"):
        find_revision(document, 2)
    with refuses("unknown_revision", "revision", "revision 5"):
        find_revision(document, 5)


def test_none_are_kept_where_none_are_wanted(notes: Collection, settings: Any) -> None:
    settings.RAGD_REVISIONS_KEPT = 0
    write(notes, WORDS)
    assert write(notes, "Short.") == 2
    assert numbers(notes) == []


def test_a_document_of_the_library_keeps_the_content_of_its_chunks(notes: Collection) -> None:
    import ragd
    from collections_app.index.stores import open_store
    from ragd.types import Chunk as LibraryChunk

    vector = [1.0] + [0.0] * 31
    ragd.index([LibraryChunk("a", 0, "bare chunk", 0, 10, embedding=vector)], open_store(notes))
    write(notes, "Now with a text.")
    assert contents(get_document(notes, "a"), 1) == ["bare chunk"]


def test_every_chunk_names_the_present_revision(notes: Collection) -> None:
    write(notes, WORDS, mode="upsert")
    write(notes, WORDS.replace("sixteen", "end"), mode="upsert")
    assert set(Chunk.objects.of(notes).values_list("revision", flat=True)) == {2}
    write(notes, WORDS.replace("sixteen", "end"), metadata={"n": 1})
    assert set(Chunk.objects.of(notes).values_list("revision", flat=True)) == {3}


def test_segments_and_pages_are_kept(notes: Collection) -> None:
    write(notes, [Segment("first line", 0.0, 1.0), Segment("second line", 1.0, 2.0)])
    write(notes, "Now a text.")
    assert find_revision(get_document(notes, "a"), 1).segments == [[0, 10, 0.0, 1.0], [11, 22, 1.0, 2.0]]


def test_a_document_goes_with_its_revisions(notes: Collection) -> None:
    for doc_id in ("a", "b"):
        write(notes, WORDS, doc_id)
        write(notes, "Short.", doc_id)
    assert delete_documents(notes, ["a"])["revisions"] == 1
    assert (numbers(notes, "a"), numbers(notes, "b")) == ([], [1])
    assert write(notes, WORDS, "a") == 1
    assert write(notes, "Short.", "a") == 2
    assert delete_collection(notes)["before"]["revisions"] == 2
    assert not DocumentRevision.objects.exists()


def test_numbers_that_were_used_before_do_not_stop_a_write(notes: Collection) -> None:
    write(notes, WORDS)
    write(notes, "Short.")
    Document.objects.filter(collection=notes).update(revision=1)  # as if it had been made again past the services
    write(notes, "Another text.")
    assert revision_text(get_document(notes, "a"), 1) == "Short."


def test_labels_are_kept_for_many_at_once(notes: Collection) -> None:
    from collections_app.documents.stored_documents import Cause

    for doc_id in ("a", "b"):
        write(notes, WORDS, doc_id)
    keep_labels(notes, ["a", "b"], Cause("labels", "ada"))
    Document.objects.filter(collection=notes).update(revision=2)
    document = get_document(notes, "b")
    assert (revision_text(document, 1), len(contents(document, 1))) == (WORDS, 2)
    assert drop_history(notes, ["a", "b"]) == {"revisions": 2, "overlays": 0}
