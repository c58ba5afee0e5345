"""Changes to single chunks: they hold over re-chunking, re-indexing, new texts and new index versions, and are
undone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from collections_app.chunks import document_snapshot
from collections_app.chunks.edits import (
    add_chunk,
    attach_overlay,
    edit_chunk,
    list_overlays,
    remove_overlay,
    set_chunk_enabled,
)
from collections_app.chunks.overlays import Overlay, apply_overlays, hash_anchor, trace_sources
from collections_app.documents.edits import roll_back
from collections_app.documents.revisions.services import revision_chunks
from collections_app.documents.services import change_state, delete_documents, ingest_text, reindex_documents
from collections_app.documents.stored_documents import DocumentOverlays
from collections_app.index import ingestion
from collections_app.index.services import start_index_version
from collections_app.index.stores import open_store
from collections_app.jobs.dispatch import run_job
from collections_app.models import AuditEvent, Chunk, ChunkOverlay, Collection, Document
from ragd.search.retrieval import retrieve
from ragd.text.chunking import bind, chunk
from ragd.types import ChunkPolicy, RetrievePlan
from tests.fakes.openai_server import OpenAIServer
from tests.refusals import refuses

POLICY = {"target_tokens": 6, "overlap_tokens": 0}
LINES = [
    f"Sentence {number} is about {subject}." for number, subject in enumerate(["birds", "rivers", "stones", "tea"])
]
TEXT = "\n\n".join(LINES)


@pytest.fixture
def document(notes: Collection) -> Document:
    notes.chunk_policy = POLICY
    notes.save(update_fields=["chunk_policy"])
    ingest_text(notes, "a", TEXT)
    return Document.objects.get(collection=notes, doc_id="a")


def contents(collection: Collection, doc_id: str = "a") -> list[str]:
    rows = Chunk.objects.filter(collection_id=collection.pk, doc_id=doc_id).order_by("chunk_index")
    return list(rows.values_list("content", flat=True))


def rows(collection: Collection, *names: str) -> list[Any]:
    found = Chunk.objects.filter(collection_id=collection.pk, doc_id="a").order_by("chunk_index")
    return list(found.values_list(*names, flat=len(names) == 1))


def test_an_edit_replaces_the_text_and_embeds_only_that(
    notes: Collection, document: Document, embeddings: OpenAIServer
) -> None:
    asked = len(embeddings.bodies("/v1/embeddings"))
    change = edit_chunk(notes, "a", 1, "Rivers run to the sea.")
    assert contents(notes) == [LINES[0], "Rivers run to the sea.", *LINES[2:]]
    assert (change.chunk_index, change.revision, change.changed) == (1, 2, True)
    assert [body["input"] for body in embeddings.bodies("/v1/embeddings")[asked:]] == [["Rivers run to the sea."]]
    edited = Chunk.objects.get(collection_id=notes.pk, doc_id="a", chunk_index=1)
    assert (edited.metadata, edited.attributes["overlay"]) == ({}, "edit")
    assert TEXT[edited.start_char : edited.end_char] == LINES[1]
    found = retrieve("sea", RetrievePlan(mode="lexical"), open_store(notes))
    assert [candidate.content for candidate in found] == ["Rivers run to the sea."]


def test_a_disabled_chunk_is_not_found_and_stays_so_when_the_document_is_switched(
    notes: Collection, document: Document
) -> None:
    set_chunk_enabled(notes, "a", 2, enabled=False)
    assert rows(notes, "enabled") == [True, True, False, True]
    change_state(notes, ["a"], "disabled")
    assert rows(notes, "enabled") == [False] * 4
    change_state(notes, ["a"], "enabled")
    assert rows(notes, "enabled") == [True, True, False, True]
    assert retrieve("stones", RetrievePlan(mode="lexical"), open_store(notes)) == []
    set_chunk_enabled(notes, "a", 2, enabled=True)
    assert rows(notes, "enabled") == [True] * 4
    assert list_overlays(notes, "a") == []


def test_a_disabled_document_keeps_its_chunks_off_when_one_is_let_in(notes: Collection, document: Document) -> None:
    set_chunk_enabled(notes, "a", 2, enabled=False)
    change_state(notes, ["a"], "disabled")
    set_chunk_enabled(notes, "a", 2, enabled=True)
    assert rows(notes, "enabled", "switched_off") == [(False, False)] * 4


def test_added_chunks_follow_in_the_order_in_which_they_were_added(notes: Collection, document: Document) -> None:
    first = add_chunk(notes, "a", "First note.", after=0)
    second = add_chunk(notes, "a", "Second note.", after=0)
    last = add_chunk(notes, "a", "The end.")
    assert contents(notes) == [LINES[0], "First note.", "Second note.", *LINES[1:], "The end."]
    assert (first.chunk_index, second.chunk_index, last.chunk_index) == (1, 2, 6)
    assert (rows(notes, "metadata")[1], rows(notes, "attributes")[1]["overlay"]) == ({}, "add")
    edit_chunk(notes, "a", 2, "Second note, corrected.")
    assert contents(notes)[2] == "Second note, corrected."
    assert len(list_overlays(notes, "a")) == 3
    with refuses("added_chunk", "chunk_index"):
        set_chunk_enabled(notes, "a", 2, enabled=False)
    assert second.overlay_id
    remove_overlay(notes, "a", second.overlay_id)
    assert contents(notes) == [LINES[0], "First note.", *LINES[1:], "The end."]


def test_changes_survive_a_new_text_and_say_when_they_apply_no_more(notes: Collection, document: Document) -> None:
    edit_chunk(notes, "a", 1, "Rivers run to the sea.")
    set_chunk_enabled(notes, "a", 3, enabled=False)
    moved = "\n\n".join(["A new line stands first.", *LINES])
    ingest_text(notes, "a", moved)
    assert contents(notes) == ["A new line stands first.", LINES[0], "Rivers run to the sea.", *LINES[2:]]
    assert rows(notes, "enabled") == [True, True, True, True, False]
    ingest_text(notes, "a", "\n\n".join([LINES[0], LINES[3]]))
    edit, disable = list_overlays(notes, "a")
    assert (edit.applies, disable.applies) == (False, True)
    assert edit.anchor_text == LINES[1]
    assert contents(notes) == [LINES[0], LINES[3]]
    ingest_text(notes, "a", TEXT)
    assert contents(notes)[1] == "Rivers run to the sea."
    assert list_overlays(notes, "a")[0].applies


def test_a_change_that_waits_can_be_attached_to_another_chunk(notes: Collection, document: Document) -> None:
    change = edit_chunk(notes, "a", 1, "Rivers run to the sea.")
    ingest_text(notes, "a", TEXT.replace("Sentence 1 is", "Sentence 1 was"))
    assert contents(notes)[1] == "Sentence 1 was about rivers."
    assert change.overlay_id
    attached = attach_overlay(notes, "a", change.overlay_id, 1)
    assert (attached.chunk_index, contents(notes)[1]) == (1, "Rivers run to the sea.")
    (overlay,) = list_overlays(notes, "a")
    assert (overlay.applies, overlay.anchor_text) == (True, "Sentence 1 was about rivers.")
    other = edit_chunk(notes, "a", 2, "Stones.")
    assert other.overlay_id
    with refuses("overlay_taken", "chunk_index"):
        attach_overlay(notes, "a", other.overlay_id, 1)


def test_undoing_brings_the_text_back(notes: Collection, document: Document) -> None:
    change = edit_chunk(notes, "a", 1, "Rivers run to the sea.")
    assert change.overlay_id
    assert remove_overlay(notes, "a", change.overlay_id).before
    assert contents(notes) == LINES
    edit_chunk(notes, "a", 1, "Rivers run.")
    edit_chunk(notes, "a", 1, LINES[1])
    assert (contents(notes), list_overlays(notes, "a")) == (LINES, [])
    assert not edit_chunk(notes, "a", 1, LINES[1]).changed


def test_a_re_index_and_a_new_index_version_keep_the_changes(notes: Collection, document: Document) -> None:
    edit_chunk(notes, "a", 1, "Rivers run to the sea.")
    set_chunk_enabled(notes, "a", 2, enabled=False)
    add_chunk(notes, "a", "A note.", after=2)
    expected = [LINES[0], "Rivers run to the sea.", LINES[2], "A note.", LINES[3]]
    (job,) = reindex_documents(notes, ["a"])
    assert run_job(job.pk) == "succeeded"
    assert contents(notes) == expected
    index_version = start_index_version(notes, {"embed_model": "text-embedding-3-large", "embed_dims": 48})
    assert run_job(index_version.jobs.newest()[0].pk) == "succeeded"
    assert Collection.objects.get(pk=notes.pk).index_version == index_version.number
    assert contents(notes) == expected
    assert rows(notes, "enabled") == [True, True, False, True, True]
    assert all(overlay.applies for overlay in list_overlays(notes, "a"))


def test_an_index_version_of_another_policy_tells_what_applies_no_more(notes: Collection, document: Document) -> None:
    edit_chunk(notes, "a", 1, "Rivers run to the sea.")
    index_version = start_index_version(notes, {"chunk_policy": {"target_tokens": 100, "overlap_tokens": 0}})
    assert run_job(index_version.jobs.newest()[0].pk) == "succeeded"
    assert contents(notes) == [TEXT]
    assert not list_overlays(notes, "a")[0].applies


def test_a_change_is_made_again_when_somebody_was_faster(
    notes: Collection, document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = document_snapshot.read_overlays
    calls: list[int] = []

    def slow(collection_id: int, doc_id: str) -> list[Overlay]:
        calls.append(1)
        if len(calls) == 1:  # while the overlays were read, another edit came in
            found = first(collection_id, doc_id)
            edit_chunk(notes, "a", 0, "Birds sing.")
            return found
        return first(collection_id, doc_id)

    monkeypatch.setattr(document_snapshot, "read_overlays", slow)
    edit_chunk(notes, "a", 1, "Rivers run to the sea.")
    assert contents(notes)[:2] == ["Birds sing.", "Rivers run to the sea."]


def test_a_rollback_keeps_the_changes(notes: Collection, document: Document) -> None:
    edit_chunk(notes, "a", 1, "Rivers run to the sea.")
    ingest_text(notes, "a", "\n\n".join(LINES[:2]))
    assert contents(notes) == [LINES[0], "Rivers run to the sea."]
    roll_back(notes, "a", 1)
    assert contents(notes) == [LINES[0], "Rivers run to the sea.", *LINES[2:]]
    stored = Document.objects.get(pk=document.pk)
    assert [chunk.content for chunk in revision_chunks(stored, 1)] == LINES
    assert [chunk.content for chunk in revision_chunks(stored, 2)] == contents(notes)


def test_a_text_that_was_on_its_way_takes_a_change_along(
    notes: Collection, document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = ingestion.chunk_draft
    edits: list[int] = []

    def slow(*values: Any) -> Any:
        found = cut(*values)
        if not edits:  # after the overlays were read, before anything is stored
            edits.append(1)
            edit_chunk(notes, "a", 1, "Rivers run to the sea.")
        return found

    monkeypatch.setattr(ingestion, "chunk_draft", slow)
    ingest_text(notes, "a", f"{TEXT}\n\nSentence 4 is about bread.")
    assert contents(notes) == [LINES[0], "Rivers run to the sea.", *LINES[2:], "Sentence 4 is about bread."]
    assert list_overlays(notes, "a")[0].applies


def test_an_archived_document_is_not_changed(notes: Collection, document: Document) -> None:
    change_state(notes, ["a"], "archived")
    with refuses("archived", "doc_id"):
        edit_chunk(notes, "a", 1, "Rivers run to the sea.")
    assert contents(notes) == LINES


def test_what_cannot_be_done_is_told(notes: Collection, document: Document) -> None:
    with refuses("unknown_chunk", "chunk_index", "4") as unknown:
        edit_chunk(notes, "a", 4, "x")
    assert unknown.value.status == 404
    with refuses("empty_content", "content"):
        edit_chunk(notes, "a", 0, " \n ")
    with refuses("invalid_input", "content", "32000", "32001"):
        edit_chunk(notes, "a", 0, "x" * 32_001)
    with refuses("conflict", "revision", "Reload it, then save again") as stale:
        edit_chunk(notes, "a", 0, "x", revision=7)
    assert stale.value.status == 409
    with refuses("unknown_overlay", "overlay_id", "99"):
        remove_overlay(notes, "a", 99)
    Document.objects.filter(pk=document.pk).update(text="")
    with refuses("no_text", "doc_id"):
        edit_chunk(notes, "a", 0, "x")
    assert not ChunkOverlay.objects.exists()


def test_changes_are_logged_kept_as_revisions_and_go_with_the_document(notes: Collection, document: Document) -> None:
    edit_chunk(notes, "a", 1, "Rivers run to the sea.")
    assert AuditEvent.objects.filter(message__startswith="chunk 1 edited").count() == 1
    delete_documents(notes, ["a"])
    assert not ChunkOverlay.objects.exists()


def test_a_document_without_changes_keeps_its_hash(notes: Collection, document: Document) -> None:
    change = edit_chunk(notes, "a", 1, "Rivers run to the sea.")
    assert Document.objects.get(pk=document.pk).content_hash != document.content_hash
    assert change.overlay_id
    remove_overlay(notes, "a", change.overlay_id)
    assert Document.objects.get(pk=document.pk).content_hash == document.content_hash
    made = bind(chunk(TEXT, ChunkPolicy(**POLICY)), doc_id="a")
    assert DocumentOverlays.read(notes.pk, "a").apply(made) is made


WORDS = st.lists(st.sampled_from(["one", "two", "three", "four", "one two", "x" * 9]), min_size=1, max_size=12)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["edit", "disable", "add"]), st.integers(0, 11), st.sampled_from(["new", "other"])),
    max_size=6,
)


@hypothesis_settings(max_examples=50, deadline=None)
@given(paragraphs=WORDS, prefix=WORDS, changes=CHANGES)
def test_overlays_on_text_that_was_cut_again(paragraphs: list[str], prefix: list[str], changes: Any) -> None:
    """Whatever is put before the text: each cut chunk comes out once, in order, as it was or as one change says."""
    policy = ChunkPolicy(target_tokens=3, overlap_tokens=0)
    cut = bind(chunk("\n\n".join(paragraphs), policy), doc_id="d")
    overlays = []
    for kind, number, content in changes:
        anchor = cut[number % len(cut)]
        if not any((kind, anchor.start) == (each.kind, each.start) for each in overlays if kind != "add"):
            text = "" if kind == "disable" else content
            overlays.append(Overlay(kind, hash_anchor(anchor.content), anchor.start, text))
    again = bind(chunk("\n\n".join([*prefix, *paragraphs]), policy), doc_id="d")
    laid = apply_overlays(again, overlays)
    assert [item.chunk_index for item in laid.chunks] == list(range(len(laid.chunks)))
    assert [(item.start, item.end) for item in laid.chunks if item.attributes.get("overlay") != "add"] == [
        (item.start, item.end) for item in again
    ]
    for position, place in laid.places.items():
        overlay, made = overlays[position], laid.chunks[place]
        assert made.enabled is False if overlay.kind == "disable" else made.content == overlay.content
    touched = set(laid.places.values())
    left = [item.content for number, item in enumerate(laid.chunks) if number not in touched]
    assert set(left) <= {item.content for item in again}
    if not overlays:
        assert laid.chunks is again
    anchors = [(hash_anchor(item.content), item.start) for item in again]
    rows_laid = trace_sources(anchors, overlays)
    assert len(rows_laid) == len(laid.chunks)
    for position, place in laid.places.items():
        assert position in (rows_laid[place].edit, rows_laid[place].disable, rows_laid[place].add)
    assert len(apply_overlays(cut, overlays).places) == len(overlays)
