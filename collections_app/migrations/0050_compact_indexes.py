"""The compact index on vectors for the tables of this database that are searched without an HNSW index, made while
others read and write."""

from __future__ import annotations

import logging
from typing import Any

from django.db import DataError, migrations

log = logging.getLogger(__name__)

MOST = 20_000  # chunks; a larger one waits for its HNSW index or has it

# The dimensions are in the check of each table.
TABLES = """
SELECT c.relname, (SELECT substring(pg_get_constraintdef(k.oid) FROM '= ([0-9]+)')::integer FROM pg_constraint k
                   WHERE k.conrelid = c.oid AND k.conname = c.relname || '_dims') AS dims
FROM chunk_stats s
JOIN pg_class c ON c.oid = to_regclass(format('chunks_c%%s_g%%s', s.collection_id, s.generation))
WHERE s.placement = 'local' AND s.chunk_count <= %s AND to_regclass(c.relname || '_embedding') IS NULL
ORDER BY c.relname
"""
BROKEN = (
    "SELECT to_regclass(%s) IS NOT NULL AND NOT (SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s))"
)


def make_indexes(apps: Any, schema_editor: Any) -> None:
    """May be run again: an index that a broken attempt left invalid is made anew."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(TABLES, [MOST])
        for table, dims in cursor.fetchall():
            if (dims or 0) < 2:
                continue
            name = f"{table}_compact"
            cursor.execute(BROKEN, [name, name])
            if cursor.fetchone()[0]:
                cursor.execute(f"DROP INDEX CONCURRENTLY {name}")
            try:
                cursor.execute(
                    f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {table}"
                    f" USING ivfflat ((l2_normalize(embedding)::halfvec({dims:d})) halfvec_ip_ops) WITH (lists = 1)"
                )
            except DataError as error:  # vectors of other dimensions, which the check of an upgrade has kept
                cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
                log.warning("%s is searched without the compact index: %s", table, str(error).strip())


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("collections_app", "0049_retention_settings")]

    operations = [migrations.RunPython(make_indexes, migrations.RunPython.noop)]
