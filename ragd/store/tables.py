"""Collections and the tables of their chunks: made, attached, removed with everything in them."""

from __future__ import annotations

from ragd.errors import InvalidInput
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
INSERT INTO chunk_stats (collection_id, generation, serving, placement)
VALUES (%(collection_id)s, %(generation)s, %(serving)s, %(placement)s) ON CONFLICT DO NOTHING
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

GENERATIONS = "SELECT generation FROM chunk_stats WHERE collection_id = %(collection_id)s ORDER BY generation"

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
    stats = {"collection_id": collection_id, "generation": 1, "serving": True, "placement": chosen}
    execute(connection, INSERT_STATS, stats)
    return int(collection_id)


def create_partition(
    connection: Connection, collection_id: int, generation: int, embed_dims: int, placement: Placement = "local"
) -> None:
    """Make the detached table of a generation, with its keys, its checks and the indexes on words, tags and JSON, and
    in this database the compact one on vectors.

    It takes vectors of embed_dims dimensions and no others; in this database, chunks of documents that are there.
    """
    statements = MAKE_PARTITION
    if placement == "local":
        statements += NEED_DOCUMENT + (COMPACT_INDEX if embed_dims >= COMPACT_DIMS_MIN else "")
    values = {"key": KEYS[placement], "elsewhere": str(placement != "local").lower()}
    run_statements(connection, statements, collection_id, generation, embed_dims, **values)
    distribute(connection, partition_name(collection_id, generation), placement)


def attach_partition(connection: Connection, collection_id: int, generation: int) -> None:
    """Let the generation's table be the one that `chunks` shows for the collection; no other may be attached."""
    run_statements(connection, ATTACH_PARTITION, collection_id, generation)


def run_statements(
    connection: Connection, statements: str, collection_id: int, generation: int, dims: int = 0, **values: str
) -> None:
    """Run statements over one generation's {partition} of {dims}; each ends with a semicolon at a line's end."""
    partition = partition_name(collection_id, generation)
    names = {"partition": partition, "collection_id": f"{collection_id:d}", "dims": f"{dims:d}", **values}
    for statement in statements.split(";\n"):
        if statement.strip():
            execute(connection, statement.format(**names))


def drop_collection(connection: Connection, collection_id: int) -> dict[str, int]:
    """Remove a collection with all its rows, indexes and generations; returns how many documents and chunks went."""
    params = {"collection_id": collection_id}
    ((documents, chunks),) = fetch_all(connection, COUNT_COLLECTION, params)
    for (generation,) in fetch_all(connection, GENERATIONS, params):
        execute(connection, DROP_PARTITION.format(partition=partition_name(collection_id, generation)))
    execute(connection, DELETE_COLLECTION, params)
    return {"documents": int(documents), "chunks": int(chunks)}
