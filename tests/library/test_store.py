from __future__ import annotations

from typing import Any

import pytest

from ragd.errors import DimensionMismatch, InvalidInput, UnknownCollection, UnsupportedDatabase
from ragd.store.indexing import index
from ragd.store.store import Store, bake_length, fetch_all
from ragd.store.tables import check_database, create_collection, drop_collection
from ragd.types import ChunkPolicy
from tests.builders import WordEmbedder, make_chunks
from tests.refusals import raises_with


def test_a_store_knows_its_collection(connection: Any) -> None:
    policy = ChunkPolicy(target_tokens=100, overlap_tokens=10)
    made = create_collection(
        connection, name="a b/ç", embed_model="words", embed_dims=8, language="german", policy=policy
    )
    info = Store(connection, "a b/ç", WordEmbedder(8)).collection
    assert (info.id, info.embed_dims, info.language, info.policy) == (made, 8, "german", policy)
    assert Store(connection, made).collection == info


def test_the_embedder_must_be_the_collections_own(connection: Any) -> None:
    create_collection(connection, name="c", embed_model="words", embed_dims=8)
    with pytest.raises(DimensionMismatch, match="8 dimensions"):
        Store(connection, "c", WordEmbedder(9))
    with pytest.raises(InvalidInput, match="'words', not 'other'"):
        Store(connection, "c", WordEmbedder(8, "other"))
    with pytest.raises(UnknownCollection, match="'d'"):
        Store(connection, "d")


@pytest.mark.parametrize(
    ("values", "field"), [({"embed_dims": 4001}, "embed_dims"), ({"language": "klingon"}, "language")]
)
def test_impossible_collections_are_refused(connection: Any, values: dict[str, Any], field: str) -> None:
    with raises_with(InvalidInput, field=field):
        create_collection(connection, **{"name": "x", "embed_model": "m", "embed_dims": 8} | values)


def test_dropping_a_collection_leaves_nothing(make_store: Any, connection: Any) -> None:
    kept, gone = make_store("kept"), make_store("gone")
    for store in (kept, gone):
        index(make_chunks("a", "one", "two") + make_chunks("b", "three"), store)
    assert drop_collection(connection, gone.collection.id) == {"documents": 2, "chunks": 3}
    for table in ("chunks", "documents", "chunk_stats", "chunk_terms"):
        rows = fetch_all(connection, f"SELECT count(*) FROM {table} WHERE collection_id = {gone.collection.id:d}")
        assert rows == [(0,)]
    assert fetch_all(connection, f"SELECT to_regclass('{gone.collection.partition}')") == [(None,)]
    assert kept.statistics()["chunks"] == 3


def test_statistics_count_what_is_there(make_store: Any) -> None:
    store = make_store()
    index(make_chunks("a", "one two", "three") + make_chunks("b", "four"), store)
    found = store.statistics()
    assert (found["documents"], found["chunks"], found["tokens"], found["disabled_chunks"]) == (2, 3, 4, 0)
    assert found["vector_index"] == "none" and found["bytes"] > 0


def test_lengths_are_baked_on_a_grid_that_only_depends_on_the_mean() -> None:
    assert bake_length(0) == 1.0
    for mean in (0.5, 1, 3.3, 100, 101, 5000):
        assert bake_length(mean) == pytest.approx(mean, rel=0.025)
    assert bake_length(100.0) == bake_length(100.5)


class OldServer:
    """A server that answers the version query as an older one would."""

    def __init__(self, *row: Any) -> None:
        self.row = row

    def cursor(self) -> OldServer:
        return self

    def execute(self, *_: Any) -> None: ...

    def fetchall(self) -> list[Any]:
        return [self.row]

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((160004, "16.4", "0.8.0", "0.8.0"), "PostgreSQL 17 or newer.*16.4"),
        ((170002, "17.2", None, None), "does not have it"),
        ((180001, "18.1", "0.7.4", "0.8.0"), "0.8.4 or newer.*0.7.4"),
        ((180001, "18.1", "0.8.3", "0.8.5"), "0.8.4 or newer.*0.8.3"),
    ],
)
def test_an_older_database_is_refused_with_what_was_found(row: tuple[Any, ...], words: str) -> None:
    with pytest.raises(UnsupportedDatabase, match=words):
        check_database(OldServer(*row))


def test_this_database_is_new_enough(connection: Any) -> None:
    check_database(connection)
