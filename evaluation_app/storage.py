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
TABLES_SHOWN = 8


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
class StorageSummary:
    database_bytes: int
    tables: list[TableSize]
    builds: list[IndexBuild]


def storage_summary() -> StorageSummary:
    """Three queries. tables: the largest, with indexes and partitions, largest first."""
    with connection.cursor() as cursor:
        cursor.execute(DATABASE_SIZE)
        ((database_bytes,),) = cursor.fetchall()
        cursor.execute(TABLE_SIZES, {"rows": TABLES_SHOWN})
        tables = [TableSize(name, size) for name, size in cursor.fetchall()]
        cursor.execute(INDEX_BUILDS)
        builds = [_build(*row) for row in cursor.fetchall()]
    return StorageSummary(database_bytes, tables, builds)


def _build(index: str, phase: str, blocks_done: int, blocks_total: int, rows_done: int, rows_total: int) -> IndexBuild:
    return IndexBuild(index, phase, *((rows_done, rows_total) if rows_total else (blocks_done, blocks_total)))
