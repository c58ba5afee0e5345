"""The state of a store as one statement reads it, with what a search for words needs.

The store: a connection, one collection and its embedder. Tables are made, and rows written, elsewhere.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeGuard

import psycopg

from ragd.errors import DimensionMismatch, IndexVersionChanged, InvalidInput, UnknownCollection
from ragd.models.folder_embedder import is_sparse_model
from ragd.models.reranking import AnyReranker
from ragd.text.languages import ALL_CONFIGURATIONS, AUTO, configuration_of
from ragd.text.tokens import read_question
from ragd.types import ChunkPolicy, Embedder, Placement, VectorType

STATE = """
SELECT s.chunk_count, s.open_count, s.length_total, s.length_baked,
       EXISTS (SELECT 1 FROM pg_index i WHERE i.indexrelid = to_regclass(%(vector_index)s) AND i.indisvalid),
       to_regclass(%(compact_index)s) IS NOT NULL,
       (SELECT max(d.updated_at) FROM documents d WHERE d.collection_id = s.collection_id){also}
FROM chunk_stats s{held}
WHERE s.collection_id = %(collection_id)s AND s.index_version = %(index_version)s
"""

SEGMENTS = """
ARRAY(SELECT ARRAY[g.id, g.first_id, g.last_id, g.size] FROM chunk_segments g
      WHERE g.collection_id = %(collection_id)s AND g.index_version = %(index_version)s ORDER BY g.last_id)
"""

# A space keeps the marker of a configuration apart from every word that the parser can make. In ragd/schema.sql too.
MARKER = "configuration {}"
RESTRICTED = "restricted "

HELD = """coalesce((SELECT t.chunk_count FROM chunk_terms t WHERE t.collection_id = %(collection_id)s
                AND t.index_version = %(index_version)s AND t.term = ragd_term({text})), 0)"""
# Each configuration with how many open chunks have it, and how many with an access list.
CONFIGURATION_COUNTS = f"""
SELECT name, {HELD.format(text="name || ' ' || replace(%(marker)s, '{}', name)")} AS opened,
       {HELD.format(text="%(restricted)s || name || ' '")} AS restricted
FROM unnest(%(configurations)s::text[]) AS listed (name)
"""  # noqa: S608  (constants of the library)
# Those of a collection whose chunks each name one, with their open chunks, and those that only chunks with an access
# list have. OFFSET 0: read once, however often they are named.
HELD_CONFIGURATIONS = f"""
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(name ORDER BY name COLLATE "C") FILTER (WHERE opened > 0), '{{}}') AS names,
           coalesce(array_agg(opened ORDER BY name COLLATE "C") FILTER (WHERE opened > 0), '{{}}') AS counts,
           coalesce(array_agg(name ORDER BY name COLLATE "C") FILTER (WHERE opened = 0 AND restricted > 0), '{{}}')
               AS restricted
    FROM ({CONFIGURATION_COUNTS} OFFSET 0) AS counted
    OFFSET 0) AS held
"""  # noqa: S608  (constants of the library)
CONFIGURATIONS = {"configurations": "held.names", "counts": "held.counts", "restricted": "held.restricted"}
ONLY_CONFIGURATION = "coalesce(held.names[1], %(configuration)s)"

# The words of a question, by one text search configuration, as JSON.
TERMS = """
(SELECT json_agg(json_build_array(lexeme, term, cardinality(positions), coalesce((
            SELECT t.chunk_count FROM chunk_terms t
            WHERE t.collection_id = %(collection_id)s AND t.index_version = %(index_version)s AND t.term = words.term
        ), 0)) ORDER BY lexeme COLLATE "C")::text
 FROM (SELECT word.lexeme, word.positions, ragd_term({prefix} || word.lexeme) AS term
       FROM unnest(%(units)s::tsvector || to_tsvector(({configuration})::regconfig, %(words)s)) AS word
       OFFSET 0) AS words)
