"""What migrations leave is what ragd/schema.sql makes of an empty database, in all that the library owns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.migrations import operations
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from ragd.store.tables import scratch_schema

# (kind, name, definition) of each object; the policies of row-level security are the service's
READ = """
WITH tables AS (
    SELECT oid, relname FROM pg_class WHERE relnamespace = %(schema)s::regnamespace AND relname = ANY (%(tables)s)
)
SELECT 'column', t.relname || '.' || a.attname,
       concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated, a.attstorage,
                 row_number() OVER (PARTITION BY t.oid ORDER BY a.attnum), a.attcollation::regcollation,
                 pg_get_expr(d.adbin, d.adrelid))
FROM tables t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = t.oid AND d.adnum = a.attnum
UNION ALL
SELECT 'table', t.relname, concat_ws(' ', c.relkind, c.relpersistence, c.reloptions, pg_get_partkeydef(c.oid))
FROM tables t JOIN pg_class c ON c.oid = t.oid
UNION ALL
SELECT 'index', i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
FROM tables t JOIN pg_index i ON i.indrelid = t.oid
UNION ALL
SELECT 'constraint', t.relname || '.' || c.conname, concat_ws(' ', pg_get_constraintdef(c.oid), c.convalidated)
FROM tables t JOIN pg_constraint c ON c.conrelid = t.oid
UNION ALL
SELECT 'trigger', t.relname || '.' || g.tgname, concat_ws(' ', pg_get_triggerdef(g.oid, true), g.tgenabled)
FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal
UNION ALL
SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid)
FROM pg_proc p WHERE p.pronamespace = %(schema)s::regnamespace AND p.proname = ANY (%(functions)s)
"""
TABLES = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')"
FUNCTIONS = "SELECT proname FROM pg_proc WHERE pronamespace = current_schema()::regnamespace"
CHANGES = {
    "column": "ALTER TABLE documents ADD COLUMN mood text",
    "default": "ALTER TABLE documents ALTER COLUMN title DROP DEFAULT",
    "index": "DROP INDEX documents_updated_idx",
    "constraint": "ALTER TABLE api_keys DROP CONSTRAINT api_keys_expires_at",
    "trigger": "DROP TRIGGER collections_dims ON collections",
    "function": "CREATE OR REPLACE FUNCTION ragd_bake_length(length bigint, chunks bigint) RETURNS double precision"
    " LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1",
    "storage": "ALTER TABLE chunk_postings ALTER COLUMN postings SET STORAGE MAIN",
}
PATH = re.compile(r"(?<= SET search_path TO ).*")  # that of the moment in which the function was made
Objects = dict[tuple[str, str], str]


def rows(sql: str, values: dict[str, Any] | None = None) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchall() if cursor.description else []


def read(schema: str, tables: list[str], functions: list[str]) -> Objects:
    """By kind and name; as if the schema were not named, because only its name differs."""
    found = rows(READ, {"schema": schema, "tables": tables, "functions": functions})
    return {(kind, name): PATH.sub("", definition.replace(f"{schema}.", "")) for kind, name, definition in found}


@pytest.fixture
def schemas(db: None) -> Iterator[tuple[str, list[str], list[str]]]:
    """The name of a schema that the library has just made, with its tables and functions; it is first on the path."""
    with transaction.atomic(), scratch_schema(connection):
        tables, functions = ([name for (name,) in rows(sql)] for sql in (TABLES, FUNCTIONS))
        ((schema,),) = rows("SELECT current_schema()")
        yield schema, tables, functions


def both(schema: str, tables: list[str], functions: list[str]) -> tuple[Objects, Objects]:
    """What the library made, and what migrations did."""
    fresh = read(schema, tables, functions)
    with transaction.atomic():
        rows("SET LOCAL search_path TO public")
        migrated = read("public", tables, functions)
        rows(f"SET LOCAL search_path TO {schema}, public")
    return fresh, migrated


def test_migrations_end_with_what_the_schema_makes(schemas: tuple[str, list[str], list[str]]) -> None:
    fresh, migrated = both(*schemas)
    assert fresh == migrated
    assert {"collections", "documents", "chunks", "chunk_stats", "document_access", "api_keys"} <= set(schemas[1])
    assert {kind for kind, _ in fresh} == {"table", "column", "index", "constraint", "trigger", "function"}
    assert {"ragd_need_document", "ragd_keep_dims", "ragd_bm25", "ragd_spread_access"} <= set(schemas[2])


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_the_schema_alone_is_found(schemas: tuple[str, list[str], list[str]], change: str) -> None:
    rows(change)
    fresh, migrated = both(*schemas)
    assert len(dict(fresh.items() ^ migrated.items())) == 1


def test_tables_are_made_whole_and_after_those_of_the_packages(db: None) -> None:
    """Each later change of a table has Django read all that refer to it again: a quarter of a first start."""
    executor = MigrationExecutor(connection)
    plan = [migration for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes(), clean_start=True)]
    own = {"collections_app", "retrieval_app", "evaluation_app"}
    before = {migration.app_label for migration in takewhile(lambda each: each.name != "0002_tables", plan)}
    assert before >= {"account", "auth", "mfa", "sign_on", "socialaccount", "usersessions"}
    later = (operations.AddField, operations.AddIndex, operations.AddConstraint)
    steps = [step for migration in plan if migration.app_label in own for step in migration.operations]
    assert sum(isinstance(step, later) for step in steps) <= 5


def test_a_database_of_an_earlier_line_of_migrations_is_refused_as_it_is(db: None) -> None:
    applied = MigrationRecorder.Migration.objects
    applied.filter(app="collections_app").delete()
    applied.create(app="collections_app", name="0053_embed_model_is_fixed")
    before = set(applied.values_list("app", "name"))
    with pytest.raises(CommandError, match="DATABASE_URL"):
        call_command("migrate", verbosity=0)
    assert set(applied.values_list("app", "name")) == before
