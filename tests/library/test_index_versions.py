"""Index versions of a collection: built beside what serves, swapped, dropped.
The schema itself refuses what would break a collection: tried by plain SQL, without the library's checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from ragd.errors import DimensionMismatch, IndexVersionChanged, InvalidInput, UnknownCollection
from ragd.search.retrieval import retrieve
from ragd.store.indexing import index
from ragd.store.store import Store, execute, fetch_all
from ragd.store.tables import (
    IndexVersionSpec,
    create_index_version,
    drop_index_version,
    index_version_sizes,
    open_index_version,
    sqlstate,
    swap_index_version,
)
from ragd.types import ChunkPolicy, RetrievePlan
from tests.builders import WordEmbedder, make_chunks

SPEC = IndexVersionSpec("other", 16, True, "german", ChunkPolicy(target_tokens=50, overlap_tokens=5))
PLAN = RetrievePlan(k=3)
MakeStore = Callable[..., Store]


def found(store: Store, query: str, **plan: Any) -> list[tuple[str, str]]:
    return [(each.doc_id, each.content) for each in retrieve(query, replace(PLAN, **plan), store)]


def make_second(store: Store, spec: IndexVersionSpec = SPEC) -> Store:
    number = create_index_version(store.connection, store.collection.id, spec.embed_dims)
    return open_index_version(
        store.connection, store.collection.id, number, spec, WordEmbedder(spec.embed_dims, spec.embed_model)
    )


def documents(store: Store) -> list[tuple[Any, ...]]:
    sql = f"SELECT doc_id, chunk_count FROM documents WHERE collection_id = {store.collection.id:d} ORDER BY doc_id"
    return fetch_all(store.connection, sql)


def test_what_is_built_is_seen_by_nobody_before_the_swap(make_store: MakeStore) -> None:
    old = make_store()
    index(make_chunks("a", "the red house", "the blue boat"), old)
    new = make_second(old)
    index(make_chunks("a", "the red house and the blue boat"), new)
    assert found(old, "house") == [("a", "the red house"), ("a", "the blue boat")]
    assert found(Store(old.connection, "notes", WordEmbedder(32)), "boat", mode="lexical") == [("a", "the blue boat")]
    assert found(new, "house") == [("a", "the red house and the blue boat")]
    assert documents(old) == [("a", 2)]
    assert (old.state().chunk_count, new.state().chunk_count) == (2, 1)
    assert (old.statistics()["chunks"], new.statistics()["chunks"]) == (2, 1)


def test_a_swap_changes_rows_and_definition_together(make_store: MakeStore) -> None:
    old = make_store()
    index(make_chunks("a", "the red house", "the blue boat"), old)
    new = make_second(old)
    index(make_chunks("a", "the red house and the blue boat"), new)
    assert swap_index_version(old.connection, old.collection.id, 2, SPEC) == 1
    now = Store(old.connection, "notes", WordEmbedder(16, "other")).collection
    assert (now.index_version, now.embed_model, now.embed_dims, now.language) == (2, "other", 16, "german")
    assert now.policy == SPEC.policy
    rows = fetch_all(old.connection, f"SELECT content FROM {now.partition}")
    assert rows == [("the red house and the blue boat",)]
    # who opened the old one before goes on in it, whole, but may not write any more
    assert found(old, "house") == [("a", "the red house"), ("a", "the blue boat")]
    with pytest.raises(IndexVersionChanged, match="index version 1 of 'notes'"):
        index(make_chunks("b", "new"), old)
    with pytest.raises(IndexVersionChanged, match="index version 2 of 'notes'"):
        index(make_chunks("b", "new"), new)
    assert swap_index_version(old.connection, old.collection.id, 2, SPEC) == 2  # again: nothing happens


def test_the_way_back_and_on_keeps_ids_unique_and_writable(make_store: MakeStore) -> None:
    old = make_store()
    first = IndexVersionSpec("words", 32, True, "english", old.collection.policy)
    index(make_chunks("a", "the red house"), old)
    index(make_chunks("a", "the red house"), make_second(old))
    connection, collection_id = old.connection, old.collection.id
    for number, spec in ((2, SPEC), (1, first), (2, SPEC), (1, first)):
        swap_index_version(connection, collection_id, number, spec)
        store = Store(connection, "notes", WordEmbedder(spec.embed_dims, spec.embed_model))
        index(make_chunks(f"d{number}", f"document of {number}", "the red house"), store)
        assert store.collection.index_version == number
    retired = open_index_version(connection, collection_id, 2, SPEC, WordEmbedder(16, "other"))
    index(make_chunks("late", "written while it does not serve"), retired)
    ids = [row for (row,) in fetch_all(connection, f"SELECT id FROM chunks_c{collection_id:d}_g1")]
    ids += [row for (row,) in fetch_all(connection, f"SELECT id FROM chunks_c{collection_id:d}_g2")]
    assert len(ids) == len(set(ids)) == 7
    assert sorted(index_version_sizes(connection, collection_id)) == [1, 2]
    assert index_version_sizes(connection, collection_id)[2][0] == 4


def test_rows_whose_text_stays_are_enabled_as_their_document_is(make_store: MakeStore) -> None:
    old = make_store()
    own = make_chunks("a", "the red house", "the blue boat")
    chunks = [own[0], replace(own[1], enabled=False)]
    index(chunks, old)
    new = make_second(old)
    index(chunks, new)
    sql = f"UPDATE documents SET state = '{{}}' WHERE collection_id = {old.collection.id:d}"
    for state, served in (("disabled", []), ("enabled", [("a", "the red house")])):
        old.connection.execute(sql.format(state))
        assert index(chunks, new)["written"] == 0
        assert found(new, "house") == served


def test_attaching_reads_no_row(make_store: MakeStore) -> None:
    old = make_store()
    index(make_chunks("a", "x"), old)
    index(make_chunks("a", "x"), make_second(old))
    sql = "SELECT seq_scan + coalesce(idx_scan, 0) FROM pg_stat_xact_all_tables WHERE relname = %(name)s"
    new = {"name": f"chunks_c{old.collection.id:d}_g2"}
    before = fetch_all(old.connection, sql, new)
    swap_index_version(old.connection, old.collection.id, 2, SPEC)
    assert fetch_all(old.connection, sql, new) == before


def test_dropping(make_store: MakeStore) -> None:
    old = make_store()
    index(make_chunks("a", "the red house"), old)
    index(make_chunks("a", "the red house"), make_second(old))
    connection, collection_id = old.connection, old.collection.id
    with pytest.raises(InvalidInput, match="index version 1 "):
        drop_index_version(connection, collection_id, 1)
    swap_index_version(connection, collection_id, 2, SPEC)
    assert (drop_index_version(connection, collection_id, 1), drop_index_version(connection, collection_id, 1)) == (
        True,
        False,
    )
    for table in ("chunk_stats", "chunk_terms"):
        rows = fetch_all(
            connection, f"SELECT DISTINCT index_version FROM {table} WHERE collection_id = {collection_id:d}"
        )
        assert rows == [(2,)], table
    with pytest.raises(IndexVersionChanged, match="index version 1 of 'notes'"):
        retrieve("house", PLAN, old)
    assert create_index_version(connection, collection_id, 16) == 3


def test_what_is_not_there_is_told(make_store: MakeStore) -> None:
    store = make_store()
    with pytest.raises(UnknownCollection):
        create_index_version(store.connection, 123_456_789, 16)
    with pytest.raises(UnknownCollection):
        swap_index_version(store.connection, 123_456_789, 2, SPEC)
    with pytest.raises(IndexVersionChanged, match="no index version 7"):
        swap_index_version(store.connection, store.collection.id, 7, SPEC)
    with pytest.raises(DimensionMismatch, match="16 dimensions"):
        open_index_version(store.connection, "notes", 2, SPEC, WordEmbedder(8, "other"))


def test_the_hash_names_everything_that_decides() -> None:
    changes: list[dict[str, Any]] = [
        {"embed_model": "x"},
        {"embed_dims": 17},
        {"hybrid_enabled": False},
        {"language": "simple"},
        {"policy": ChunkPolicy(target_tokens=51, overlap_tokens=5)},
    ]
    hashes = {SPEC.hash, *(replace(SPEC, **change).hash for change in changes)}
    assert len(hashes) == 6
    assert SPEC.hash == replace(SPEC).hash
    assert [SPEC.shares_vectors(replace(SPEC, **change)) for change in changes] == [False, False, True, True, True]


FIRST = IndexVersionSpec("words", 3, True, "english", ChunkPolicy())
SECOND = IndexVersionSpec("other", 5, True, "english", ChunkPolicy())
CHECK, FOREIGN_KEY = "23514", "23503"


@contextmanager
def refused(connection: Any, code: str) -> Iterator[None]:
    """The statement inside ends with this SQLSTATE; the transaction goes on."""
    execute(connection, "SAVEPOINT refused")
    with pytest.raises(Exception) as caught:
        yield
    execute(connection, "ROLLBACK TO SAVEPOINT refused")
    assert sqlstate(caught.value) == code


class Tables:
    """A collection of 3 dimensions with a second index version of 5, and rows put into them by SQL."""

    def __init__(self, make_store: MakeStore) -> None:
        store = make_store(dims=3)
        self.connection, self.id = store.connection, store.collection.id
        index(make_chunks("a", "the red house"), store)
        create_index_version(self.connection, self.id, SECOND.embed_dims)
        self.second = open_index_version(self.connection, self.id, 2, SECOND, WordEmbedder(5, "other"))
        index(make_chunks("a", "the red house"), self.second)

    def table(self, index_version: int) -> str:
        return f"chunks_c{self.id}_g{index_version}"


def test_an_index_version_serves_only_with_its_own_dimensions(make_store: MakeStore) -> None:
    tables = Tables(make_store)
    with pytest.raises(DimensionMismatch):
        swap_index_version(tables.connection, tables.id, 2, FIRST)
    with refused(tables.connection, CHECK):
        execute(tables.connection, f"UPDATE collections SET embed_dims = 5 WHERE id = {tables.id}")


@pytest.mark.fault("F13")
def test_the_model_stays_while_the_index_version_does(make_store: MakeStore) -> None:
    tables = Tables(make_store)
    with refused(tables.connection, CHECK):
        execute(tables.connection, f"UPDATE collections SET embed_model = 'zzz' WHERE id = {tables.id}")
    same = f"UPDATE collections SET embed_model = embed_model, embed_dims = embed_dims WHERE id = {tables.id}"
    assert execute(tables.connection, same) == 1


def test_a_document_goes_after_its_chunks_and_keeps_its_name(make_store: MakeStore) -> None:
    tables = Tables(make_store)
    connection, scope = tables.connection, f"WHERE collection_id = {tables.id}"
    with refused(connection, FOREIGN_KEY):
        execute(connection, f"DELETE FROM documents {scope}")
    with refused(connection, FOREIGN_KEY):
        execute(connection, f"UPDATE documents SET doc_id = 'b' {scope}")
    with refused(connection, FOREIGN_KEY):
        execute(connection, f"DELETE FROM collections WHERE id = {tables.id}")
    execute(connection, f"DELETE FROM {tables.table(1)} {scope}")
    assert execute(connection, f"UPDATE documents SET doc_id = 'b' {scope}") == 1
    assert execute(connection, f"DELETE FROM documents {scope}") == 1
