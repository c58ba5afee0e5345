"""The constraints that ragd/schema.sql has on chunks, for an older database: dimensions, and a document for each chunk.

What breaks them stays where it is and is reported; from here on nothing is added that does.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import migrations

log = logging.getLogger(__name__)

FUNCTIONS = """
CREATE OR REPLACE FUNCTION ragd_keep_dims() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'collection % holds vectors of % dimensions, not %', OLD.name, OLD.embed_dims, NEW.embed_dims
        USING ERRCODE = 'check_violation', HINT = 'Build a generation with other dimensions and let it serve.';
END $$;
CREATE OR REPLACE TRIGGER collections_dims BEFORE UPDATE OF embed_dims ON collections FOR EACH ROW
    WHEN (OLD.embed_dims <> NEW.embed_dims AND OLD.generation = NEW.generation)
    EXECUTE FUNCTION ragd_keep_dims();

CREATE OR REPLACE FUNCTION ragd_need_document() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM documents WHERE collection_id = NEW.collection_id AND doc_id = NEW.doc_id FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'chunk % of % in collection % has no document', NEW.chunk_index, NEW.doc_id, NEW.collection_id
            USING ERRCODE = 'foreign_key_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME,
                  HINT = 'Insert the document first.';
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ragd_need_no_chunks() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    scope bigint;
    found text;
BEGIN
    FOR scope IN SELECT DISTINCT collection_id FROM gone LOOP
        -- the collection as a constant: the plan names one partition
        EXECUTE format(
            'SELECT doc_id FROM gone g WHERE collection_id = %1$s AND EXISTS (
                 SELECT FROM chunks c WHERE c.collection_id = %1$s AND c.doc_id = g.doc_id) LIMIT 1', scope) INTO found;
        IF found IS NOT NULL THEN
            RAISE EXCEPTION 'document % of collection % has chunks', found, scope
                USING ERRCODE = 'foreign_key_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME,
                      HINT = 'Delete its chunks first.';
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER documents_chunks AFTER DELETE ON documents REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION ragd_need_no_chunks();

CREATE OR REPLACE FUNCTION ragd_keep_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM chunks WHERE collection_id = OLD.collection_id AND doc_id = OLD.doc_id) THEN
        RAISE EXCEPTION 'document % of collection % has chunks', OLD.doc_id, OLD.collection_id
            USING ERRCODE = 'foreign_key_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME,
                  HINT = 'Index it under the other name instead.';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER documents_name AFTER UPDATE OF collection_id, doc_id ON documents FOR EACH ROW
    WHEN (OLD.collection_id <> NEW.collection_id OR OLD.doc_id <> NEW.doc_id)
    EXECUTE FUNCTION ragd_keep_name();
"""

# Every generation's table that is there, with the dimensions that it was built with.
TABLES = """
SELECT t.relname, c.name, s.generation, s.serving, coalesce(g.embed_dims, c.embed_dims) AS dims,
       EXISTS (SELECT 1 FROM pg_constraint WHERE conrelid = t.oid AND conname = t.relname || '_dims') AS has_check,
       EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = t.oid AND tgname = t.relname || '_document') AS has_trigger
FROM chunk_stats s
JOIN collections c ON c.id = s.collection_id
JOIN pg_class t ON t.oid = to_regclass('chunks_c' || s.collection_id || '_g' || s.generation)
LEFT JOIN generations g ON g.collection_id = s.collection_id AND g.number = s.generation
WHERE g.embed_dims IS NOT NULL OR s.generation = c.generation
ORDER BY t.relname
"""

# NOT VALID holds for every row that is written from now on.
ADD_CHECK = "ALTER TABLE {table} ADD CONSTRAINT {table}_dims CHECK (vector_dims(embedding) = {dims}) NOT VALID"
VALIDATE = "ALTER TABLE {table} VALIDATE CONSTRAINT {table}_dims"
ADD_TRIGGER = """
CREATE TRIGGER {table}_document AFTER INSERT OR UPDATE OF collection_id, doc_id ON {table}
    FOR EACH ROW EXECUTE FUNCTION ragd_need_document()
"""
WRONG_DIMS = "SELECT count(*), min(doc_id) FROM {table} WHERE vector_dims(embedding) <> {dims}"
ORPHANS = """
SELECT count(*), min(c.doc_id) FROM {table} c
WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.collection_id = c.collection_id AND d.doc_id = c.doc_id)
"""


def guard_tables(apps: Any, schema_editor: Any) -> None:
    """Add check and trigger to each table; a table with rows that break them keeps the rows, and a warning names it."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(TABLES)
        for table, collection, number, serving, dims, has_check, has_trigger in cursor.fetchall():
            names = {"table": table, "dims": dims}
            where = f"index version {number} of collection {collection!r} ({table})"
            if not has_check:
                cursor.execute(ADD_CHECK.format(**names))
            if not _report(cursor, WRONG_DIMS, names, f"{where}: %s chunks, the first of document %r, have vectors of "
                           f"other than {dims} dimensions"):  # fmt: skip
                cursor.execute(VALIDATE.format(**names))
            if not has_trigger:
                cursor.execute(ADD_TRIGGER.format(**names))
            if serving:  # the others catch up with the documents before they serve again
                _report(cursor, ORPHANS, names, f"{where}: %s chunks, the first of document %r, belong to no document")


def _report(cursor: Any, sql: str, names: dict[str, Any], message: str) -> int:
    """How many rows break the rule."""
    cursor.execute(sql.format(**names))
    count, first = cursor.fetchone()
    if count:
        log.warning(message + ". They were left as they are; rebuild the index (manage.py ragd rebuild).", count, first)
    return int(count)


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0024_api_key_collection_ids")]

    operations = [
        migrations.RunSQL(FUNCTIONS, migrations.RunSQL.noop),
        migrations.RunPython(guard_tables, migrations.RunPython.noop),
    ]
