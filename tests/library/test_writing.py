from __future__ import annotations

from dataclasses import replace
from typing import Any

from ragd.store import chunk_writer, indexing
from ragd.store.indexing import index
from ragd.store.store import fetch_all
from ragd.types import Chunk
from tests.builders import make_chunks, read

STORED = """
SELECT doc_id, chunk_index, content, tags, metadata::text, token_count, revision, enabled, embedding::text, fts::text,
       lexical::text
FROM chunks WHERE collection_id = %(id)s ORDER BY id
"""
STATS = "SELECT chunk_count, length_total, length_baked FROM chunk_stats WHERE collection_id = %(id)s"
TERMS = "SELECT term, chunk_count FROM chunk_terms WHERE collection_id = %(id)s AND chunk_count <> 0 ORDER BY term"
COUNTS = "SELECT doc_id, chunk_count FROM documents WHERE collection_id = %(id)s ORDER BY doc_id"


def corpus() -> list[list[Chunk]]:
    """Documents whose chunks have very different lengths, repeated words, a title, and one chunk without any word."""
    return [
        make_chunks("long", "whale " * 40 + "sea sea", "fish swim in the sea", context="Ocean life"),
        make_chunks("odd", "...", "Ärger über 中文 it's a/b", tags=("x", 'q"u\\ote'), metadata={"n": [1, {"é": None}]}),
        *[make_chunks(f"d{number}", f"word{number} " * (number + 1), "the fish") for number in range(6)],
    ]


def test_weights_and_words_are_those_that_the_database_computes(make_store: Any) -> None:
    store = make_store()
    index([chunk for document in corpus() for chunk in document], store)
    ((_, _, baked),) = read(store, STATS)
    computed = fetch_all(
        store.connection,
        f"""SELECT context || E'\\n' || content, lexical::text, ragd_bm25(fts, %(baked)s)::text,
                  ARRAY(SELECT lexeme || ' ' || cardinality(positions) FROM unnest(fts))
           FROM {store.collection.partition} WHERE collection_id = %(id)s""",
        {"id": store.collection.id, "baked": baked},
    )
    assert len(computed) == 16
    for _, stored, wanted, _ in computed:
        assert stored == wanted
    words = {text.split("\n")[1]: counted for text, _, _, counted in computed}
    assert words["Ärger über 中文 it's a/b"] == ["a/b 1", "arger 1", "b 1", "uber 1", "ärger 1", "über 1", "中文 1"]
    assert words["whale " * 39 + "whale sea sea"] == ["life 1", "ocean 1", "sea 2", "whale 40"]
    assert words["..."] == []


def test_a_write_in_slices_leaves_what_a_write_at_once_leaves(make_store: Any, monkeypatch: Any) -> None:
    whole, sliced = make_store("whole"), make_store("sliced")
    chunks = [chunk for document in corpus() for chunk in document]
    index(chunks, whole)
    monkeypatch.setattr(indexing, "SLICE", 3)
    monkeypatch.setattr(chunk_writer, "PARSED_AT_ONCE", 2)
    index(chunks, sliced)
    for sql in (STORED, STATS, TERMS, COUNTS):
        assert read(whole, sql) == read(sliced, sql)


def test_one_call_may_write_touch_leave_and_remove(make_store: Any) -> None:
    store, fresh = make_store("changed"), make_store("fresh")
    index(make_chunks("a", "red herring", "blue whale", "green turtle") + make_chunks("b", "left alone"), store)
    after = [*make_chunks("a", "red herring", "blue whale shark"), *make_chunks("b", "left alone"), *corpus()[0]]
    after[0] = replace(after[0], tags=("new",), metadata={"k": "v"})
    assert index(after, store) == {"written": 4, "unchanged": 1, "deleted": 1, "embedded": 3}
    index(after, fresh)
    in_order = STORED.replace("ORDER BY id", "ORDER BY doc_id, chunk_index")
    for sql in (in_order, STATS, TERMS, COUNTS):
        assert read(store, sql) == read(fresh, sql)


def test_rows_carry_the_revision_and_state_of_their_document(make_store: Any) -> None:
    store = make_store()
    index(make_chunks("a", "one"), store)
    fetch_all(
        store.connection,
        "UPDATE documents SET revision = 7, state = 'disabled' WHERE collection_id = %(id)s RETURNING 1",
        {"id": store.collection.id},
    )
    index(make_chunks("a", "one", "two"), store)
    assert [(row[2], row[6], row[7]) for row in read(store, STORED)] == [("one", 7, False), ("two", 7, False)]