"""
CONFIGURATION = "%(configuration)s"
PLACES_MAX = 255  # of one lexeme, as the database's own parser keeps them
_PLACES = [",".join(map(str, range(1, count + 1))) for count in range(PLACES_MAX + 1)]


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of chunk ids that is packed. size counts the chunks it was made of, the deleted ones too."""

    id: int
    first_id: int
    last_id: int
    size: int


class TermCount(NamedTuple):
    """A lexeme of a question by one configuration, its term, how often the question has it, and how many open chunks of
    that configuration hold it."""

    lexeme: str
    term: int
    repeats: int
    chunks: int
    configuration: str = ""


@dataclass(frozen=True, slots=True)
class StoreState:
    """What changes with every write. open_count: the chunks without an access list, which BM25 counts; length_total:
    their lexemes; documents_changed_at: when a document of the collection last did, None without documents.

    Where they were asked for, else None: segments, oldest first, and of a collection in several languages by name the
    text search configurations of its open chunks, with how many have each, and those that only chunks with an access
    list have; question and, where one configuration reads it, its words.
    """

    chunk_count: int
    open_count: int
    length_total: int
    length_baked: float
    vector_index: bool
    compact_index: bool
    documents_changed_at: datetime | None
    segments: Sequence[Segment] | None = None
    configurations: Mapping[str, int] | None = None
    restricted_configurations: Sequence[str] = ()
    question: str | None = None
    terms: Sequence[TermCount] | None = None


def wanted_for_words(language: str, question: str | None) -> tuple[dict[str, str], dict[str, Any]]:
    """What is read for a search for words in a collection of that language: expressions by their names, in order, and
    their parameters. question: a normalized text, whose words are read where one configuration may read them all."""
    wanted: dict[str, str] = {"segments": SEGMENTS}
    if language != AUTO:
        if question is None or is_sparse_model(language):
            return wanted, {}
        wanted["terms"] = TERMS.format(configuration=CONFIGURATION, prefix="''")
        return wanted, {"configuration": language} | _word_params(question, language)
    wanted |= CONFIGURATIONS
    params: dict[str, Any] = {"configurations": list(ALL_CONFIGURATIONS), "marker": MARKER, "restricted": RESTRICTED}
    if question is not None:
        wanted["terms"] = TERMS.format(configuration=ONLY_CONFIGURATION, prefix=f"{ONLY_CONFIGURATION} || ' '")
        params |= {"configuration": configuration_of("")} | _word_params(question, language)
    return wanted, params


def _word_params(question: str, language: str) -> dict[str, str]:
    words, units = read_question(question, paired=language == AUTO)
    return {"words": words, "units": unit_vector(Counter(units))}


def unit_vector(counts: Mapping[str, int], without_places: Iterable[str] = ()) -> str:
    """A tsvector in which each lexeme has as many places as it is counted; those without places weigh nothing."""
    placed = (f"{quote_lexeme(lexeme)}:{_PLACES[min(count, PLACES_MAX)]}" for lexeme, count in counts.items())
    return " ".join((*placed, *map(quote_lexeme, without_places)))


def quote_lexeme(lexeme: str) -> str:
    escaped = lexeme.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def state_statement(wanted: Mapping[str, str], also: str = "") -> str:
    """also: further expressions, whose values are not read."""
    expressions = "".join(f", {each}" for each in (*wanted.values(), also) if each)
    return STATE.format(also=expressions, held=HELD_CONFIGURATIONS if "configurations" in wanted else "")


def state_of(row: Sequence[Any], wanted: Mapping[str, str], question: str | None) -> StoreState:
    """What a row of that statement says."""
    count, open_count, total, baked, vector_index, compact_index, changed_at, *more = row
    found = dict(zip(wanted, more, strict=False))
    segments = [Segment(*each) for each in found["segments"]] if wanted else None
    names, restricted = found.get("configurations"), found.get("restricted", ())
    configurations = None if names is None else dict(zip(names, found["counts"], strict=True))
    is_single = len(configurations or ()) < 2 and not restricted
    terms = read_terms(found["terms"]) if "terms" in found and is_single else None
    return StoreState(
        count,
        open_count,
        total,
        baked,
        vector_index,
        compact_index,
        changed_at,
        segments,
        configurations,
        restricted,
        question,
        terms,
    )


