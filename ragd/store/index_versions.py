"""Index versions: a table of chunks is built beside the one that serves, and swapped in whole.

    number = create_index_version(connection, collection_id, spec.embed_dims)
    store = open_index_version(connection, "notes", number, spec, embedder)
    index(chunks, store)                                        # as often as it takes; searches see nothing of it
    swap_index_version(connection, collection_id, number, spec)    # searches see all of it
    drop_index_version(connection, collection_id, 1)               # or swap back

The caller owns the transactions, keeps the spec of each index version, and writes what changed meanwhile.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from typing import Any

from ragd.errors import DimensionMismatch, IndexVersionChanged, InvalidInput, RagdError, UnknownCollection
from ragd.normalization import UNICODE_VERSION
from ragd.store.analysis import ANALYSIS_VERSION
from ragd.store.placement import bytes_on_nodes, choose_placement
from ragd.store.store import EXACT_THRESHOLD, Connection, Store, execute, fetch_all, partition_name
from ragd.store.tables import (
    ATTACH_PARTITION,
    DROP_PARTITION,
    INSERT_STATS,
    create_partition,
    run_statements,
)
from ragd.types import SPEC_VERSION, ChunkPolicy, Embedder, VectorType, canonical_json

LOCK_TIMEOUT_MS = 300
SWAP_ATTEMPTS = 3
SWAP_PAUSE_S = 0.05
LOCK_NOT_AVAILABLE = "55P03"

PAST_FIRST = 1_000_000_000  # numbers from here on name tables of a past state, which never serve

NEXT_NUMBER = """
SELECT greatest(c.index_version, (
    SELECT max(index_version) FROM chunk_stats WHERE collection_id = c.id AND index_version < %(past_first)s)) + 1,
    (SELECT placement FROM chunk_stats WHERE collection_id = c.id AND index_version = c.index_version)
FROM collections c WHERE c.id = %(collection_id)s AND c.deleted_at IS NULL
"""

# NO KEY UPDATE lets foreign keys to the row be checked meanwhile, and makes writers that hold it FOR SHARE wait.
LOCK_COLLECTION = """
SELECT index_version FROM collections WHERE id = %(collection_id)s AND deleted_at IS NULL FOR NO KEY UPDATE
"""

LOCK_INDEX_VERSIONS = """
SELECT index_version, placement FROM chunk_stats
WHERE collection_id = %(collection_id)s AND index_version IN (%(old)s, %(new)s)
ORDER BY index_version FOR UPDATE
"""

DIMS_CHECK = """
SELECT pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = to_regclass(%(partition)s) AND conname = %(partition)s || '_dims'
"""

DETACH_PARTITION = """
ALTER TABLE chunks DETACH PARTITION {partition};
ALTER TABLE {partition} ALTER id SET DEFAULT nextval(pg_get_serial_sequence('chunks', 'id'));
"""

SET_LOCK_TIMEOUT = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %(timeout)s, true)"
SAVEPOINT = "SAVEPOINT ragd_swap"
ROLLBACK_TO = "ROLLBACK TO SAVEPOINT ragd_swap"
RELEASE = "RELEASE SAVEPOINT ragd_swap"

MARK_SERVING = """
UPDATE chunk_stats SET serving = (index_version = %(new)s)
WHERE collection_id = %(collection_id)s AND index_version IN (%(old)s, %(new)s)
"""

SERVE = """
UPDATE collections
SET index_version = %(new)s, embed_model = %(embed_model)s, embed_dims = %(embed_dims)s,
    hybrid_enabled = %(hybrid_enabled)s, language = %(language)s, chunk_policy = %(chunk_policy)s::jsonb,
    vector_type = %(vector_type)s, updated_at = now()
WHERE id = %(collection_id)s
"""

PLACEMENT = (
    "SELECT placement FROM chunk_stats WHERE collection_id = %(collection_id)s AND index_version = %(index_version)s"
)

FORGET = (
    "DELETE FROM chunk_terms WHERE collection_id = %(collection_id)s AND index_version = %(index_version)s",
    "DELETE FROM chunk_stats WHERE collection_id = %(collection_id)s AND index_version = %(index_version)s",
)

SIZES = """
SELECT s.index_version, CASE WHEN ragd_sees_sizes(s.collection_id) THEN s.chunk_count ELSE s.open_count END,
       to_regclass('chunks_c' || s.collection_id || '_g' || s.index_version)::text,
       pg_total_relation_size(to_regclass('chunks_c' || s.collection_id || '_g' || s.index_version)),
       ragd_sees_sizes(s.collection_id)
