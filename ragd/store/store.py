"""The store: a connection, one collection and its embedder. Tables are made, and rows written, elsewhere."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import psycopg

from ragd.errors import DimensionMismatch, IndexVersionChanged, InvalidInput, UnknownCollection
from ragd.models.reranking import AnyReranker
from ragd.store.state import StoreState, state_of, state_statement, wanted_for_words
from ragd.types import ChunkPolicy, Embedder, Placement, VectorType

VECTOR_INDEX_DIMS = 2000
HALFVEC_INDEX_DIMS = 4000
EXACT_THRESHOLD = 20_000
REBAKE_LIMIT = 20_000

COLLECTION_BY_NAME = """
SELECT id, name, embed_model, embed_dims, hybrid_enabled, language, index_version, chunk_policy::text, vector_type,
       CASE WHEN ragd_reads_all(id) THEN NULL ELSE ragd_principals(id) END AS principals,
       CASE WHEN ragd_reads_all(id) THEN NULL
            ELSE ragd_readable_share(format('chunks_c%%s_g%%s', id, index_version), ragd_principals(id)) END,
       coalesce((SELECT s.placement FROM chunk_stats s
                 WHERE s.collection_id = collections.id AND s.index_version = collections.index_version), 'local')
FROM collections
WHERE (deleted_at IS NULL OR %(hidden)s) AND (name = %(name)s OR id = %(id)s)
"""

STATISTICS = """
SELECT count(*) AS chunks,
       coalesce(sum(token_count), 0) AS tokens,
       count(*) FILTER (WHERE NOT enabled) AS disabled_chunks,
       CASE WHEN ragd_sees_sizes(%(collection_id)s) THEN {size}(%(partition)s::regclass) END AS bytes
FROM {chunks}
"""

COUNT_DOCUMENTS = "SELECT count(*) FROM documents WHERE collection_id = %(collection_id)s"

CREATE_VECTOR_INDEX = """
CREATE INDEX {concurrently} {index} ON {partition} USING hnsw ((embedding::{cast}) {ops})
"""

VECTOR_INDEX_PROGRESS = """
SELECT phase, CASE WHEN tuples_total > 0 THEN tuples_done ELSE blocks_done END,
       CASE WHEN tuples_total > 0 THEN tuples_total ELSE blocks_total END
