"""Indexes on metadata and attributes for the chunks of every index version, made while others read and write."""

from __future__ import annotations

from typing import Any

from django.db import migrations

TABLES = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relname ~ '^chunks_c[0-9]+_g[0-9]+$' AND n.nspname = current_schema() ORDER BY c.relname
"""
BROKEN = "SELECT to_regclass(%s) IS NOT NULL AND NOT (SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s))"


def make_indexes(apps: Any, schema_editor: Any) -> None:
    """May be run again: an index that a broken attempt left invalid is made anew."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(TABLES)
        for (table,) in cursor.fetchall():
            for column in ("metadata", "attributes"):
                name = f"{table}_{column}"
                cursor.execute(BROKEN, [name, name])
                if cursor.fetchone()[0]:
                    cursor.execute(f"DROP INDEX CONCURRENTLY {name}")
                cursor.execute(
                    f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {table} USING gin ({column} jsonb_path_ops)"
                )


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("collections_app", "0034_recognized_pages")]

    operations = [migrations.RunPython(make_indexes, migrations.RunPython.noop)]
