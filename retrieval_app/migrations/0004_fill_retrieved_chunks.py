"""What earlier runs retrieved, from their results. In batches of their own transactions; running it again is
harmless."""

from django.db import migrations, transaction

BATCH = 500

FIRST = "00000000-0000-0000-0000-000000000000"

FILL = """
WITH batch AS (
    SELECT id, collection_id, results, citations, created_at FROM retrieval_app_queryrun
    WHERE id > %(after)s ORDER BY id LIMIT %(batch)s
), filled AS (
    INSERT INTO retrieval_app_retrievedchunk
        (run_id, collection_id, doc_id, chunk_index, revision, rank, cited, created_at)
    SELECT b.id, c.id, found.doc_id, found.chunk_index, coalesce(found.revision, 1), found.rank,
           b.citations @> jsonb_build_array(
               jsonb_build_object('doc_id', found.doc_id, 'chunk_index', found.chunk_index)
           ),
           b.created_at
    FROM batch b
    JOIN collections c ON c.id = b.collection_id
    CROSS JOIN jsonb_to_recordset(b.results) AS found (doc_id text, chunk_index integer, revision integer, rank integer)
    WHERE found.doc_id IS NOT NULL AND found.chunk_index IS NOT NULL AND found.rank IS NOT NULL
    ON CONFLICT (run_id, rank) DO NOTHING
)
SELECT id FROM batch ORDER BY id DESC LIMIT 1
"""


def fill(apps, schema_editor):
    after = FIRST
    while after is not None:
        with transaction.atomic(), schema_editor.connection.cursor() as cursor:
            cursor.execute(FILL, {"after": after, "batch": BATCH})
            row = cursor.fetchone()
        after = row[0] if row else None


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("retrieval_app", "0003_retrieved_chunks")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
