"""Chunks that deserve a look, over a whole collection.
What differs between two lists of chunks: aligned by content, words marked, equal runs folded.
Text put together from its chunks, and compared under two cuts."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from collections_app.chunks import outliers as service
from collections_app.chunks.edits import add_chunk, edit_chunk
from collections_app.chunks.outliers import Outliers, find_outliers, last_scan, scan_duplicates, shared_words
from collections_app.chunks.overlays import flags_of, limits_of
from collections_app.chunks.preview import ChunkSpan, compare_pieces, join_chunks
from collections_app.collections.services import create_collection
from collections_app.documents.revisions.differences import (
    COMPARISONS_MAX,
    Aligner,
    FieldChange,
    Part,
    compare_chunks,
    compare_fields,
    mark_words,
)
from collections_app.documents.revisions.services import RevisionChunk
from collections_app.documents.services import delete_documents, ingest_text
from collections_app.models import Collection, NearDuplicate
from ragd.store.store import execute, fetch_all
from ragd.store.tables import LETTERLESS
from ragd.text.chunking import chunk
from ragd.types import ChunkPolicy
from tests.fakes.openai_server import OpenAIServer

SPEECH = " ".join(f"word{number} follows word{number - 1}" for number in range(1, 60))
POLICY = ChunkPolicy(target_tokens=200, overlap_tokens=0)


def find(collection: Collection, flag: str = "", **page: int) -> Outliers:
    found = find_outliers(collection, flag, **page)
    assert found is not None
    return found


def flags(collection: Collection, flag: str = "") -> dict[tuple[str, int], tuple[str, ...]]:
    return {(each.doc_id, each.chunk_index): each.flags for each in find(collection, flag).rows}


def test_each_flag_is_counted_and_listed(notes: Collection) -> None:
    ingest_text(notes, "usual", SPEECH)
    ingest_text(notes, "short", "Hello.")
    ingest_text(notes, "numbers", " ".join(map(str, range(40))))
    ingest_text(notes, "japanese", "これは日本語の文章で、空白がありません。" * 12)
    add_chunk(notes, "usual", "word " * 700)
    assert flags(notes) == {("short", 0): ("short",), ("numbers", 0): ("no_letters",), ("usual", 1): ("long",)}
    counts = find(notes).counts
    assert (counts.chunks, counts.any) == (5, 3)
    assert counts.by_flag == {"short": 1, "long": 1, "no_letters": 1, "duplicate": 0}
    assert set(flags(notes, "long")) == {("usual", 1)}
    assert [each.doc_id for each in find(notes, offset=1, limit=1).rows] == ["short"]


def test_an_index_knows_the_chunks_without_letters_and_one_deleted_meanwhile_is_left_out(
    notes: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for doc_id in ("a", "b"):
        ingest_text(notes, doc_id, " ".join(map(str, range(40))), metadata={"page": "7"})
    sql = service.FOUND.format(table=notes.chunks_table, letterless=LETTERLESS, condition="true")
    execute(connection, "SET LOCAL enable_seqscan = off")
    plan = fetch_all(connection, f"EXPLAIN {sql}", service._scope(notes) | {"offset": 0, "limit": 9})
    assert any(f"{notes.chunks_table}_letterless" in line for (line,) in plan)
    monkeypatch.setattr(service, "EXCERPTS", f"{service.EXCERPTS} AND doc_id <> 'b'")
    assert [(each.doc_id, each.page, each.flags) for each in find(notes).rows] == [("a", "7", ("no_letters",))]


def test_the_rule_of_one_chunk_is_that_of_the_collection(notes: Collection) -> None:
    texts = ["Hello.", "— 12 —", SPEECH, "word " * 590, "é", "Ω", "٣", "ab" * 200, "one two three four five"]
    for number, text in enumerate(texts):
        ingest_text(notes, f"d{number}", text)
    limits = limits_of(ChunkPolicy(), None)
    found = flags(notes)
    for number, text in enumerate(texts):
        assert found.get((f"d{number}", 0), ()) == tuple(flags_of(text.strip(), limits)), text


def test_near_duplicates_are_found_and_told_apart_from_what_is_only_alike(notes: Collection) -> None:
    ingest_text(notes, "a", SPEECH)
    ingest_text(notes, "b", SPEECH.upper() + "!")
    ingest_text(notes, "c", SPEECH.replace("word30 ", "another "))
    ingest_text(notes, "d", " ".join(reversed(SPEECH.split())))
    scan = scan_duplicates(notes)
    assert (scan.findings, scan.report) == (2, {"chunk_count": 4, "complete": True, "error": ""})
    found = {row.doc_id: (row.of_doc_id, row.of_chunk_index, row.share) for row in NearDuplicate.objects.all()}
    assert found["b"] == ("a", 0, 1.0)
    assert found["c"][:2] == ("a", 0)
    assert 0.8 <= found["c"][2] < 1
    assert set(flags(notes, "duplicate")) == {("b", 0), ("c", 0)}
    assert last_scan(notes) == scan


def test_what_changed_since_the_scan_is_no_duplicate_any_more(notes: Collection) -> None:
    ingest_text(notes, "a", SPEECH)
    ingest_text(notes, "b", SPEECH)
    scan_duplicates(notes)
    assert set(flags(notes)) == {("b", 0)}
    edit_chunk(notes, "b", 0, "Something else is said here, in a few more words than five.")
    assert flags(notes, "duplicate") == {}
    delete_documents(notes, ["b"])
    assert scan_duplicates(notes).findings == 0


def test_a_collection_without_lexical_index_finds_equal_texts(db: None, embeddings: OpenAIServer) -> None:
    plain = create_collection(name="plain", hybrid_enabled=False)
    ingest_text(plain, "a", SPEECH)
    ingest_text(plain, "b", SPEECH.upper())
    ingest_text(plain, "c", SPEECH.replace("word30 ", "another "))
    assert scan_duplicates(plain).findings == 1


def test_too_slow_is_told_and_loses_nothing(notes: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest_text(notes, "a", SPEECH)
    ingest_text(notes, "b", SPEECH)
    scan_duplicates(notes)
    monkeypatch.setattr(service, "CANDIDATES", "SELECT pg_sleep(5)")
    scan = scan_duplicates(notes, timeout_s=1)
    assert (scan.report["complete"], scan.findings) == (False, 1)
    assert "in 1 seconds" in scan.report["error"]
    monkeypatch.setattr(service, "FOUND", "SELECT pg_sleep(5)")
    monkeypatch.setattr(service, "COUNT_TIMEOUT_S", 1)
    assert find_outliers(notes) is None


@given(st.text(max_size=80), st.text(max_size=80))
def test_shared_words_is_a_symmetric_share(one: str, other: str) -> None:
    share = shared_words(one, other)
    assert 0 <= share <= 1
    assert share == shared_words(other, one)
    assert shared_words(one, one) == 1


def test_a_chunk_that_the_embedder_does_not_see_whole_is_too_long() -> None:
    limits = limits_of(ChunkPolicy(target_tokens=600), window=256)
    assert flags_of("word " * 160, limits) == []
    assert flags_of("word " * 161, limits) == ["long"]
    assert flags_of("word " * 600, limits_of(ChunkPolicy(target_tokens=600), None)) == []


TEXTS = st.lists(st.sampled_from(["one", "two three", "# Title", "a. b. c.", "x" * 9]), max_size=20).map("\n\n".join)


@given(TEXTS, st.integers(2, 9))
def test_joined_chunks_are_the_text_but_for_white_space(text: str, target: int) -> None:
    cut = chunk(text, ChunkPolicy(target_tokens=target, overlap_tokens=1))
    joined = join_chunks([(item.start, item.content) for item in cut])
    assert joined.split() == text.split()
    begin = cut[0].start if cut else 0
    for item in cut:
        assert joined[item.start - begin : item.end - begin] == item.content


@given(TEXTS, st.integers(2, 9), st.integers(2, 9))
def test_compared_pieces_are_the_text_with_every_edge(text: str, one: int, other: int) -> None:
    then = chunk(text, ChunkPolicy(target_tokens=one, overlap_tokens=1))
    now = chunk(text, ChunkPolicy(target_tokens=other, overlap_tokens=0))
    spans = [[ChunkSpan(item.chunk_index, item.start, item.end) for item in cut] for cut in (then, now)]
    pieces = compare_pieces(text, 0, *spans)
    assert "".join(piece.text for piece in pieces) == text
    assert [index for piece in pieces for index in piece.begins] == [item.chunk_index for item in then]
    assert sum(piece.began for piece in pieces) == len(now)
    starts = {item.start for item in now}
    assert sum(piece.same for piece in pieces) == sum(item.start in starts for item in then)


def chunks(*contents: str, context: str = "") -> list[RevisionChunk]:
    return [RevisionChunk(number, 0, 0, content, context, True) for number, content in enumerate(contents)]


def told(before: list[str], after: list[str]) -> list[tuple[str, int | None, int | None, int]]:
    found = compare_chunks(chunks(*before), chunks(*after))
    return [
        (each.kind, each.before.index if each.before else None, each.after.index if each.after else None, each.count)
        for each in found.changes
    ]


def test_equal_runs_are_folded_around_what_changed() -> None:
    before = ["one", "two", "three words here", "four", "five"]
    after = ["one", "two", "three words there", "four", "five", "six"]
    assert told(before, after) == [("same", 0, 0, 2), ("changed", 2, 2, 1), ("same", 3, 3, 2), ("added", None, 5, 1)]
    found = compare_chunks(chunks(*before), chunks(*after))
    assert found.counts == {"same": 4, "changed": 1, "added": 1, "removed": 0}
    assert not found.is_same
    assert compare_chunks(chunks(*before), chunks(*before)).is_same


def test_what_shares_too_few_words_is_removed_and_added() -> None:
    assert told(["a b c"], ["x y z"]) == [("removed", 0, None, 1), ("added", None, 0, 1)]
    assert told([], ["x"]) == [("added", None, 0, 1)]
    assert told(["x"], []) == [("removed", 0, None, 1)]
    assert told([], []) == []


def test_a_chunk_put_in_between_moves_no_other() -> None:
    before = ["a a a", "b b b", "c c c"]
    assert told(before, ["a a a", "new words", "b b b", "c c c"]) == [
        ("same", 0, 0, 1),
        ("added", None, 1, 1),
        ("same", 1, 2, 2),
    ]


def test_repeated_chunks_are_aligned_at_the_ends() -> None:
    assert told(["x", "x", "x"], ["x", "x"]) == [("same", 0, 0, 2), ("removed", 2, None, 1)]


def test_the_most_alike_are_paired() -> None:
    before = ["the cat sat on a mat", "birds fly over the sea"]
    after = ["birds fly over the lake", "the cat sat on a hat"]
    kinds = [kind for kind, *_ in told(before, after)]
    assert kinds.count("changed") == 1  # of a crossing pair only one can stay in order
    assert told(before, [after[1]]) == [("changed", 0, 0, 1), ("removed", 1, None, 1)]


def test_another_context_is_a_change_of_the_chunk() -> None:
    (change,) = compare_chunks(chunks("text", context="Old"), chunks("text", context="New")).changes
    assert change.kind == "changed"
    assert change.context_parts() == [Part("removed", "Old"), Part("added", "New")]
    assert change.parts() == [Part("same", "text")]


def test_long_documents_are_compared_in_bounded_steps() -> None:
    before = [f"text {number} one" for number in range(30_000)]
    after = [f"text {number} two" for number in range(30_000)]
    aligner = Aligner(before, after)
    pairs = aligner.align()
    assert aligner.by_order
    assert aligner.comparisons <= COMPARISONS_MAX
    assert pairs == [(number, number) for number in range(30_000)]
    after = [text if number % 3 else f"{text} more" for number, text in enumerate(before)]
    aligner = Aligner(before, after)
    assert aligner.align() == [(number, number) for number in range(30_000)]
    assert not aligner.by_order


words = st.lists(st.sampled_from(["a", "b", "c d", "e f g", "h\n"]), max_size=12)


@given(words, words)
def test_an_alignment_names_everything_once_and_in_order(before: list[str], after: list[str]) -> None:
    pairs = Aligner(before, after).align()
    olds = [old for old, _ in pairs if old is not None]
    news = [new for _, new in pairs if new is not None]
    assert olds == list(range(len(before)))
    assert news == list(range(len(after)))
    assert all(old is not None or new is not None for old, new in pairs)


@given(st.text(alphabet="ab \n", max_size=40), st.text(alphabet="ab \n", max_size=40))
def test_marked_words_give_both_texts_again(before: str, after: str) -> None:
    parts = mark_words(before, after)
    assert "".join(part.text for part in parts if part.kind != "added") == before
    assert "".join(part.text for part in parts if part.kind != "removed") == after
    assert all(part.text for part in parts)


def test_texts_of_very_many_words_are_told_whole() -> None:
    before, after = "a " * 3000, "b " * 3000
    assert mark_words(before, after) == [Part("removed", before), Part("added", after)]


def test_fields_are_compared_key_by_key() -> None:
    before: dict[str, Any] = {"title": "A", "metadata": {"n": 1, "gone": True, "same": [1]}}
    after: dict[str, Any] = {"title": "B", "metadata": {"n": 2, "same": [1], "new": None}}
    assert compare_fields(before, after) == [
        FieldChange("metadata.gone", True, None),
        FieldChange("metadata.n", 1, 2),
        FieldChange("metadata.new", None, None),
        FieldChange("title", "A", "B"),
    ]
