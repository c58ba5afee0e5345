"""A database of an earlier version gets the constraints on chunks; what breaks them is reported and kept."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from collections_app.models import Collection
from collections_app.services.documents.documents import ingest_text
from collections_app.services.generations.generations import start_generation
from collections_app.stores import open_store
from ragd.store.schema import scratch_schema

FUNCTIONS = """
SELECT proname, prosrc FROM pg_proc
WHERE pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('chunks')) AND proname LIKE 'ragd%'
"""
TRIGGERS = """
SELECT tgname, regexp_replace(pg_get_triggerdef(oid, true), ' ON (\\w+\\.)?', ' ON ') FROM pg_trigger
WHERE tgrelid IN (to_regclass('chunks'), to_regclass('collections'), to_regclass('documents')) AND NOT tgisinternal
"""
MIGRATION = import_module("collections_app.migrations.0025_chunk_constraints")
COMPACT = import_module("collections_app.migrations.0050_compact_indexes")
INSERT = """
INSERT INTO {table} (collection_id, doc_id, chunk_index, content, embedding)
VALUES ({collection}, '{doc_id}', {number}, 'x', '{vector}')
"""


def run(sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall() if cursor.description else []


def insert(collection: Collection, number: int, generation: int, dims: int, doc_id: str) -> None:
    values = {"table": f"chunks_c{collection.pk}_g{generation}", "collection": collection.pk}
    run(INSERT.format(**values, doc_id=doc_id, number=number, vector=[1] * dims))


def make_old(collection: Collection, *generations: int) -> None:
    """The tables as they were before."""
    for generation in generations:
        table = f"chunks_c{collection.pk}_g{generation}"
        run(
            f"DROP TRIGGER {table}_document ON {table}; ALTER TABLE {table} DROP CONSTRAINT {table}_dims;"
            f"DROP INDEX {table}_compact"
        )


def state(collection: Collection, generation: int) -> tuple[bool, bool]:
    """Whether the check holds for every row, and whether the trigger is there."""
    table = f"chunks_c{collection.pk}_g{generation}"
    ((validated,),) = run(f"SELECT convalidated FROM pg_constraint WHERE conname = '{table}_dims'")
    ((trigger,),) = run(f"SELECT count(*) FROM pg_trigger WHERE tgname = '{table}_document'")
    return validated, bool(trigger)


def test_migrations_end_with_what_the_schema_makes(db: None) -> None:
    """A migration keeps its own copy of a function, because what it did must not change."""
    migrated = {name: dict(run(sql)) for name, sql in (("functions", FUNCTIONS), ("triggers", TRIGGERS))}
    with transaction.atomic(), scratch_schema(connection):
        assert migrated == {"functions": dict(run(FUNCTIONS)), "triggers": dict(run(TRIGGERS))}
    assert {"ragd_need_document", "ragd_keep_dims", "ragd_bm25"} <= migrated["functions"].keys()
    assert migrated["triggers"].keys() == {
        "collections_dims", "documents_access", "documents_chunks", "documents_name",
    }  # fmt: skip


@pytest.fixture
def sound(notes: Collection) -> Collection:
    """A collection with one document."""
    ingest_text(notes, "a.md", "Some text.")
    return notes


def test_sound_tables_are_checked_whole_and_nothing_is_reported(
    sound: Collection, embeddings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    embeddings.dims = 8
    start_generation(sound, {"embed_model": "text-embedding-3-large", "embed_dims": 8})
    make_old(sound, 1, 2)
    for _ in range(2):  # a second time changes nothing
        MIGRATION.guard_tables(None, connection.schema_editor())
        assert [state(sound, number) for number in (1, 2)] == [(True, True), (True, True)]
    assert not caplog.records
    for generation, dims in ((1, 8), (2, 32)):
        with pytest.raises(DatabaseError), transaction.atomic():
            insert(sound, 9, generation, dims, "a.md")


def test_what_breaks_them_is_reported_and_kept(sound: Collection, caplog: pytest.LogCaptureFixture) -> None:
    make_old(sound, 1)
    insert(sound, 7, 1, 5, "a.md")
    insert(sound, 8, 1, 32, "nobody.md")
    before = run("SELECT doc_id, chunk_index, vector_dims(embedding) FROM chunks ORDER BY 1, 2")
    MIGRATION.guard_tables(None, connection.schema_editor())
    assert run("SELECT doc_id, chunk_index, vector_dims(embedding) FROM chunks ORDER BY 1, 2") == before
    assert state(sound, 1) == (False, True)
    table = f"chunks_c{sound.pk}_g1"
    assert [(table in record.getMessage(), *record.args) for record in caplog.records] == [  # type: ignore[misc]
        (True, 1, "a.md"),
        (True, 1, "nobody.md"),
    ]
    for number, dims, doc_id in ((20, 5, "a.md"), (21, 32, "nobody.md")):
        with pytest.raises(DatabaseError), transaction.atomic():
            insert(sound, number, 1, dims, doc_id)


@pytest.mark.django_db(transaction=True)
def test_vectors_of_other_dimensions_leave_the_compact_index_out(
    sound: Collection, caplog: pytest.LogCaptureFixture
) -> None:
    make_old(sound, 1)
    MIGRATION.guard_tables(None, connection.schema_editor())
    COMPACT.make_indexes(None, connection.schema_editor())
    assert open_store(sound).state().compact_index is True and not caplog.records
    make_old(sound, 1)
    insert(sound, 7, 1, 5, "a.md")
    MIGRATION.guard_tables(None, connection.schema_editor())
    caplog.clear()
    for _ in range(2):
        COMPACT.make_indexes(None, connection.schema_editor())
        assert open_store(sound).state().compact_index is False
    table = f"chunks_c{sound.pk}_g1"
    assert [record.args[0] for record in caplog.records if record.args] == [table, table]  # type: ignore[index]
