"""Collections and the tables of their chunks: made, attached, removed with everything in them.

The tables of the library, made in a database that can hold them.

Index versions: a table of chunks is built beside the one that serves, and swapped in whole.

    number = create_index_version(connection, collection_id, spec.embed_dims)
    store = open_index_version(connection, "notes", number, spec, embedder)
    index(chunks, store)                                        # as often as it takes; searches see nothing of it
    swap_index_version(connection, collection_id, number, spec)    # searches see all of it
    drop_index_version(connection, collection_id, 1)               # or swap back

The caller owns the transactions, keeps the spec of each index version, and writes what changed meanwhile.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ragd import errors
from ragd.models.folder_embedder import list_encoders
from ragd.normalization import UNICODE_VERSION
from ragd.store.analysis import ANALYSIS_VERSION
from ragd.store.placement import bytes_on_nodes, choose_placement, distribute
from ragd.store.store import EXACT_THRESHOLD, HALFVEC_INDEX_DIMS, Connection, Store, execute, fetch_all, partition_name
from ragd.text.languages import AUTO
from ragd.types import SPEC_VERSION, ChunkPolicy, Embedder, Placement, VectorType, canonical_json

LANGUAGES = "SELECT cfgname FROM pg_ts_config ORDER BY cfgname"

INSERT_COLLECTION = """
INSERT INTO collections (name, embed_model, embed_dims, hybrid_enabled, language, chunk_policy, vector_type)
VALUES (%(name)s, %(embed_model)s, %(embed_dims)s, %(hybrid_enabled)s, %(language)s, %(chunk_policy)s::jsonb,
        %(vector_type)s)
RETURNING id
"""

INSERT_STATS = """
INSERT INTO chunk_stats (collection_id, index_version, serving, placement)
VALUES (%(collection_id)s, %(index_version)s, %(serving)s, %(placement)s) ON CONFLICT DO NOTHING
"""

NEED_DOCUMENT = """
CREATE TRIGGER {partition}_document BEFORE INSERT OR UPDATE OF collection_id, doc_id ON {partition}
    FOR EACH ROW EXECUTE FUNCTION ragd_need_document();
"""

LETTERLESS = """content COLLATE "pg_c_utf8" !~ '[[:alpha:]]'"""
# The keys and the check are those that attaching asks for: it finds them there, and reads no row.
MAKE_PARTITION = """
CREATE TABLE {partition} (LIKE chunks INCLUDING ALL EXCLUDING IDENTITY EXCLUDING INDEXES)
    WITH (toast_tuple_target = 4080);
ALTER TABLE {partition} ADD PRIMARY KEY ({key}), ADD UNIQUE (collection_id, doc_id, chunk_index),
    ADD CONSTRAINT {partition}_of CHECK (collection_id = {collection_id}),
    ADD CONSTRAINT {partition}_dims CHECK (vector_dims(embedding) = {dims}),
    ALTER id SET DEFAULT nextval(pg_get_serial_sequence('chunks', 'id'));
CREATE INDEX {partition}_tags ON {partition} USING gin (tags);
CREATE INDEX {partition}_metadata ON {partition} USING gin (metadata jsonb_path_ops);
CREATE INDEX {partition}_attributes ON {partition} USING gin (attributes jsonb_path_ops);
CREATE INDEX {partition}_fts ON {partition} USING gin (fts) WITH (gin_pending_list_limit = 512);
CREATE INDEX {partition}_access ON {partition} USING gin (access);
CREATE INDEX {partition}_letterless ON {partition} (doc_id, chunk_index) WHERE {letterless};
SELECT ragd_protect_chunks('{partition}', {collection_id}, {elsewhere});
"""

# All vectors, of length 1 and in half precision, side by side: a search that compares every one reads a fifth of the
# table, and compares the nearest exactly (ragd/search/vector_search.py). With one list the index leaves nothing out. It
# goes when there is an HNSW index (Store.build_vector_index), whose expression is another: no search mixes them up.
COMPACT_INDEX = """
CREATE INDEX {partition}_compact ON {partition}
    USING ivfflat ((l2_normalize(embedding)::halfvec({dims})) halfvec_ip_ops) WITH (lists = 1);
