"""The column chunks.attributes of ragd/schema.sql for an older database, in detached tables of index versions too.

It is empty there until a document is indexed again or the index is rebuilt.
"""

from __future__ import annotations

from django.db import migrations, models

# A constant default: no row is written. The attached tables follow the first statement.
ADD_COLUMN = """
ALTER TABLE chunks ADD COLUMN IF NOT EXISTS attributes jsonb NOT NULL DEFAULT '{}';
DO $$
DECLARE
    kept regclass;
BEGIN
    FOR kept IN
        SELECT c.oid::regclass FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind = 'r' AND c.relname ~ '^chunks_c[0-9]+_g[0-9]+$' AND NOT c.relispartition
          AND n.nspname = current_schema() ORDER BY c.relname
    LOOP
        EXECUTE format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS attributes jsonb NOT NULL DEFAULT ''{}''', kept);
    END LOOP;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0028_page_layouts")]

    operations = [
        migrations.RunSQL(
            ADD_COLUMN,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddField("chunk", "attributes", models.JSONField(blank=True, db_default={}, default=dict))
            ],
        ),
    ]