def read_terms(found: str | None) -> list[TermCount]:
    """What TERMS gives; null where the question has no words."""
    return [TermCount(*each) for each in json.loads(found or "[]")]


VECTOR_INDEX_DIMS = 2000
HALFVEC_INDEX_DIMS = 4000
EXACT_THRESHOLD = 20_000
REBAKE_LIMIT = 20_000

COLLECTION = """
SELECT id, name, embed_model, embed_dims, hybrid_enabled, language, index_version, chunk_policy::text, vector_type,
       CASE WHEN ragd_reads_all(id) THEN NULL ELSE ragd_principals(id) END AS principals,
       CASE WHEN ragd_reads_all(id) THEN NULL
            ELSE ragd_readable_share(format('chunks_c%%s_g%%s', id, index_version), ragd_principals(id)) END,
       coalesce((SELECT s.placement FROM chunk_stats s
                 WHERE s.collection_id = collections.id AND s.index_version = collections.index_version), 'local')
FROM collections
WHERE (deleted_at IS NULL OR %(hidden)s) AND {named} = %(collection)s
"""

COUNT_LENGTHS = """
SELECT token_count, count(*), count(*) FILTER (WHERE NOT enabled) FROM {chunks} GROUP BY token_count
"""
READ_SIZE = "SELECT CASE WHEN ragd_sees_sizes(%(collection_id)s) THEN {size}(%(partition)s::regclass) END"

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
    if isinstance(connection, psycopg.Connection):
        return not issubclass(connection.cursor_factory, psycopg.ClientCursor)
    return getattr(connection, "binds_on_server", False)


@contextmanager
def cursor(connection: Connection, *, binary: bool = False) -> Iterator[Any]:
    """A cursor that is closed at the end, on either kind of connection. binary: results come in binary where they
    can."""
    opened = connection.cursor(binary=True) if binary and binds_on_server(connection) else connection.cursor()
    try:
        yield opened
    finally:
        opened.close()


def array_text(numbers: Iterable[int]) -> str:
    """As the database writes an array, which the driver would write number by number."""
    return f"{{{','.join(map(str, numbers))}}}"


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
    again. `serving` is False for an index version that is being built (ragd.store.tables.open_index_version).
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
        params = {"collection": collection, "hidden": self.hidden and not by_name}
        rows = fetch_all(self.connection, COLLECTION.format(named="name" if by_name else "id"), params)
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

    def count_lengths(self) -> list[tuple[int, int, int]]:
        """(tokens, chunks that have so many, how many of these are disabled), in no order. Tokens are words here."""
        return fetch_all(self.connection, COUNT_LENGTHS.format(chunks=self.collection.partition))

    def statistics(self, lengths: Sequence[tuple[int, int, int]] | None = None) -> dict[str, Any]:
        """Counts of documents, chunks, tokens (words), disabled chunks; bytes on disk, None where chunks may be kept
        from the reader; index state. lengths: what `count_lengths` gave, where it was asked already."""
        params = {"collection_id": self.collection.id, "partition": self.collection.partition}
        size = "citus_total_relation_size" if self.collection.is_distributed else "pg_total_relation_size"
        ((documents,),) = fetch_all(self.connection, COUNT_DOCUMENTS, params)
        lengths = self.count_lengths() if lengths is None else lengths
        chunks, disabled = (sum(each[place] for each in lengths) for place in (1, 2))
        tokens = sum(length * total for length, total, _ in lengths)
        ((size,),) = fetch_all(self.connection, READ_SIZE.format(size=size), params)
        indexed = self.state().vector_index
        return {
            "documents": documents,
            "chunks": chunks,
            "tokens": tokens,
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
