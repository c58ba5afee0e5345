"""Chunks that deserve a look, over a whole collection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collections_app.chunks import outliers as service
from collections_app.chunks.edits import add_chunk, edit_chunk
from collections_app.chunks.outliers import Outliers, find_outliers, last_scan, scan_duplicates, shared_words
from collections_app.chunks.overlays import flags_of, limits_of
from collections_app.collections.services import create_collection
from collections_app.documents.services import delete_documents, ingest_text
from collections_app.models import Collection, NearDuplicate
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