FROM chunk_stats s WHERE s.collection_id = %(collection_id)s
"""


class SwapBlocked(RagdError):
    """Something kept using the tables for longer than the swap may hold up searches; try again in a moment."""


@dataclass(frozen=True, slots=True)
class IndexVersionSpec:
    """Everything that decides the chunks and vectors of an index version, besides the documents."""

    embed_model: str
    embed_dims: int
    hybrid_enabled: bool
    language: str
    policy: ChunkPolicy
    vector_type: VectorType = "vector"

    def as_dict(self) -> dict[str, Any]:
        """Canonical JSON form; spec_version stands for the code: normalization, chunking, lexical weights.

        "analysis" is there where there is a lexical index: the version of what makes lexemes of texts.
        """
        lexical = {"analysis": ANALYSIS_VERSION} if self.hybrid_enabled else {}
        return lexical | {
            "spec_version": SPEC_VERSION,
            "unicode": UNICODE_VERSION,
            "embed_model": self.embed_model,
            "embed_dims": self.embed_dims,
            "hybrid_enabled": self.hybrid_enabled,
            "language": self.language,
            "policy": self.policy.as_dict(),
            "vector_type": self.vector_type,
        }

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of the canonical JSON form. Same hash and same documents: same chunks, by the same model."""
        return hashlib.sha256(canonical_json(self.as_dict()).encode()).hexdigest()

    def shares_vectors(self, other: IndexVersionSpec) -> bool:
        """Whether an equal text has an equal vector in both."""
        return (self.embed_model, self.embed_dims) == (other.embed_model, other.embed_dims)


def create_index_version(
    connection: Connection,
    collection_id: int,
    embed_dims: int,
    number: int | None = None,
    placement: str | None = None,
) -> int:
    """Make the empty, detached table of a new index version; returns its number (default: one more than the highest).

    placement: as for a collection; None: that of the index version that serves. It takes vectors of embed_dims
    dimensions, and may serve only as an index version of so many. A taken number raises the
    driver's error for a table that exists. Raises UnknownCollection.
    """
    rows = fetch_all(connection, NEXT_NUMBER, {"collection_id": collection_id, "past_first": PAST_FIRST})
    if not rows:
        raise UnknownCollection(f"there is no collection {collection_id}; it was deleted")
    chosen = int(rows[0][0]) if number is None else number
    where = choose_placement(connection, placement or rows[0][1])
    create_partition(connection, collection_id, chosen, embed_dims, where)
    stats = {"collection_id": collection_id, "index_version": chosen, "serving": False, "placement": where}
    execute(connection, INSERT_STATS, stats)
    return chosen


def open_index_version(
    connection: Connection,
    collection: str | int,
    number: int,
    spec: IndexVersionSpec,
    embedder: Embedder | None = None,
    *,
    exact_threshold: int = EXACT_THRESHOLD,
    hidden: bool = False,
) -> Store:
    """The store of an index version that does not serve, to be written and searched like any other.

    What index() writes changes no row of `documents`, which tell of the index version that serves; a document that
    `documents` does not have is added there. Once the index version serves, index() refuses (IndexVersionChanged).
    hidden: as for a Store. Raises UnknownCollection, and for an embedder that is not the spec's DimensionMismatch or
    InvalidInput.
    """
    store = Store(connection, collection, exact_threshold=exact_threshold, hidden=hidden)
    store.serving = False
    placed = fetch_all(connection, PLACEMENT, {"collection_id": store.collection.id, "index_version": number})
    store.collection = replace(
        store.collection,
        index_version=number,
        embed_model=spec.embed_model,
        embed_dims=spec.embed_dims,
        hybrid_enabled=spec.hybrid_enabled,
        vector_type=spec.vector_type,
        language=spec.language,
        policy=spec.policy,
        placement=placed[0][0] if placed else "local",
    )
    store.use_embedder(embedder)
    return store


