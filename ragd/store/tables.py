"""Collections and the tables of their chunks: made, attached, removed with everything in them.

The tables of the library, made in a database that can hold them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragd.errors import InvalidInput, UnsupportedDatabase
from ragd.models.sparse_encoder import list_encoders
from ragd.store.placement import choose_placement, distribute
from ragd.store.store import HALFVEC_INDEX_DIMS, Connection, execute, fetch_all, partition_name
from ragd.text.languages import AUTO
from ragd.types import ChunkPolicy, Placement, VectorType, canonical_json

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
        raise InvalidInput(
            f"embed_dims must be from 1 to {HALFVEC_INDEX_DIMS} (what an HNSW index can hold), not {embed_dims}",
            field="embed_dims",
        )
    known = languages(connection)
    if language not in known:
        raise InvalidInput(f"language must be one of {', '.join(known)}, not {language!r}", field="language")
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
    values = {"key": KEYS[placement], "elsewhere": str(placement != "local").lower()}
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
        raise UnsupportedDatabase(
            f"ragd needs PostgreSQL 17 or newer, because older ones cannot break ties on an HNSW index; "
            f"this server is {version}. Point DATABASE_URL at a newer server, or leave it unset for the embedded one."
        )
    pgvector = installed or available
    if pgvector is None:
        raise UnsupportedDatabase(
            "ragd needs the pgvector extension 0.8.4 or newer, and this server does not have it. "
            "Install the package of pgvector for its PostgreSQL version."
        )
    if not is_supported_pgvector(pgvector):
        raise UnsupportedDatabase(
            f"ragd needs pgvector 0.8.4 or newer; this database has {pgvector}. "
            "Upgrade the package, then run: ALTER EXTENSION vector UPDATE."
        )


def is_supported_pgvector(version: str) -> bool:
    """Whether a version such as "0.8.4" is new enough; one without a third number is its .0."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3]) >= PGVECTOR_MIN