"""
COMPACT_DIMS_MIN = 2  # the operator class takes no fewer

# On the nodes of a cluster there are no documents, and a key must name what the table is spread by.
KEYS: dict[Placement, str] = {
    "local": "collection_id, id",
    "node": "collection_id, id",
    "spread": "collection_id, id, doc_id",
}

# A partition takes its ids from chunks; a detached table has a default of its own. Attaching takes a weaker lock on
# chunks than CREATE TABLE ... PARTITION OF, so that searches elsewhere go on.
ATTACH_PARTITION = """
ALTER TABLE {partition} ALTER id DROP DEFAULT;
ALTER TABLE chunks ATTACH PARTITION {partition} FOR VALUES IN ({collection_id});
"""

DROP_PARTITION = "DROP TABLE IF EXISTS {partition}"

INDEX_VERSIONS = "SELECT index_version FROM chunk_stats WHERE collection_id = %(collection_id)s ORDER BY index_version"

COUNT_COLLECTION = """
SELECT (SELECT count(*) FROM documents WHERE collection_id = %(collection_id)s),
       (SELECT coalesce(sum(chunk_count), 0) FROM chunk_stats WHERE collection_id = %(collection_id)s AND serving)
"""

DELETE_COLLECTION = "DELETE FROM collections WHERE id = %(collection_id)s"


def languages(connection: Connection) -> list[str]:
    """What a collection's language may be: "auto", then the text search configurations that the server has, by name,
    then the sparse encoders of this process."""
    named = [name for (name,) in fetch_all(connection, LANGUAGES)]
    return [AUTO, *named, *(encoder.model for encoder in list_encoders())]


def create_collection(
    connection: Connection,
    *,
    name: str,
    embed_model: str,
    embed_dims: int,
    hybrid_enabled: bool = True,
    language: str = "english",
    policy: ChunkPolicy | None = None,
    vector_type: VectorType = "vector",
    placement: str | None = None,
) -> int:
    """Insert a collection and make its partition with the indexes on words, tags and JSON. Returns its id.

    vector_type: "halfvec": its HNSW index holds 16-bit floats; the table holds 32-bit ones either way. placement: where
    its chunks are (`ragd.store.placement`); None: on a node where there are nodes.

    A taken name raises the driver's unique violation. The caller owns the transaction.
    """
    if not 1 <= embed_dims <= HALFVEC_INDEX_DIMS:
        raise errors.InvalidInput(
            f"embed_dims must be from 1 to {HALFVEC_INDEX_DIMS} (what an HNSW index can hold), not {embed_dims}",
            field="embed_dims",
        )
    known = languages(connection)
    if language not in known:
        raise errors.InvalidInput(f"language must be one of {', '.join(known)}, not {language!r}", field="language")
    values = {
        "name": name,
        "embed_model": embed_model,
        "embed_dims": embed_dims,
        "hybrid_enabled": hybrid_enabled,
        "vector_type": vector_type,
        "language": language,
        "chunk_policy": canonical_json((policy or ChunkPolicy()).as_dict()),
    }
    ((collection_id,),) = fetch_all(connection, INSERT_COLLECTION, values)
    chosen = choose_placement(connection, placement)
    create_partition(connection, collection_id, 1, embed_dims, chosen)
    if chosen == "local":
        attach_partition(connection, collection_id, 1)
    stats = {"collection_id": collection_id, "index_version": 1, "serving": True, "placement": chosen}
    execute(connection, INSERT_STATS, stats)
    return int(collection_id)


def create_partition(
    connection: Connection, collection_id: int, index_version: int, embed_dims: int, placement: Placement = "local"
) -> None:
    """Make the detached table of an index version, with its keys, its checks and the indexes on words, tags and JSON,
    and in this database the compact one on vectors.

    It takes vectors of embed_dims dimensions and no others; in this database, chunks of documents that are there.
    """
    statements = MAKE_PARTITION
    if placement == "local":
        statements += NEED_DOCUMENT + (COMPACT_INDEX if embed_dims >= COMPACT_DIMS_MIN else "")
    values = {"key": KEYS[placement], "letterless": LETTERLESS, "elsewhere": str(placement != "local").lower()}
    run_statements(connection, statements, collection_id, index_version, embed_dims, **values)
    distribute(connection, partition_name(collection_id, index_version), placement)


def attach_partition(connection: Connection, collection_id: int, index_version: int) -> None:
    """Let the index version's table be the one that `chunks` shows for the collection; no other may be attached."""
    run_statements(connection, ATTACH_PARTITION, collection_id, index_version)


def run_statements(
    connection: Connection, statements: str, collection_id: int, index_version: int, dims: int = 0, **values: str
) -> None:
    """Run statements over one index version's {partition} of {dims}; each ends with a semicolon at a line's end."""
    partition = partition_name(collection_id, index_version)
    names = {"partition": partition, "collection_id": f"{collection_id:d}", "dims": f"{dims:d}", **values}
    for statement in statements.split(";\n"):
        if statement.strip():
            execute(connection, statement.format(**names))


