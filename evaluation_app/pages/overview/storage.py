"""What the database takes on disk, and index builds under way."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

DATABASE_SIZE = "SELECT pg_database_size(current_database())"
# partitions count for the table they belong to
TABLE_SIZES = """
SELECT coalesce(parent.relname, child.relname) AS name, sum(pg_total_relation_size(child.oid))::bigint AS bytes
FROM pg_class child
LEFT JOIN pg_inherits link ON link.inhrelid = child.oid
LEFT JOIN pg_class parent ON parent.oid = link.inhparent
WHERE child.relkind = 'r' AND child.relnamespace = 'public'::regnamespace
GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %(rows)s
"""
INDEX_BUILDS = """
SELECT coalesce(index.relname, '') AS index, progress.phase, progress.blocks_done, progress.blocks_total,
       progress.tuples_done, progress.tuples_total
FROM pg_stat_progress_create_index progress
LEFT JOIN pg_class index ON index.oid = progress.index_relid
WHERE progress.datname = current_database() ORDER BY progress.pid
"""
# What PostgreSQL compressed or moved out of line counts as it is stored.
COLLECTION_SIZES = """
WITH tables AS (
    SELECT split_part(substr(relname, 9), '_', 1)::bigint AS collection_id, sum(pg_total_relation_size(oid)) AS bytes
    FROM pg_class WHERE relkind = 'r' AND relname ~ '^chunks_c[0-9]+_g[0-9]+$'
      AND relnamespace = 'public'::regnamespace
    GROUP BY 1
), files AS (
    SELECT collection_id, sum(size_bytes) AS bytes FROM uploads GROUP BY 1
), past AS (
    SELECT collection_id, count(*) AS rows, sum(pg_column_size(text) + pg_column_size(chunks)) AS bytes
    FROM document_revisions GROUP BY 1
)
SELECT c.name, coalesce(t.bytes, 0)::bigint, coalesce(f.bytes, 0)::bigint, coalesce(p.rows, 0),
       coalesce(p.bytes, 0)::bigint
FROM collections c
LEFT JOIN tables t ON t.collection_id = c.id
LEFT JOIN files f ON f.collection_id = c.id
LEFT JOIN past p ON p.collection_id = c.id
WHERE c.deleted_at IS NULL
ORDER BY coalesce(t.bytes, 0) + coalesce(f.bytes, 0) + coalesce(p.bytes, 0) DESC, c.name LIMIT %(rows)s
"""
TABLES_SHOWN = 8
COLLECTIONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class TableSize:
    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class IndexBuild:
    """A CREATE INDEX that runs now. done and total count rows, or blocks until rows are counted; total may be 0."""

    index: str
    phase: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class CollectionSize:
    """chunks_bytes: chunks, vectors and indexes of all generations. uploads_bytes: of the files that are kept.

    revisions, revisions_bytes: earlier revisions, as they are stored.
    """

    name: str
    chunks_bytes: int
    uploads_bytes: int
    revisions: int
    revisions_bytes: int


@dataclass(frozen=True, slots=True)
class StorageSummary:
    database_bytes: int
    tables: list[TableSize]
    collections: list[CollectionSize]


def index_builds() -> list[IndexBuild]:
    """Those that run now."""
    with connection.cursor() as cursor:
        cursor.execute(INDEX_BUILDS)
        return [_build(*row) for row in cursor.fetchall()]


def storage_summary() -> StorageSummary:
    """Three queries. tables and collections: the largest first; tables with indexes and partitions."""
    with connection.cursor() as cursor:
        cursor.execute(DATABASE_SIZE)
        ((database_bytes,),) = cursor.fetchall()
        cursor.execute(TABLE_SIZES, {"rows": TABLES_SHOWN})
        tables = [TableSize(name, size) for name, size in cursor.fetchall()]
        cursor.execute(COLLECTION_SIZES, {"rows": COLLECTIONS_SHOWN})
        collections = [CollectionSize(*row) for row in cursor.fetchall()]
    return StorageSummary(database_bytes, tables, collections)


def _build(index: str, phase: str, blocks_done: int, blocks_total: int, rows_done: int, rows_total: int) -> IndexBuild:
    return IndexBuild(index, phase, *((rows_done, rows_total) if rows_total else (blocks_done, blocks_total)))
