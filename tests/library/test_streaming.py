"""index_stream() against index(): whatever was stored before, both leave the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ragd.errors import DimensionMismatch, EmptyContent, InvalidInput
from ragd.store import indexing
from ragd.store.indexing import index, index_stream
from ragd.store.store import fetch_all
from ragd.text import chunking
from ragd.text.chunking import bind, chunk, iter_bound, iter_chunks
from ragd.types import Chunk, ChunkPolicy, Segment
from tests.builders import make_chunks, read
from tests.refusals import raises_with

STORED = """
SELECT doc_id, chunk_index, content, start_char, end_char, context, tags, metadata::text, token_count, revision,
       enabled, switched_off, embedding::text, fts::text, lexical::text
FROM chunks WHERE collection_id = %(id)s ORDER BY doc_id, chunk_index
"""
IN_ORDER_OF_ID = "SELECT doc_id, chunk_index FROM chunks WHERE collection_id = %(id)s ORDER BY id"
STATS = "SELECT chunk_count, length_total, length_baked FROM chunk_stats WHERE collection_id = %(id)s"
TERMS = "SELECT term, chunk_count FROM chunk_terms WHERE collection_id = %(id)s AND chunk_count <> 0 ORDER BY term"
DOCUMENTS = "SELECT doc_id, tags, chunk_count FROM documents WHERE collection_id = %(id)s ORDER BY doc_id"
NEXT_REVISION = "UPDATE documents SET revision = revision + 1 WHERE collection_id = %(id)s RETURNING 1"
EVERYTHING = (STORED, IN_ORDER_OF_ID, STATS, TERMS, DOCUMENTS)
WORDS = ["whale", "sea", "fish", "herring", "boat", "net", "storm", "mast", "harbour", "gull", "ß", "中文", "don't"]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "PIECE", 3)


def some_chunks(seed: int, size: int, **values: Any) -> list[Chunk]:
    chooser = random.Random(seed)
    return make_chunks(
        "a", *(" ".join(chooser.choices(WORDS, k=chooser.randint(1, 30))) for _ in range(size)), **values
    )


def changed(chunks: list[Chunk], size: int) -> list[Chunk]:
    """Every fourth text is another, every fifth has new tags, every seventh is switched off; cut or grown to a size."""
    made = [*chunks, *some_chunks(99, max(0, size - len(chunks)))][:size]
    for place in range(len(made)):
        content = f"now {place} differs" if place % 4 == 0 else made[place].content
        tags = ("new",) if place % 5 == 0 else made[place].tags
        made[place] = replace(made[place], chunk_index=place, content=content, tags=tags, enabled=place % 7 != 0)
    return made


@pytest.mark.parametrize("sizes", [(0, 1), (0, 10), (10, 10), (10, 4), (4, 10), (9, 3), (10, 1)])
@pytest.mark.parametrize("hybrid", [True, False])
def test_a_stream_leaves_what_a_list_leaves(make_store: Any, sizes: tuple[int, int], hybrid: bool) -> None:
    before, after = some_chunks(1, sizes[0], tags=("t",)), changed(some_chunks(1, sizes[0], tags=("t",)), sizes[1])
    stores = [make_store(name, hybrid_enabled=hybrid) for name in ("listed", "streamed")]
    others = make_chunks("b", "left as it is", "and this too", "whale " * 30)
    for store in stores:
        index([*before, *others], store)
        fetch_all(store.connection, NEXT_REVISION, {"id": store.collection.id})
    counts = index(after, stores[0])
    assert index_stream(iter(after), stores[1]) == counts
    for sql in EVERYTHING:
        assert read(stores[0], sql) == read(stores[1], sql)
    assert len(read(stores[1], STORED)) == sizes[1] + 3
    assert index_stream(iter(after), stores[1]) == {
        "written": 0, "unchanged": sizes[1], "deleted": 0, "embedded": 0
    }  # fmt: skip


def test_new_documents_are_written_without_a_look_for_chunks(make_store: Any) -> None:
    looked, written = make_store("looked"), make_store("written")
    chunks = some_chunks(5, 8)
    insert = "INSERT INTO documents (collection_id, doc_id) VALUES (%(id)s, 'a') RETURNING revision, enabled, 0, access"
    (row,) = fetch_all(written.connection, insert, {"id": written.collection.id})
    assert index_stream(chunks, written, new={"a": row}) == index_stream(chunks, looked)
    for sql in EVERYTHING:
        assert read(looked, sql) == read(written, sql)


def test_what_is_written_anew_is_what_a_fresh_collection_holds(make_store: Any) -> None:
    first, second = make_store("first"), make_store("second")
    chunks = some_chunks(3, 11)
    index(some_chunks(4, 14), first)
    counts = index_stream(chunks, first, anew=True)
    index(chunks, second)
    assert counts == {"written": 11, "unchanged": 0, "deleted": 3, "embedded": 11}
    for sql in EVERYTHING:
        assert read(first, sql) == read(second, sql)
    assert index_stream(chunks, first, anew=True)["written"] == 11
    for sql in EVERYTHING:
        assert read(first, sql) == read(second, sql)


def test_weights_follow_a_mean_length_that_only_the_last_pieces_show(make_store: Any) -> None:
    listed, streamed = make_store("listed"), make_store("streamed")
    chunks = make_chunks("a", *(f"short {number}" for number in range(6)), *("long words " * 50 for _ in range(6)))
    index(chunks, listed)
    index_stream(chunks, streamed)
    for sql in EVERYTHING:
        assert read(listed, sql) == read(streamed, sql)


def test_it_may_be_stopped_between_two_pieces(make_store: Any) -> None:
    store, taken, seen = make_store(), [], []

    def stream() -> Iterator[Chunk]:
        for each in some_chunks(1, 10):
            taken.append(each)
            yield each

    def stop() -> None:
        seen.append(len(taken))
        if len(seen) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        index_stream(stream(), store, between=stop)
    assert seen == [6, 9]


@pytest.mark.parametrize("before", [0, 5])
def test_documents_come_one_after_the_other(make_store: Any, before: int) -> None:
    stores = [make_store(name) for name in ("listed", "streamed")]
    documents = [changed(make_chunks(name, *("whale sea" for _ in range(before))), size)
                 for name, size in (("a", 4), ("b", 1), ("c", 8))]  # fmt: skip
    chunks = [replace(chunk, doc_id=name) for name, made in zip("abc", documents, strict=True) for chunk in made]
    for store in stores:
        index([chunk for name in "abcd" for chunk in make_chunks(name, *["whale sea"] * before)], store)
        fetch_all(store.connection, NEXT_REVISION, {"id": store.collection.id})
    assert index_stream(iter(chunks), stores[1]) == index(chunks[::-1], stores[0])
    for sql in EVERYTHING:
        assert read(stores[0], sql) == read(stores[1], sql)
    assert len(read(stores[1], STORED)) == 13 + before


def test_no_chunks_do_nothing(make_store: Any) -> None:
    store = make_store()
    index(make_chunks("a", "one"), store)
    assert index_stream([], store) == {"written": 0, "unchanged": 0, "deleted": 0, "embedded": 0}
    assert len(read(store, STORED)) == 1


@pytest.mark.parametrize(
    ("wrong", "error", "field"),
    [
        (Chunk("", 4, "x", 0, 1), InvalidInput, "doc_id"),
        (Chunk("b", 4, "x", 0, 1), InvalidInput, "chunk_index"),
        (Chunk("a", 5, "x", 0, 1), InvalidInput, "chunk_index"),
        (Chunk("a", 3, "x", 0, 1), InvalidInput, "chunk_index"),
        (Chunk("a", 4, " \n", 0, 2), EmptyContent, "content"),
        (Chunk("a", 4, "x" * 32_001, 0, 32_001), InvalidInput, "content"),
        (Chunk("a", 4, "x", 0, 1, embedding=[1.0, 2.0]), DimensionMismatch, "embedding"),
    ],
)
def test_bad_chunks_are_refused(make_store: Any, wrong: Chunk, error: type[Any], field: str) -> None:
    store = make_store()
    for write in (index, index_stream):
        with raises_with(error, field=field):
            write([*some_chunks(1, 4), wrong], store)
        assert write is index_stream or read(store, STORED) == []


@pytest.mark.parametrize("kind", ["structure", "words"])
@pytest.mark.parametrize("seed", range(20))
def test_chunks_come_one_by_one_as_they_come_at_once(kind: Any, seed: int) -> None:
    chooser = random.Random(seed)
    marks = ["\n", "\n\n", " ", "\n# Part ", "\n## Sub ", "\n- ", "\n```\n", ". ", " | "]
    text = "".join(chooser.choice(WORDS) + chooser.choice(marks) for _ in range(400))
    policy = ChunkPolicy(kind, target_tokens=12, overlap_tokens=3, max_chars=chooser.choice((60, 400)))
    content: Any = text if seed % 3 else [Segment(part, float(place)) for place, part in enumerate(text.split("\n\n"))]
    pages = [(0, 300, "page 1"), (300, 900, "page 2")]
    facts: Any = {"doc_id": "a", "title": "Part", "tags": ("t",), "metadata": {"k": 1}, "page_map": pages}
    stream = iter_bound(iter_chunks(content, policy), **facts)
    assert next(stream) == bind(chunk(content, policy), **facts)[0]
    assert list(iter_bound(iter_chunks(content, policy), **facts)) == bind(chunk(content, policy), **facts)
    assert list(iter_chunks(content, policy)) == chunk(content, policy)


def test_a_stream_of_chunks_does_not_run_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    new = chunking._new_chunk

    def note(place: int, *rest: Any) -> Chunk:
        made.append(place)
        return new(place, *rest)

    monkeypatch.setattr(chunking, "_new_chunk", note)
    stream = iter_chunks("some words " * 500, ChunkPolicy("words", 10, 0))
    next(stream), next(stream)
    assert made == [0, 1]
    with pytest.raises(InvalidInput):
        iter_bound(stream, doc_id="")
