"""Documents changed by hand, one and many; archived; rolled back; two writers at once."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from collections_app.collections.services import create_collection
from collections_app.documents import edits
from collections_app.documents.bulk_changes import (
    BulkChange,
    DocumentFilter,
    change_documents,
    choose_matching,
    choose_named,
    count_facets,
)
from collections_app.documents.edits import edit_document, roll_back
from collections_app.documents.revisions.services import revision_chunks, revision_places, revision_text
from collections_app.documents.services import change_state, delete_documents, get_document, ingest_text
from collections_app.errors import ServiceError
from collections_app.models import AuditEvent, Chunk, Collection, Document, DocumentRevision, IngestJob
from collections_app.uploads.options import IngestOptions
from collections_app.uploads.services import submit_uploads
from ragd.errors import InvalidInput
from ragd.types import Segment
from tests.fakes.openai_server import OpenAIServer
from tests.refusals import refuses
from tests.simultaneous import call_together

SMALL = {"target_tokens": 8, "overlap_tokens": 0}
WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"


def write(collection: Collection, text: Any, doc_id: str = "a", **values: Any) -> int:
    return ingest_text(collection, doc_id, text, policy=SMALL, **values).revision


def chunks(collection: Collection, doc_id: str = "a") -> list[Chunk]:
    return list(Chunk.objects.light().of_document(get_document(collection, doc_id)))


# --- one document


def test_tags_and_metadata_are_changed_without_embedding(notes: Collection, embeddings: OpenAIServer) -> None:
    write(notes, WORDS, title="T", tags=["x"], metadata={"n": 1, "old": True})
    asked = len(embeddings.requests)
    document = edit_document(notes, "a", {"tags": ["y", " y", "z"], "metadata": {"n": 2, "new": "é"}})
    assert len(embeddings.requests) == asked
    assert (document.tags, document.metadata, document.revision) == (["y", "z"], {"n": 2, "new": "é"}, 2)
    for chunk in chunks(notes):
        assert (chunk.tags, chunk.revision) == (["y", "z"], 2)
        assert chunk.metadata == {"n": 2, "new": "é"}
    # the same again is no change; the same content as a whole is unchanged, and so no hash was lost
    assert edit_document(notes, "a", {"tags": ["y", "z"]}).revision == 2
    assert ingest_text(
        notes, "a", WORDS, title="T", tags=["y", "z"], metadata=document.metadata, policy=SMALL
    ).unchanged


def test_an_uploaded_file_is_still_unchanged_after_an_edit(
    notes: Collection, django_capture_on_commit_callbacks: Any
) -> None:
    def upload() -> str:
        with django_capture_on_commit_callbacks(execute=True):
            (outcome,) = submit_uploads(notes, [SimpleUploadedFile("a.md", b"# Title\n\nSome text.")])
        return outcome.status

    assert upload() == "queued"
    edit_document(notes, "a.md", {"tags": ["kept"], "metadata": {"k": 1}})
    assert upload() == "unchanged"
    assert (get_document(notes, "a.md").tags, get_document(notes, "a.md").revision) == (["kept"], 2)


def test_a_file_with_other_content_leaves_what_was_set_by_hand(
    notes: Collection, django_capture_on_commit_callbacks: Any
) -> None:
    def upload(content: bytes, **values: Any) -> Document:
        with django_capture_on_commit_callbacks(execute=True):
            submit_uploads(notes, [SimpleUploadedFile("a.md", content)], IngestOptions(**values))
        return get_document(notes, "a.md")

    upload(b"---\nauthor: Ada\n---\n# Title\n\nSome text.", metadata={"team": "core", "year": 1})
    edit_document(notes, "a.md", {"title": "By hand", "metadata": {"team": "core", "year": 2, "k": 3}})
    change_documents(notes, BulkChange("set_metadata", key="level", value="high"), ["a.md"])
    edit_document(notes, "a.md", {"tags": ["kept"]})
    document = upload(b"---\nauthor: Bob\n---\n# Title\n\nOther text.")
    assert (document.title, document.tags) == ("By hand", ["kept"])
    assert document.metadata == {"team": "core", "year": 2, "k": 3, "level": "high"}
    assert document.file_metadata == {"title": "Title", "charset": "utf-8"}
    document = upload(b"Third text.", metadata={"year": 9})
    assert (document.metadata["year"], document.metadata["k"]) == (9, 3)


def test_keys_that_chunks_have_of_their_own_are_cut_anew(notes: Collection, embeddings: OpenAIServer) -> None:
    write(notes, [Segment("first line", 0.0, 1.0), Segment("second line", 1.0, 2.0)], metadata={"page": "7"})
    assert {chunk.metadata["page"] for chunk in chunks(notes)} == {"7"}
    asked = len(embeddings.requests)
    edit_document(notes, "a", {"metadata": {"t_start": 99}})
    assert len(embeddings.requests) == asked
    (chunk,) = chunks(notes)
    assert "page" not in chunk.metadata
    assert (chunk.metadata["t_start"], chunk.attributes["t_start"]) == (99, 0.0)
    edit_document(notes, "a", {"metadata": {}})
    assert chunks(notes)[0].metadata["t_start"] == 0.0


def test_a_policy_of_its_own_holds_until_it_is_taken_back(
    notes: Collection, django_capture_on_commit_callbacks: Any
) -> None:
    from collections_app.documents.services import reindex_documents

    ingest_text(notes, "a", WORDS)
    document = edit_document(notes, "a", {"chunk_policy": {"target_tokens": 4, "overlap_tokens": 0}})
    assert (len(chunks(notes)), document.chunk_policy["target_tokens"]) == (4, 4)
    ingest_text(notes, "a", f"{WORDS} seventeen")
    assert len(chunks(notes)) == 5
    with django_capture_on_commit_callbacks(execute=True):
        reindex_documents(notes, ["a"])
    assert (len(chunks(notes)), get_document(notes, "a").revision) == (5, 3)
    document = edit_document(notes, "a", {"chunk_policy": {}})
    assert (len(chunks(notes)), document.chunk_policy_stated) == (1, {})


def test_an_edit_of_what_has_moved_on_is_refused(notes: Collection) -> None:
    write(notes, WORDS)
    write(notes, "Something else.")
    with refuses("conflict", "expected_revision") as caught:
        edit_document(notes, "a", {"title": "T"}, expected_revision=1)
    assert caught.value.status == 409
    with refuses("invalid_input", "text"):
        edit_document(notes, "a", {"text": "x"})
    with refuses("invalid_input", "state"):
        edit_document(notes, "a", {"state": "gone"})


def test_an_archived_document_is_read_only_and_not_retrieved(notes: Collection) -> None:
    write(notes, WORDS)
    document = edit_document(notes, "a", {"state": "archived"})
    assert document.archived
    assert not document.enabled
    assert not any(chunk.enabled for chunk in chunks(notes))
    for change in (
        lambda: write(notes, "New."),
        lambda: edit_document(notes, "a", {"tags": ["x"]}),
        lambda: roll_back(notes, "a", 1),
    ):
        with refuses("archived", "doc_id") as caught:
            change()
        assert caught.value.status == 409
    assert change_state(notes, ["a"], "enabled") == []
    document = edit_document(notes, "a", {"state": "enabled", "tags": ["back"]})
    assert (document.state, document.enabled, document.tags) == ("enabled", True, ["back"])
    assert all(chunk.enabled for chunk in chunks(notes))


@pytest.mark.parametrize("change", ["disabled", "archived"])
def test_an_edit_that_states_no_state_leaves_one_that_was_set_meanwhile(
    notes: Collection, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    write(notes, WORDS)
    edit_content = edits._edit_content

    def change_first(*args: Any) -> None:
        change_state(notes, ["a"], change)
        edit_content(*args)

    monkeypatch.setattr(edits, "_edit_content", change_first)
    if change == "archived":
        with refuses("archived", "doc_id"):
            edit_document(notes, "a", {"tags": ["x"]})
    else:
        assert edit_document(notes, "a", {"tags": ["x"]}).tags == ["x"]
    assert get_document(notes, "a").state == change
    assert not any(chunk.enabled for chunk in chunks(notes))


def test_an_archived_document_that_is_to_be_disabled_is_retrieved_at_no_moment(
    notes: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(notes, WORDS)
    change_state(notes, ["a"], "archived")

    def look(*_: Any) -> None:
        assert get_document(notes, "a").state == "disabled"
        raise ServiceError("the model is away", type="embedder_failed", status=503)

    monkeypatch.setattr(edits, "_edit_content", look)
    with refuses("embedder_failed"):
        edit_document(notes, "a", {"state": "disabled", "title": "T"})
    assert get_document(notes, "a").state == "disabled"


def test_a_file_that_waits_for_an_archived_document_is_cancelled(notes: Collection) -> None:
    write(notes, WORDS)
    (outcome,) = submit_uploads(notes, [SimpleUploadedFile("a", b"New text.")])
    assert outcome.job is not None
    edit_document(notes, "a", {"state": "archived"})
    outcome.job.refresh_from_db()
    assert outcome.job.state == "cancelled" and outcome.job.error


def test_what_a_file_is_about_to_say_is_not_edited_in_between(notes: Collection) -> None:
    write(notes, WORDS)
    write(notes, WORDS, "b")
    submit_uploads(notes, [SimpleUploadedFile("a", b"New text.")])
    with refuses("being_ingested", "doc_id"):
        edit_document(notes, "a", {"tags": ["x"]})
    outcome = change_documents(notes, BulkChange("add_tags", tags=("x",)), ["a", "b"])
    assert [(result.status, result.error_type) for result in outcome.results] == [
        ("refused", "being_ingested"),
        ("changed", ""),
    ]
    assert edit_document(notes, "a", {"state": "disabled"}).enabled is False


def test_a_re_index_does_not_undo_an_edit_made_meanwhile(
    notes: Collection, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    from collections_app.documents.services import reindex_documents
    from collections_app.jobs import dispatch

    write(notes, WORDS, tags=["before"])
    ingest = dispatch.ingest
    runs = []

    def edit_first(*args: Any, **values: Any) -> Any:
        runs.append(args[1].tags)
        if len(runs) == 1:  # while its chunks are made, as it were
            edit_document(notes, "a", {"tags": ["edited"]})
        return ingest(*args, **values)

    monkeypatch.setattr(dispatch, "ingest", edit_first)
    with django_capture_on_commit_callbacks(execute=True):
        reindex_documents(notes, ["a"])
    assert runs == [("before",), ("edited",)]
    document = get_document(notes, "a")
    assert (document.tags, document.chunk_count) == (["edited"], 1)
    assert IngestJob.objects.get().state == "succeeded"


@pytest.mark.parametrize("change", ["edit", "rollback"])
def test_a_document_that_is_deleted_meanwhile_does_not_come_back(
    notes: Collection, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    from collections_app.documents.services import delete_documents

    write(notes, "First.")
    write(notes, "Second.")
    ingest = edits.ingest

    def delete_first(*args: Any, **values: Any) -> Any:
        delete_documents(notes, ["a"])  # while its chunks are made, as it were
        return ingest(*args, **values)

    monkeypatch.setattr(edits, "ingest", delete_first)
    with refuses("unknown_document", "doc_id"):
        edit_document(notes, "a", {"title": "New"}) if change == "edit" else roll_back(notes, "a", 1)
    assert not Document.objects.exists() and not Chunk.objects.exists()


# --- back to an earlier revision


@pytest.mark.parametrize("change", ["edit", "rollback"])
def test_what_is_written_while_a_change_begins_does_not_hide_it(
    notes: Collection, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    ingest_text(notes, "a", WORDS)
    ingest_text(notes, "a", "Something else.", title="New")
    read = edits.get_document

    def write_first(*args: Any) -> Document:
        monkeypatch.setattr(edits, "get_document", read)
        ingest_text(notes, "a", "Third.", title="Third")
        return read(*args)

    monkeypatch.setattr(edits, "get_document", write_first)
    if change == "edit":
        assert edit_document(notes, "a", {"title": "New"}).title == "New"
    else:
        assert roll_back(notes, "a", 2).revision == 4
        assert get_document(notes, "a").text == "Something else."


def test_a_document_deleted_while_a_revision_is_read_is_unknown(
    notes: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(notes, WORDS)
    write(notes, "Something else.")
    read_maps = edits.revision_maps

    def delete_first(document: Document, number: int) -> Any:
        delete_documents(notes, ["a"])
        return read_maps(document, number)

    monkeypatch.setattr(edits, "revision_maps", delete_first)
    with refuses("unknown_document", "doc_id"):
        roll_back(notes, "a", 1)


def test_a_rollback_makes_a_new_revision_of_the_old_content(notes: Collection, embeddings: OpenAIServer) -> None:
    write(notes, WORDS, title="First", tags=["x"], metadata={"n": 1})
    document = get_document(notes, "a")
    document.source_hash = "ab"
    document.save()
    edit_document(notes, "a", {"chunk_policy": SMALL})
    write(notes, "Something else.", title="Second")
    assert roll_back(notes, "a", 1).revision == 3
    document = get_document(notes, "a")
    assert (document.title, document.tags, document.metadata) == ("First", ["x"], {"n": 1})
    assert (document.text, document.source_hash) == (WORDS, "ab")
    assert [chunk.content for chunk in chunks(notes)] == [chunk.content for chunk in revision_chunks(document, 1)]
    assert DocumentRevision.objects.get(collection=notes, revision=2).reason == "rollback to 1"
    assert "revision 1" in AuditEvent.objects.latest("pk").message
    assert roll_back(notes, "a", 1).unchanged


def test_a_rollback_keeps_the_vectors_of_equal_texts(notes: Collection, embeddings: OpenAIServer) -> None:
    write(notes, WORDS)
    edit_document(notes, "a", {"chunk_policy": SMALL})
    write(notes, WORDS.replace("sixteen", "end"), mode="upsert")
    asked = len(embeddings.requests)
    roll_back(notes, "a", 1)
    assert [len(request.body["input"]) for request in embeddings.requests[asked:]] == [1]


def test_a_rollback_waits_for_nobody(notes: Collection) -> None:
    write(notes, WORDS)
    write(notes, "Else.")
    submit_uploads(notes, [SimpleUploadedFile("a", b"New text.")])
    with refuses("being_ingested", "doc_id") as caught:
        roll_back(notes, "a", 1)
    assert (caught.value.status, caught.value.type) == (409, "being_ingested")
    with refuses("unknown_revision", "revision", "9") as caught:
        IngestJob.objects.all().delete()
        roll_back(notes, "a", 9)
    assert caught.value.status == 404


texts = st.lists(
    st.sampled_from(["alpha", "beta", "gamma", "delta.", "epsilon\n\n#", "Zeta\n\neta", "theta"]), min_size=1
)


@examples(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(states=st.lists(st.tuples(texts, st.sampled_from(["", "A", "B"])), min_size=2, max_size=4), data=st.data())
def test_rolling_back_gives_the_chunks_of_then(notes: Collection, states: Any, data: Any) -> None:
    delete_documents(notes, ["p"])
    DocumentRevision.objects.filter(collection=notes).delete()
    notes.chunk_policy = SMALL
    for words, title in states:
        ingest_text(notes, "p", " ".join(words), title=title)
    document = get_document(notes, "p")
    kept = list(range(1, document.revision))
    if not kept:
        return
    number = data.draw(st.sampled_from(kept))
    then = [(chunk.start, chunk.end, chunk.content, chunk.context) for chunk in revision_chunks(document, number)]
    roll_back(notes, "p", number)
    document = get_document(notes, "p")
    now = [
        (chunk.start, chunk.end, chunk.content, chunk.context) for chunk in revision_chunks(document, document.revision)
    ]
    assert now == then
    assert revision_text(document, number) == document.text


# --- many


@pytest.fixture
def many(notes: Collection) -> Collection:
    for number in range(6):
        write(notes, f"text {number}", f"d{number}", tags=["all", f"t{number % 2}"], metadata={"n": number})
    edit_document(notes, "d5", {"state": "archived"})
    return notes


def test_many_are_changed_and_each_is_told(many: Collection) -> None:
    names = ["d0", "d1", "d5", "none", "d0"]
    outcome = change_documents(many, BulkChange("add_tags", tags=("new", "t0")), names)
    assert [(result.doc_id, result.status) for result in outcome.results] == [
        ("d0", "changed"),
        ("d1", "changed"),
        ("d5", "refused"),
        ("none", "unknown"),
    ]
    assert "unarchive it first" in outcome.results[2].error
    assert get_document(many, "d0").tags == ["all", "t0", "new"]
    assert get_document(many, "d1").tags == ["all", "t1", "new", "t0"]
    assert chunks(many, "d1")[0].tags == ["all", "t1", "new", "t0"]
    assert outcome.counts == {"changed": 2, "refused": 1, "unknown": 1}
    again = change_documents(many, BulkChange("add_tags", tags=("new",)), ["d0"])
    assert again.counts == {"unchanged": 1}
    change_documents(many, BulkChange("remove_tags", tags=("new", "all")), ["d0"])
    assert get_document(many, "d0").tags == ["t0"]


def test_a_field_is_set_on_all_or_where_it_is(many: Collection) -> None:
    change_documents(many, BulkChange("set_metadata", key="team", value={"a": [1]}), ["d0"])
    names = ["d0", "d1"]
    outcome = change_documents(many, BulkChange("set_metadata", key="team", value=2, only_existing=True), names)
    assert [result.status for result in outcome.results] == ["changed", "unchanged"]
    assert get_document(many, "d0").metadata == {"n": 0, "team": 2}
    change_documents(many, BulkChange("set_metadata", key="team", value=3), names)
    assert [get_document(many, name).metadata["team"] for name in names] == [3, 3]
    change_documents(many, BulkChange("remove_metadata", key="team"), names)
    assert chunks(many, "d0")[0].metadata == {"n": 0}
    change_documents(many, BulkChange("set_metadata", key="page", value="4"), names)
    assert chunks(many, "d1")[0].metadata == {"n": 1, "page": "4"}
    for change in (BulkChange("set_metadata"), BulkChange("add_tags"), BulkChange("paint")):
        with pytest.raises(InvalidInput):
            change_documents(many, change, names)


def test_what_is_too_much_for_one_holds_up_no_other(many: Collection) -> None:
    edit_document(many, "d0", {"metadata": {"big": "x" * 65_000}})
    outcome = change_documents(many, BulkChange("set_metadata", key="more", value="y" * 1000), ["d0", "d1"])
    assert [(result.status, result.error_type) for result in outcome.results] == [
        ("refused", "invalid_input"),
        ("changed", ""),
    ]


def test_states_move_for_many(many: Collection) -> None:
    everything = [f"d{number}" for number in range(6)]
    assert change_documents(many, BulkChange("disable"), everything).counts == {"changed": 5, "unchanged": 1}
    assert change_documents(many, BulkChange("enable"), everything).counts == {"changed": 5, "refused": 1}
    assert change_documents(many, BulkChange("archive"), everything).counts == {"changed": 5, "unchanged": 1}
    assert change_documents(many, BulkChange("reindex"), everything).counts == {"refused": 6}
    assert change_documents(many, BulkChange("unarchive"), everything).counts == {"changed": 6}
    assert change_documents(many, BulkChange("reindex"), everything).counts == {"queued": 6}
    assert Chunk.objects.of(many).filter(enabled=True).count() == 6
    outcome = change_documents(many, BulkChange("delete"), everything[:2])
    assert outcome.counts == {"deleted": 2}
    assert (outcome.removed["documents"], outcome.removed["chunks"]) == (2, 2)


def test_a_change_of_many_takes_no_more_statements(many: Collection) -> None:
    def statements(names: list[str], tag: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            change_documents(many, BulkChange("add_tags", tags=(tag,)), names)
        return len(queries)

    statements(["d0"], "warm")
    assert statements(["d0"], "one") == statements(["d0", "d1", "d2", "d3", "d4"], "five")


def test_a_filter_chooses_and_counts(many: Collection) -> None:
    change_state(many, ["d4"], "disabled")
    assert choose_matching(many, DocumentFilter()) == ["d0", "d1", "d2", "d3", "d4"]
    assert choose_matching(many, DocumentFilter(state="archived")) == ["d5"]
    assert choose_matching(many, DocumentFilter(state="disabled")) == ["d4"]
    assert choose_matching(many, DocumentFilter(tags=("t1",), state="any")) == ["d1", "d3", "d5"]
    assert choose_matching(many, DocumentFilter(q="d2")) == ["d2"]
    with refuses("conflict", "expected", "5", "3"):
        choose_matching(many, DocumentFilter(), expected=3)
    with pytest.raises(InvalidInput):
        choose_named([str(number) for number in range(10_001)])
    facets = count_facets(many, DocumentFilter(tags=("t0",)))
    assert {facet.value: facet.count for facet in facets["states"]} == {
        "present": 3,
        "enabled": 2,
        "disabled": 1,
        "archived": 0,
        "any": 3,
    }
    assert [(facet.value, facet.count) for facet in facets["tags"]] == [("all", 3), ("t0", 3)]
    assert [(facet.value, facet.count) for facet in facets["media_types"]] == [("text/plain", 3)]


# --- two writers


def test_two_writers_lose_nothing(committed: None, embeddings: OpenAIServer) -> None:
    notes = create_collection(name="notes")
    write(notes, WORDS, tags=["first"])
    works = [
        lambda number=number: change_documents(notes, BulkChange("add_tags", tags=(f"t{number}",)), ["a"])
        for number in range(4)
    ]
    works.append(lambda: edit_document(notes, "a", {"title": "Titled"}))
    call_together(*works)
    document = get_document(notes, "a")
    assert set(document.tags) == {"first", "t0", "t1", "t2", "t3"}
    assert (document.title, document.revision) == ("Titled", 6)
    rows = DocumentRevision.objects.of_document(notes.pk, "a").values_list("revision", flat=True)
    assert list(rows) == [5, 4, 3, 2, 1]
    assert {(tuple(chunk.tags), chunk.revision, chunk.context) for chunk in chunks(notes)} == {
        (tuple(document.tags), 6, "Titled")
    }


def test_a_new_index_version_keeps_a_documents_own_policy(
    notes: Collection, django_capture_on_commit_callbacks: Any
) -> None:
    from collections_app.index.services import start_index_version

    ingest_text(notes, "a", WORDS)
    ingest_text(notes, "b", WORDS)
    edit_document(notes, "a", {"chunk_policy": {"target_tokens": 4, "overlap_tokens": 0}})
    before = revision_chunks(get_document(notes, "b"), 1)
    edit_document(notes, "b", {"tags": ["x"]})
    with django_capture_on_commit_callbacks(execute=True):
        start_index_version(notes, {"chunk_policy": SMALL})
    notes.refresh_from_db()
    assert len(before) == 1 and revision_chunks(get_document(notes, "b"), 1) == before
    assert [place.end for place in revision_places(get_document(notes, "b"), 1)] == [len(WORDS)]
    assert notes.index_version == 2
    assert (len(chunks(notes, "a")), len(chunks(notes, "b"))) == (4, 2)
    assert {chunk.revision for chunk in chunks(notes, "a") + chunks(notes, "b")} == {2}
    assert get_document(notes, "a").chunk_policy["target_tokens"] == 4
    assert edit_document(notes, "a", {"chunk_policy": {}}).chunk_count == 2
