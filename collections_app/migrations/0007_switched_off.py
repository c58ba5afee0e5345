"""Chunks that are disabled by themselves, also in the tables of generations that do not serve."""

from django.db import migrations, models

ADD_COLUMN = r"""
ALTER TABLE chunks ADD COLUMN IF NOT EXISTS switched_off boolean NOT NULL DEFAULT false;
DO $$
DECLARE
    found regclass;
BEGIN
    FOR found IN
        SELECT c.oid FROM pg_class c
        WHERE c.relkind = 'r' AND NOT c.relispartition AND c.relname ~ '^chunks_c\d+_g\d+$'
          AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'chunks'::regclass)
    LOOP
        EXECUTE format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS switched_off boolean NOT NULL DEFAULT false', found);
    END LOOP;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0006_curation")]

    operations = [
        migrations.RunSQL(
            ADD_COLUMN,
            migrations.RunSQL.noop,
            state_operations=[migrations.AddField("chunk", "switched_off", models.BooleanField(default=False))],
        ),
    ]
