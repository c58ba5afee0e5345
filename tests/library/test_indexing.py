from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ragd.errors import DimensionMismatch, InvalidInput, QueryVectorError
from ragd.search.retrieval import retrieve
from ragd.store.indexing import delete_document_chunks, embed_chunks, index, index_stream
from ragd.types import Chunk, RetrievePlan
from tests.builders import WordEmbedder, make_chunks, read

ROWS = """
SELECT doc_id, chunk_index, content, start_char, end_char, context, tags, metadata::text, token_count
FROM chunks WHERE collection_id = %(id)s ORDER BY doc_id, chunk_index
"""
STATS = "SELECT chunk_count, length_total FROM chunk_stats WHERE collection_id = %(id)s"
TERMS = """
SELECT term, chunk_count FROM chunk_terms WHERE collection_id = %(id)s AND chunk_count <> 0 ORDER BY term
"""


def test_indexed_rows_hold_what_the_chunks_hold(make_store: Any) -> None:
    store = make_store()
    chunk = Chunk("a/b.md", 0, "Ärger über 中文", 3, 16, ("x", "y'z"), {"page": "p. 1", "n": 2}, "Title")
    assert index([chunk], store) == {"written": 1, "unchanged": 0, "deleted": 0, "embedded": 1}
    assert read(store, ROWS) == [
        ("a/b.md", 0, "Ärger über 中文", 3, 16, "Title", ["x", "y'z"], '{"n": 2, "page": "p. 1"}', 3)
    ]
    assert store.embedder.embedded == ["Title\nÄrger über 中文"]


def test_changed_tags_keep_the_vector_and_are_written(make_store: Any) -> None:
    store = make_store()
    index(make_chunks("a", "one fish"), store)
    store.embedder.embedded.clear()
    counts = index(make_chunks("a", "one fish", tags=("new",), metadata={"k": "v"}), store)
    assert counts == {"written": 1, "unchanged": 0, "deleted": 0, "embedded": 0}
    assert [(row[6], row[7]) for row in read(store, ROWS)] == [(["new"], '{"k": "v"}')]
    assert store.embedder.embedded == []


def test_a_changed_title_is_embedded_again(make_store: Any) -> None:
    store = make_store()
    index(make_chunks("a", "one fish"), store)
    assert index(make_chunks("a", "one fish", context="Fish"), store)["embedded"] == 1


def test_given_vectors_are_used(make_store: Any) -> None:
    store = make_store(dims=3)
    index([replace(make_chunks("a", "x")[0], embedding=[0.5, 0.25, -1.0])], store)
    ((vector,),) = read(store, "SELECT embedding::text FROM chunks WHERE collection_id = %(id)s")
    assert vector == "[0.5,0.25,-1]"
    assert store.embedder.embedded == []


def test_deleting_a_document_takes_its_statistics_along(make_store: Any) -> None:
    store = make_store()
    index(make_chunks("a", "red") + make_chunks("b", "blue", "green"), store)
    assert delete_document_chunks(["b", "missing"], store) == 2
    assert read(store, STATS) == [(1, 1)]
    assert [row[1] for row in read(store, TERMS)] == [1]
    assert delete_document_chunks([], store) == 0


def test_a_collection_without_hybrid_keeps_no_lexical_rows(make_store: Any) -> None:
    store = make_store(hybrid_enabled=False)
    index(make_chunks("a", "red"), store)
    assert read(store, "SELECT fts, lexical FROM chunks WHERE collection_id = %(id)s") == [(None, None)]
    assert read(store, STATS) == [(1, 0)]


VALUES: dict[str, tuple[list[float], type[Exception]]] = {
    "zero": ([0.0] * 8, InvalidInput),
    "NaN": ([float("nan")] + [1.0] * 7, InvalidInput),
    "infinite": ([float("inf")] + [0.0] * 7, InvalidInput),
    "beyond float4": ([1e300] + [0.0] * 7, InvalidInput),
    "overflows when squared": ([1e30] + [0.0] * 7, InvalidInput),
    "vanishes when squared": ([1e-30] + [0.0] * 7, InvalidInput),
    "too long": ([1.0] * 9, DimensionMismatch),
    "empty": ([], DimensionMismatch),
    "nested": ([[1.0]] * 8, DimensionMismatch),  # type: ignore[list-item]
    "words": (["one"] * 8, InvalidInput),  # type: ignore[list-item]
}


@pytest.mark.fault("F2")
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("is_given", [True, False])
def test_a_vector_without_a_cosine_is_refused_and_the_transaction_goes_on(
    make_store: Any, name: str, is_given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    vector, error = VALUES[name]
    store = make_store(dims=8)
    chunks = [replace(make_chunks("bad", "text")[0], embedding=vector if is_given else None)]
    monkeypatch.setattr(store.embedder, "embed", lambda texts: [vector] * len(texts))
    monkeypatch.setattr(store.embedder, "embed_query", lambda text: vector)
    for write in (index, index_stream):
        with pytest.raises(error) as caught:
            write(chunks, store)
        assert (type(caught.value), getattr(caught.value, "field", None)) == (error, "embedding")
        assert read(store, ROWS) == []
    with pytest.raises(QueryVectorError):
        retrieve("text", RetrievePlan(mode="vector"), store)


def test_embed_chunks_reports_progress_and_keeps_order() -> None:
    seen: list[tuple[int, int]] = []
    embedder = WordEmbedder(8)
    chunks = make_chunks("a", "one", "two", "three", "four", "five")
    ready = embed_chunks(chunks, embedder, batch_size=2, on_batch=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 5), (4, 5), (5, 5)]
    assert [list(chunk.embedding) for chunk in ready] == [list(embedder.embed_query(chunk.content)) for chunk in chunks]
    assert [replace(chunk, embedding=None) for chunk in ready] == chunks