def drop_collection(connection: Connection, collection_id: int) -> dict[str, int]:
    """Remove a collection with all its rows, indexes and index versions; returns how many documents and chunks went."""
    params = {"collection_id": collection_id}
    ((documents, chunks),) = fetch_all(connection, COUNT_COLLECTION, params)
    for (index_version,) in fetch_all(connection, INDEX_VERSIONS, params):
        execute(connection, DROP_PARTITION.format(partition=partition_name(collection_id, index_version)))
    execute(connection, DELETE_COLLECTION, params)
    return {"documents": int(documents), "chunks": int(chunks)}


POSTGRES_MIN = 170000
PGVECTOR_MIN = (0, 8, 4)  # 0.8.2 to 0.8.4 mend overflows in parallel HNSW builds and corruption under vacuum
SCHEMA_FILE = Path(__file__).parent.with_name("schema.sql")

SERVER_VERSION = """
SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
       (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
       (SELECT default_version FROM pg_available_extensions WHERE name = 'vector')
"""


EXTENSION_SCHEMA = """
SELECT quote_ident(n.nspname)
FROM pg_extension e
JOIN pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'vector'
"""


def apply_schema(connection: Connection) -> None:
    """Create what `schema.sql` names; running it again changes nothing. The caller commits."""
    check_database(connection)
    execute(connection, SCHEMA_FILE.read_text(encoding="utf-8"))


@contextmanager
def scratch_schema(connection: Connection) -> Iterator[None]:
    """A new schema with the library's tables, first on the search path. Everything is rolled back at the end.

    Nobody else ever sees the schema, because nothing is committed, and a run that is killed leaves nothing. The caller
    must be inside a transaction; it stands as it was afterwards. Raises UnsupportedDatabase.
    """
    check_database(connection)
    with undone(connection):
        schema = f"ragd_scratch_{secrets.token_hex(6)}"
        execute(connection, f"CREATE SCHEMA {schema}")
        rows = fetch_all(connection, EXTENSION_SCHEMA)
        path = ", ".join([schema, *(name for (name,) in rows)])
        execute(connection, f"SET LOCAL search_path TO {path}")
        apply_schema(connection)
        yield


@contextmanager
def undone(connection: Connection) -> Iterator[None]:
    """What happens inside is rolled back, also after an error of the database."""
    name = f"ragd_{secrets.token_hex(6)}"
    execute(connection, f"SAVEPOINT {name}")
    try:
        yield
    finally:
        execute(connection, f"ROLLBACK TO SAVEPOINT {name}")
        execute(connection, f"RELEASE SAVEPOINT {name}")


def check_database(connection: Connection) -> None:
    """Raise UnsupportedDatabase unless the server is PostgreSQL 17+ with pgvector 0.8.4+ installed or available."""
    ((number, version, installed, available),) = fetch_all(connection, SERVER_VERSION)
    if number < POSTGRES_MIN:
        raise errors.UnsupportedDatabase(
            f"ragd needs PostgreSQL 17 or newer, because older ones cannot break ties on an HNSW index; "
            f"this server is {version}. Point DATABASE_URL at a newer server, or leave it unset for the embedded one."
        )
    pgvector = installed or available
    if pgvector is None:
        raise errors.UnsupportedDatabase(
            "ragd needs the pgvector extension 0.8.4 or newer, and this server does not have it. "
            "Install the package of pgvector for its PostgreSQL version."
        )
    if not is_supported_pgvector(pgvector):
        raise errors.UnsupportedDatabase(
            f"ragd needs pgvector 0.8.4 or newer; this database has {pgvector}. "
            "Upgrade the package, then run: ALTER EXTENSION vector UPDATE."
        )


def is_supported_pgvector(version: str) -> bool:
    """Whether a version such as "0.8.4" is new enough; one without a third number is its .0."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3]) >= PGVECTOR_MIN


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


class SwapBlocked(errors.RagdError):
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
    connection: Connection, collection_id: int, embed_dims: int, number: int | None = None, placement: str | None = None
) -> int:
    """Make the empty, detached table of a new index version; returns its number (default: one more than the highest).

    placement: as for a collection; None: that of the index version that serves. It takes vectors of embed_dims
    dimensions, and may serve only as an index version of so many. A taken number raises the
    driver's error for a table that exists. Raises UnknownCollection.
    """
    rows = fetch_all(connection, NEXT_NUMBER, {"collection_id": collection_id, "past_first": PAST_FIRST})
    if not rows:
        raise errors.UnknownCollection(f"there is no collection {collection_id}; it was deleted")
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
        raise errors.UnknownCollection(f"there is no collection {collection_id}; it was deleted")
    old = int(rows[0][0])
    if old == number:
        return old
    params["old"] = old
    placements = dict(fetch_all(connection, LOCK_INDEX_VERSIONS, params))
    if len(placements) != 2:
        raise errors.IndexVersionChanged(
            f"there is no index version {number} of collection {collection_id}; build it first"
        )
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
            raise errors.DimensionMismatch(
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
        raise errors.InvalidInput(
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
