"""The schema itself refuses what would break a collection: tried by plain SQL, without the library's checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ragd.errors import DimensionMismatch
from ragd.store.indexing import index
from ragd.store.store import Store, execute
from ragd.store.tables import IndexVersionSpec, create_index_version, open_index_version, sqlstate, swap_index_version
from ragd.types import ChunkPolicy
from tests.builders import WordEmbedder, make_chunks

FIRST = IndexVersionSpec("words", 3, True, "english", ChunkPolicy())
SECOND = IndexVersionSpec("other", 5, True, "english", ChunkPolicy())
CHECK, FOREIGN_KEY = "23514", "23503"
INSERT = """
INSERT INTO {table} (collection_id, doc_id, chunk_index, content, embedding)
VALUES ({collection}, '{doc_id}', {number}, 'x', '{vector}')
"""
MakeStore = Callable[..., Store]


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
        self.number = 100
        create_index_version(self.connection, self.id, SECOND.embed_dims)
        self.second = open_index_version(self.connection, self.id, 2, SECOND, WordEmbedder(5, "other"))
        index(make_chunks("a", "the red house"), self.second)

    def table(self, index_version: int) -> str:
        return f"chunks_c{self.id}_g{index_version}"

    def insert(self, table: str, dims: int, doc_id: str = "a") -> None:
        self.number += 1
        values = {"table": table, "collection": self.id, "doc_id": doc_id, "number": self.number}
        execute(self.connection, INSERT.format(**values, vector=[1] * dims))

    def copy(self, table: str, dims: int, doc_id: str) -> None:
        self.number += 1
        row = f"{self.id}\t{doc_id}\t{self.number}\tx\t{[1] * dims}\n"
        cursor = self.connection.cursor()
        with cursor.copy(f"COPY {table} (collection_id, doc_id, chunk_index, content, embedding) FROM STDIN") as copy:
            copy.write(row)

    def hold(self, table: str, dims: int) -> None:
        """The table takes a chunk of so many dimensions with its document, and nothing else."""
        connection = self.connection
        self.insert(table, dims)
        self.copy(table, dims, "a")
        for wrong in {3, 5} - {dims}:
            with refused(connection, CHECK):
                self.insert(table, wrong)
            with refused(connection, CHECK):
                self.copy(table, wrong, "a")
            with refused(connection, CHECK):
                execute(connection, f"UPDATE {table} SET embedding = '{[1] * wrong}' WHERE collection_id = {self.id}")
        with refused(connection, FOREIGN_KEY):
            self.insert(table, dims, "nobody")
        with refused(connection, FOREIGN_KEY):
            self.copy(table, dims, "nobody")
        with refused(connection, FOREIGN_KEY):
            execute(connection, f"UPDATE {table} SET doc_id = 'nobody' WHERE collection_id = {self.id}")


def test_a_vector_of_other_dimensions_and_a_chunk_without_document_are_refused_everywhere(
    make_store: MakeStore,
) -> None:
    tables = Tables(make_store)
    for table, dims in (("chunks", 3), (tables.table(1), 3), (tables.table(2), 5)):
        tables.hold(table, dims)


def test_it_holds_after_the_swap_and_after_the_way_back(make_store: MakeStore) -> None:
    tables = Tables(make_store)
    for number, spec, dims in ((2, SECOND, 5), (1, FIRST, 3), (2, SECOND, 5)):
        swap_index_version(tables.connection, tables.id, number, spec)
        for table, expected in (("chunks", dims), (tables.table(1), 3), (tables.table(2), 5)):
            tables.hold(table, expected)


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