FROM pg_stat_progress_create_index WHERE relid = to_regclass(%(partition)s)
"""

DROP_INDEX = "DROP INDEX {concurrently} IF EXISTS {index}"

REBAKE = """
UPDATE {chunks} SET lexical = ragd_bm25(fts, %(length_baked)s) WHERE fts IS NOT NULL
"""

SET_BAKED = """
UPDATE chunk_stats SET length_baked = %(length_baked)s
WHERE collection_id = %(collection_id)s AND index_version = %(index_version)s
"""


class Connection(Protocol):
    """A psycopg connection or Django's. The caller owns the transaction."""

    def cursor(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """What is fixed for a collection while one index version serves."""

    id: int
    name: str
    embed_model: str
    embed_dims: int
    hybrid_enabled: bool
    language: str
    index_version: int
    policy: ChunkPolicy
    vector_type: VectorType = "vector"
    placement: Placement = "local"

    @property
    def is_distributed(self) -> bool:
        return self.placement != "local"

    @property
    def partition(self) -> str:
        return partition_name(self.id, self.index_version)

    @property
    def vector_index(self) -> str:
        return f"{self.partition}_embedding"

    @property
    def compact_index(self) -> str:
        return f"{self.partition}_compact"

    @property
    def vector_cast(self) -> str:
        """The type that the HNSW index is over; a query must use the same one."""
        return f"{self._index_type}({self.embed_dims})"

    @property
    def vector_ops(self) -> str:
        """The operator class of that index."""
        return f"{self._index_type}_cosine_ops"

    @property
    def _index_type(self) -> VectorType:
        """More dimensions than an index over `vector` takes are indexed in half precision whatever was chosen."""
        return self.vector_type if self.embed_dims <= VECTOR_INDEX_DIMS else "halfvec"


def partition_name(collection_id: int, index_version: int) -> str:
    return f"chunks_c{collection_id:d}_g{index_version:d}"


def binds_on_server(connection: Connection) -> TypeGuard[psycopg.Connection[Any]]:
    """Whether the driver sends parameters beside the statement, so that values may come and go in binary."""
    return isinstance(connection, psycopg.Connection) and not issubclass(
        connection.cursor_factory, psycopg.ClientCursor
    )


@contextmanager
def cursor(connection: Connection, *, binary: bool = False) -> Iterator[Any]:
    """A cursor that is closed at the end, on either kind of connection. binary: results come in binary where they
    can."""
    opened = connection.cursor(binary=True) if binary and binds_on_server(connection) else connection.cursor()
    try:
        yield opened
    finally:
        opened.close()


def fetch_all(connection: Connection, sql: str, params: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    opened = connection.cursor()
    try:
        opened.execute(sql, params)
        rows: list[tuple[Any, ...]] = opened.fetchall()
        return rows
    finally:
        opened.close()


def execute(connection: Connection, sql: str, params: dict[str, Any] | None = None) -> int:
    """Run one statement; returns the number of rows it touched."""
    with cursor(connection) as open_cursor:
        open_cursor.execute(sql, params)
        return int(open_cursor.rowcount)


def bake_length(mean: float) -> float:
    """The mean length on a grid of 5 % steps: stored BM25 weights are computed with it, so that they stay valid
    while the true mean moves a little, and depend on what is stored, not on the order in which it came."""
    if mean <= 0:
        return 1.0
    return float(1.05 ** round(math.log(mean, 1.05)))


def vector_index_progress(connection: Connection, partition: str) -> tuple[str, int, int] | None:
    """(phase in PostgreSQL's words, done, total) of an index build on the table that runs now, None without one.

    done and total count rows or blocks, as the phase has it; 0 of 0 while it only waits. Another session builds.
    """
    rows = fetch_all(connection, VECTOR_INDEX_PROGRESS, {"partition": partition})
    return (str(rows[0][0]), int(rows[0][1] or 0), int(rows[0][2] or 0)) if rows else None


class Store:
    """One collection in one database, with the embedder that its vectors come from.

    It is a store of one index version, the one that served when it was opened, and reads that one's table by its name:
    a swap meanwhile changes nothing of what it finds. index() then refuses to write (IndexVersionChanged); open it
    again. `serving` is False for an index version that is being built (ragd.store.index_versions.open_index_version).
    `document_states`: doc_id -> (revision, enabled) that index() writes instead of what `documents` says, for a store
    of a past state; None: as `documents` says. `principals`: as whom the connection reads chunks (`ragd.access` in
    schema.sql) where some may be kept from it; None: it reads all. `readable_share`: about which share of the chunks
    that is, 0 to 1; None: all, or not known.

    Needs only `cursor()` of the connection (COPY for writing), never opens, commits or rolls back a transaction.
    exact_threshold: rows up to which plan.exact "auto" scans. rerankers: what plan.rerank may name. hidden: a
    collection that nobody sees, given by its id, may be opened too: one that is filled before it is shown. Raises
    UnknownCollection, DimensionMismatch when the embedder's dims differ, InvalidInput when its model differs.
    """

    def __init__(
        self,
        connection: Connection,
        collection: str | int,
        embedder: Embedder | None = None,
        *,
        exact_threshold: int = EXACT_THRESHOLD,
        rerankers: Mapping[str, AnyReranker] | None = None,
        hidden: bool = False,
    ) -> None:
        self.connection = connection
        self.hidden = hidden
        self.serving = True
        self.document_states: Mapping[str, tuple[int, bool]] | None = None
        self.exact_threshold = exact_threshold
        self.rerankers: Mapping[str, AnyReranker] = dict(rerankers or {})
        self.principals: Sequence[int] | None = None
        self.readable_share: float | None = None
        self.collection = self._load(collection)
        self.embedder: Embedder | None = None
        self.use_embedder(embedder)

    def use_embedder(self, embedder: Embedder | None) -> None:
        """Take another embedder. Raises DimensionMismatch or InvalidInput when it is not the collection's own."""
        if embedder is not None:
            self._check_embedder(embedder)
        self.embedder = embedder

    def _load(self, collection: str | int) -> CollectionInfo:
        by_name = isinstance(collection, str)
        params = {
            "name": collection if by_name else None,
            "id": None if by_name else collection,
            "hidden": self.hidden and not by_name,
        }
        rows = fetch_all(self.connection, COLLECTION_BY_NAME, params)
        if not rows:
            raise UnknownCollection(f"there is no collection {collection!r}; create it first, or check its name")
        (made, name, model, dims, hybrid, language, index_version, policy, vector_type, *readable, placement) = rows[0]
        self.principals, self.readable_share = readable
        return CollectionInfo(
            made,
            name,
            model,
            dims,
            hybrid,
            language,
            index_version,
            ChunkPolicy.from_dict(json.loads(policy)),
            vector_type,
            placement,
        )

    def _check_embedder(self, embedder: Embedder) -> None:
        requested = self.collection
        if embedder.dims != requested.embed_dims:
            raise DimensionMismatch(
                f"collection {requested.name!r} holds vectors of {requested.embed_dims} dimensions, "
                f"the embedder {embedder.model!r} makes {embedder.dims}; use the collection's own model",
                field="embed_dims",
            )
        if embedder.model != requested.embed_model:
            raise InvalidInput(
                f"collection {requested.name!r} was made with {requested.embed_model!r}, not {embedder.model!r}",
                field="embed_model",
            )

    def state(
        self,
        also: str = "",
        values: Mapping[str, Any] | None = None,
        *,
        for_words: bool = False,
        question: str | None = None,
    ) -> StoreState:
        """Row count, lengths and which indexes on vectors are ready, as of now.

        also: a constant of SQL, more expressions over `values` that are computed in the same round trip. for_words:
        what a search for words needs too, with the words of the question, a normalized text, where one is given.
        """
        params: dict[str, Any] = {
            **self.scope,
            "vector_index": self.collection.vector_index,
            "compact_index": self.collection.compact_index,
            **(values or {}),
        }
        wanted, more = wanted_for_words(self.collection.language, question) if for_words else ({}, {})
        rows = fetch_all(self.connection, state_statement(wanted, also), params | more)
        if not rows:
            self._load(self.collection.id)
            raise IndexVersionChanged(
                f"index version {self.collection.index_version} of {self.collection.name!r} was dropped; open the store"
                " again"
            )
        return state_of(rows[0], wanted, question)

    @property
    def scope(self) -> dict[str, int]:
        """The parameters collection_id and index version."""
        return {"collection_id": self.collection.id, "index_version": self.collection.index_version}

    def statistics(self) -> dict[str, Any]:
        """Counts of documents, chunks, tokens (words), disabled chunks; bytes on disk, None where chunks may be kept
        from the reader; index state."""
        params = {"collection_id": self.collection.id, "partition": self.collection.partition}
        size = "citus_total_relation_size" if self.collection.is_distributed else "pg_total_relation_size"
        sql = STATISTICS.format(chunks=self.collection.partition, size=size)
        ((documents,),) = fetch_all(self.connection, COUNT_DOCUMENTS, params)
        ((chunks, tokens, disabled, size),) = fetch_all(self.connection, sql, params)
        indexed = self.state().vector_index
        return {
            "documents": documents,
            "chunks": chunks,
            "tokens": int(tokens),
            "disabled_chunks": disabled,
            "bytes": size,
            "vector_index": "ready" if indexed else "none",
            "exact_threshold": self.exact_threshold,
        }

    def build_vector_index(self, *, concurrently: bool = False) -> bool:
        """Build the HNSW index when there is none; returns whether it was built.

        The compact index goes then, where searches no longer compare all vectors. concurrently needs a connection in
        autocommit mode; reads and writes go on meanwhile. A broken index left by an interrupted build is dropped first.
        """
        state = self.state()
        if state.vector_index:
            return False
        names = {
            "concurrently": "CONCURRENTLY" if concurrently else "",
            "partition": self.collection.partition,
            "index": self.collection.vector_index,
            "cast": self.collection.vector_cast,
            "ops": self.collection.vector_ops,
        }
        execute(self.connection, DROP_INDEX.format(**names))
        execute(self.connection, CREATE_VECTOR_INDEX.format(**names))
        if state.chunk_count > self.exact_threshold:
            execute(self.connection, DROP_INDEX.format(**names | {"index": self.collection.compact_index}))
        return True
