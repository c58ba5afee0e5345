"""Pack the words of collections that have enough chunks and none packed."""

from __future__ import annotations

import pytest
from django.utils import timezone

from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.index.stores import open_store
from collections_app.jobs import maintenance
from collections_app.jobs.maintenance import maintain
from collections_app.models import Collection, Document
from ragd.search import lexical_search
from ragd.search.retrieval import retrieve_detailed
from ragd.store import postings
from ragd.store.store import execute
from ragd.types import RetrievePlan

LEAST = 4


@pytest.fixture
def unpacked(notes: Collection, monkeypatch: pytest.MonkeyPatch) -> Collection:
    for number in range(LEAST):
        ingest_text(notes, f"tree-{number}", f"A tree of kind {number}, tall and old.")
    Document.objects.update(updated_at=timezone.now() - 2 * maintenance.QUIET_FOR)
    for module in (postings, maintenance, lexical_search):
        monkeypatch.setattr(module, "POSTINGS_MIN", LEAST)
    return notes


def test_words_that_are_not_packed_are(unpacked: Collection) -> None:
    plan = RetrievePlan("lexical", 3)
    before = retrieve_detailed("old tree", plan, open_store(unpacked))
    assert postings.read_segments(open_store(unpacked)) == []
    assert maintain()["postings"] == 1
    (segment,) = postings.read_segments(open_store(unpacked))
    assert segment.size == open_store(unpacked).state().chunk_count >= LEAST
    assert retrieve_detailed("old tree", plan, open_store(unpacked)).candidates == before.candidates
    assert maintain()["postings"] == 0


def test_a_collection_without_words_does_not_hold_up_the_next(
    unpacked: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(unpacked)
    execute(store.connection, f"UPDATE {store.collection.partition} SET lexical = NULL")
    other = create_collection(name="other")
    with monkeypatch.context() as patch:
        patch.setattr(postings, "POSTINGS_MIN", 1_000)
        for number in range(LEAST):
            ingest_text(other, f"stone-{number}", f"A stone of kind {number}, hard and old.")
    Document.objects.update(updated_at=timezone.now() - 2 * maintenance.QUIET_FOR)
    assert unpacked.pk < other.pk
    assert maintain()["postings"] == 1
    assert postings.read_segments(open_store(unpacked)) == []
    assert len(postings.read_segments(open_store(other))) == 1


def test_a_load_is_waited_for(unpacked: Collection) -> None:
    Document.objects.filter(doc_id="tree-1").update(updated_at=timezone.now())
    assert maintain()["postings"] == 0


def test_few_chunks_are_not_packed(unpacked: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "POSTINGS_MIN", 1)  # asked for, and refused by the library
    monkeypatch.setattr(postings, "POSTINGS_MIN", 1_000)
    assert maintain()["postings"] == 0
    assert postings.read_segments(open_store(unpacked)) == []
