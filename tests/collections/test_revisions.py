"""Earlier revisions: kept when something replaces them, read back, dropped when they are too many.
A collection searched as of an earlier time finds what it found then, to the last digit.
Where words stand on pages: stored with a text, found for every revision that has it, gone with the last one."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

import ragd
from collections_app.chunks.edits import add_chunk, edit_chunk, set_chunk_enabled
from collections_app.chunks.policies import policy_of
from collections_app.collections.deletion import delete_collection
from collections_app.collections.import_stage import import_collection
from collections_app.collections.retention import drop_deleted_documents, drop_old_revisions
from collections_app.collections.services import get_collection, update_collection
from collections_app.documents.edits import edit_document
from collections_app.documents.files import find_pages
from collections_app.documents.revisions.past_states import read_past_state
from collections_app.documents.revisions.services import (
    any_revision,
    drop_history,
    find_revision,
    keep_labels,
    revision_chunks,
    revision_text,
)
from collections_app.documents.services import (
    change_state,
    delete_documents,
    draft_of,
    get_document,
    ingest_text,
    reindex_documents,
)
from collections_app.documents.stored_documents import find_stored, hash_text
from collections_app.index.ingestion import Draft, ingest
from collections_app.index.past_indexes import KEPT, KEPT_FOR, drop_past_indexes, read_as_of
from collections_app.index.services import start_index_version
from collections_app.index.stores import open_store
from collections_app.models import Chunk, Collection, Document, DocumentRevision, PastIndex, StateChange, StoredPage
from ragd.errors import InvalidInput
from ragd.readers import PageLayout, Word
from ragd.store.store import partition_name
from ragd.store.tables import PAST_FIRST
from ragd.types import Filters, RetrievePlan, Segment
from tests.exports import export_to_file
from tests.fakes.openai_server import OpenAIServer
from tests.refusals import raises_with, refuses

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


TABLES = "SELECT relname FROM pg_class WHERE relkind = 'r' AND starts_with(relname, %(prefix)s)"
QUESTIONS = ("pump valve motor", "seal of the year", "green door lock", "unknown words")
PLANS = (
    RetrievePlan(k=6, mode="hybrid"),
    RetrievePlan(k=6, mode="lexical"),
    RetrievePlan(k=6, mode="vector", filters=Filters(tags_any=("red",))),
)
TEXTS = {
    "pump": "Before the pump is cleaned close the valve and switch the motor off. Then rinse the filter of the pump.",
    "seal": "The seal of the pump lasts one year. Order a seal from the store before the year ends.",
    "door": "The front door is painted green. The back door has a brass lock. Lock the door at night.",
    "keys": "Keys stay valid for ninety days. A lost key is refused at once by the lock of the door.",
}


def write_of_past_indexes(collection: Collection, doc_id: str, text: str = "", **values: Any) -> None:
    values = {"title": doc_id.title(), "tags": ["red"], "metadata": {"n": 1}, "policy": SMALL} | values
    ingest_text(collection, doc_id, text or TEXTS[doc_id], **values)


def ask(store: ragd.Store) -> list[Any]:
    """Ids, contents, scores, ranks, places and revisions of every question by every plan, without row numbers."""
    return [
        [replace(candidate, chunk_id=None) for candidate in ragd.retrieve(question, plan, store)]
        for question in QUESTIONS
        for plan in PLANS
    ]


def now_and_results(collection: Collection) -> tuple[datetime, list[Any]]:
    return timezone.now(), ask(open_store(collection))


@pytest.fixture(scope="module")
def filled_of_module(notes_of_module: Collection) -> Collection:
    update_collection(notes_of_module, changes={"retention": {"deleted_days": 30}})
    notes_of_module.refresh_from_db()
    for doc_id in TEXTS:
        write_of_past_indexes(notes_of_module, doc_id)
    return notes_of_module


@pytest.fixture
def filled(filled_of_module: Collection, db: None) -> Collection:
    return copy(filled_of_module)


def switch_a_chunk_on(collection: Collection) -> None:
    set_chunk_enabled(collection, "pump", 0, enabled=True)


CHANGES: dict[str, Callable[[Collection], object]] = {
    "text": lambda notes: write_of_past_indexes(notes, "pump", "The pump is old. Another valve was sold with a motor."),
    "title": lambda notes: edit_document(notes, "seal", {"title": "Other"}),
    "tags": lambda notes: edit_document(notes, "seal", {"tags": ["blue"], "metadata": {"n": 2}}),
    "policy": lambda notes: edit_document(notes, "door", {"chunk_policy": {"target_tokens": 5}}),
    "chunk off": lambda notes: set_chunk_enabled(notes, "pump", 1, enabled=False),
    "chunk on": switch_a_chunk_on,
    "chunk edited": lambda notes: edit_chunk(notes, "door", 0, "The front door is painted blue."),
    "chunk added": lambda notes: add_chunk(notes, "keys", "Pump keys and valve keys are red.", after=0),
    "disabled": lambda notes: change_state(notes, ["door"], "disabled"),
    "archived": lambda notes: change_state(notes, ["seal"], "archived"),
    "deleted": lambda notes: delete_documents(notes, ["pump"]),
    "made again": lambda notes: (
        delete_documents(notes, ["keys"]),
        write_of_past_indexes(notes, "keys", "Other keys for the pump."),
    ),
    "added": lambda notes: ingest_text(notes, "new", "A new pump with a new valve and a green seal.", policy=SMALL),
}


def test_every_moment_of_a_history_can_be_searched(filled: Collection) -> None:
    moments = [now_and_results(filled)]
    for change in CHANGES.values():
        if change is not CHANGES["title"]:
            change(filled)
        moments.append(now_and_results(filled))
        if change is CHANGES["archived"]:
            change_state(filled, ["seal"], "unarchived")
            moments.append(now_and_results(filled))
    for moment, found in reversed(moments):
        assert read_as_of(filled, moment, ask)[1] == found
    assert PastIndex.objects.filter(collection=filled).count() <= KEPT


def test_the_present_is_searched_without_a_copy(filled: Collection) -> None:
    moment, before = now_and_results(filled)
    assert read_as_of(filled, moment, ask)[1] == before
    assert not PastIndex.objects.exists()


def test_moments_of_the_same_state_share_a_table(filled: Collection) -> None:
    first, before = now_and_results(filled)
    second = timezone.now()
    CHANGES["text"](filled)
    tables = [
        read_as_of(filled, at, lambda store: (store.collection.index_version, ask(store)))[1] for at in (first, second)
    ]
    assert tables[0] == tables[1] == (PAST_FIRST + PastIndex.objects.get().pk, before)


def test_vectors_that_are_stored_are_not_made_again(filled: Collection, embeddings: OpenAIServer) -> None:
    moment = timezone.now()
    CHANGES["tags"](filled)
    CHANGES["deleted"](filled)
    as_of, _ = read_as_of(filled, moment, ask)
    deleted = len(ragd.chunk(TEXTS["pump"], ragd.ChunkPolicy(**SMALL)))
    assert PastIndex.objects.get().embedded == deleted
    assert len(as_of.notes) == 1


def test_an_earlier_index_version_is_searched_with_its_own_policy(
    filled: Collection, django_capture_on_commit_callbacks: Any
) -> None:
    for doc_id in TEXTS:
        write_of_past_indexes(filled, doc_id, policy=None)
    change_state(filled, ["door"], "disabled")
    edit_chunk(filled, "pump", 0, "The motor of the pump is off.")
    moment, before = now_and_results(filled)
    CHANGES["tags"](filled)
    with django_capture_on_commit_callbacks(execute=True):
        start_index_version(filled, {"chunk_policy": SMALL})
    filled.refresh_from_db()
    assert filled.index_version == 2
    swapped, then = now_and_results(filled)
    change_state(filled, ["door"], "enabled")
    CHANGES["text"](filled)
    as_of, found = read_as_of(filled, moment, ask)
    assert (as_of.index_version, found) == (1, before)
    as_of, found = read_as_of(filled, swapped, ask)
    assert (as_of.index_version, found) == (2, then)
    StateChange.objects.get(kind="serving")


def test_a_revision_that_is_gone_is_named(filled: Collection) -> None:
    moment = timezone.now()
    update_collection(filled, changes={"retention": {"revisions": 1}})
    filled.refresh_from_db()
    write_of_past_indexes(filled, "pump", "First other text of the pump.")
    write_of_past_indexes(filled, "pump", "Second other text of the pump.")
    with refuses("not_restorable", "as_of", "'pump'"):
        read_past_state(filled, moment)
    DocumentRevision.objects.all().delete()
    with refuses("not_restorable", "as_of", "'pump'"):
        read_past_state(filled, moment)


def test_a_deleted_document_is_kept_as_long_as_the_collection_says(filled: Collection) -> None:
    moment, before = now_and_results(filled)
    assert delete_documents(filled, ["pump"])["revisions"] == 0
    assert not DocumentRevision.objects.exists()
    assert drop_deleted_documents() == 0
    assert read_as_of(filled, moment, ask)[1] == before
    StateChange.objects.update(made_at=timezone.now() - timedelta(days=31))
    assert drop_deleted_documents() == 1
    StateChange.objects.update(made_at=timezone.now())
    with refuses("not_restorable", "as_of", "'pump'"):
        read_past_state(filled, moment)


def test_a_moment_within_a_deletion_is_before_it(filled: Collection) -> None:
    _, before = now_and_results(filled)
    delete_documents(filled, ["pump"])
    change = StateChange.objects.get()
    kept_at = datetime.fromisoformat(change.kept[-1]["replaced_at"])
    assert kept_at <= change.made_at
    StateChange.objects.update(made_at=timezone.now())
    assert read_as_of(filled, kept_at, ask)[1] == before


def test_nothing_of_a_deleted_document_is_kept_by_default(filled: Collection) -> None:
    update_collection(filled, changes={"retention": {}})
    filled.refresh_from_db()
    delete_documents(filled, ["pump"])
    assert StateChange.objects.get().kept is None


@pytest.mark.parametrize("at", ["2999-01-01T00:00:00+00:00", "2026-01-01T00:00:00"])
def test_a_time_that_cannot_be_is_refused(at: str, filled: Collection) -> None:
    with raises_with(InvalidInput, field="as_of"):
        read_past_state(filled, datetime.fromisoformat(at))


def test_a_time_before_changes_were_recorded_is_refused(filled: Collection) -> None:
    with refuses("not_recorded", "as_of"):
        read_past_state(filled, filled.created_at - timedelta(seconds=1))
    StateChange.objects.create(collection=filled, kind="recorded")
    with refuses("not_recorded", "as_of"):
        read_past_state(filled, timezone.now() - timedelta(seconds=5))


def tables_of(collection: Collection) -> set[str]:
    """Of chunks, with those of the past."""
    with connection.cursor() as cursor:
        cursor.execute(TABLES, {"prefix": f"chunks_c{collection.pk}_"})
        return {name for (name,) in cursor.fetchall()}


def test_tables_of_the_past_go_after_a_while_and_with_their_collection(filled: Collection) -> None:
    moment, _ = now_and_results(filled)
    CHANGES["text"](filled)
    read_as_of(filled, moment, ask)
    assert PastIndex.objects.count() == 1
    assert drop_past_indexes(timezone.now()) == 0
    assert drop_past_indexes(timezone.now() + KEPT_FOR + timedelta(seconds=1)) == 1
    assert not PastIndex.objects.exists()
    read_as_of(filled, moment, ask)
    again = PastIndex.objects.get()
    assert tables_of(filled) == {partition_name(filled.pk, number) for number in (1, PAST_FIRST + again.pk)}
    after = delete_collection(filled)["after"]
    assert set(after.values()) == {0}
    assert tables_of(filled) == set()


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