def swap_index_version(
    connection: Connection,
    collection_id: int,
    number: int,
    spec: IndexVersionSpec,
    *,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
    attempts: int = SWAP_ATTEMPTS,
) -> int:
    """Let this index version serve, and keep the one before, detached; returns the number of the one before.

    In the caller's transaction, as its last step: from here to its commit whoever reads `chunks` waits. A search reads
    its index version by name, so one that began before goes on in the old one, and one that begins later opens the new.
    The collection's row takes the spec. An index version that serves already is left alone.

    Waits at most lock_timeout_ms for those who use the tables, `attempts` times; then SwapBlocked, and the transaction
    may go on. Raises UnknownCollection, IndexVersionChanged when there is no such index version,
    DimensionMismatch when its table holds vectors of other dimensions than the spec's.
    """
    params: dict[str, Any] = {"collection_id": collection_id, "new": number}
    rows = fetch_all(connection, LOCK_COLLECTION, params)
    if not rows:
        raise UnknownCollection(f"there is no collection {collection_id}; it was deleted")
    old = int(rows[0][0])
    if old == number:
        return old
    params["old"] = old
    placements = dict(fetch_all(connection, LOCK_INDEX_VERSIONS, params))
    if len(placements) != 2:
        raise IndexVersionChanged(f"there is no index version {number} of collection {collection_id}; build it first")
    _check_dims(connection, collection_id, number, spec.embed_dims)
    local = [placements[each] == "local" for each in (old, number)]
    _exchange(
        connection, collection_id, old if local[0] else None, number if local[1] else None, lock_timeout_ms, attempts
    )
    execute(connection, MARK_SERVING, params)
    values = {name: value for name, value in spec.as_dict().items() if name != "policy"}
    execute(connection, SERVE, params | values | {"chunk_policy": canonical_json(spec.policy.as_dict())})
    return old


def _check_dims(connection: Connection, collection_id: int, number: int, dims: int) -> None:
    """Raise DimensionMismatch where the table's own check is of other dimensions."""
    for (check,) in fetch_all(connection, DIMS_CHECK, {"partition": partition_name(collection_id, number)}):
        if f"= {dims})" not in check:
            raise DimensionMismatch(
                f"the table of index version {number} has {check}, and the spec has {dims} dimensions; "
                "give the spec that it was built with",
                field="embed_dims",
            )


def _exchange(
    connection: Connection, collection_id: int, old: int | None, new: int | None, timeout_ms: int, attempts: int
) -> None:
    """Which table `chunks` shows; None for one that is not in this database."""
    for attempt in range(attempts):
        execute(connection, SAVEPOINT)
        try:
            ((before, _),) = fetch_all(connection, SET_LOCK_TIMEOUT, {"timeout": f"{timeout_ms}ms"})
            if old is not None:
                run_statements(connection, DETACH_PARTITION, collection_id, old)
            if new is not None:
                run_statements(connection, ATTACH_PARTITION, collection_id, new)
        except Exception as error:  # of psycopg or Django, by the connection
            execute(connection, ROLLBACK_TO)
            execute(connection, RELEASE)
            if sqlstate(error) != LOCK_NOT_AVAILABLE:
                raise
            time.sleep(SWAP_PAUSE_S * attempt)
        else:
            fetch_all(connection, SET_LOCK_TIMEOUT, {"timeout": before})
            execute(connection, RELEASE)
            return
    raise SwapBlocked(
        f"index version {new} could not be swapped in: something used the chunks {attempts} times for longer than "
        f"{timeout_ms} ms; try again when long searches, index builds or backups have ended"
    )


def sqlstate(error: BaseException) -> str | None:
    """PostgreSQL's code of an error, raised by psycopg or by Django over it."""
    code = getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None)
    return str(code) if code else None


def drop_index_version(connection: Connection, collection_id: int, number: int) -> bool:
    """Remove an index version that does not serve, with its statistics; False when there is nothing of it.

    Waits for those who read it. Raises InvalidInput for the one that serves.
    """
    rows = fetch_all(connection, LOCK_COLLECTION, {"collection_id": collection_id})
    if rows and rows[0][0] == number:
        raise InvalidInput(
            f"index version {number} serves; swap another one in before it is dropped", field="index_version"
        )
    execute(connection, DROP_PARTITION.format(partition=partition_name(collection_id, number)))
    gone = [execute(connection, sql, {"collection_id": collection_id, "index_version": number}) for sql in FORGET]
    return gone[-1] > 0


def index_version_sizes(connection: Connection, collection_id: int) -> dict[int, tuple[int, int | None]]:
    """number -> (chunks, bytes on disk with indexes) of every index version that has a table, wherever that is. Bytes
    are None where a node that holds a part of it does not answer, and for a reader from whom chunks may be kept, who is
    told the open chunks alone. A fixed number of statements."""
    elsewhere = bytes_on_nodes(connection, collection_id)
    rows = fetch_all(connection, SIZES, {"collection_id": collection_id})
    return {
        int(number): (int(chunks), elsewhere.get(table, int(size or 0)) if sees else None)
        for number, chunks, table, size, sees in rows
    }
