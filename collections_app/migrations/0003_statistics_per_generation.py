"""Brings chunk_stats and chunk_terms of an older database to what ragd/schema.sql says: keyed by generation."""

from __future__ import annotations

from django.db import migrations

ADD_COLUMNS = """
ALTER TABLE chunk_stats ADD COLUMN IF NOT EXISTS generation integer NOT NULL DEFAULT 1,
                        ADD COLUMN IF NOT EXISTS serving boolean NOT NULL DEFAULT true;
ALTER TABLE chunk_terms ADD COLUMN IF NOT EXISTS generation integer NOT NULL DEFAULT 1;
"""

# A new primary key builds its index anew, so it is made only where the old one is still there.
WIDEN_KEYS = """
DO $$
BEGIN
    IF 1 = (SELECT cardinality(conkey) FROM pg_constraint
            WHERE conrelid = 'chunk_stats'::regclass AND contype = 'p') THEN
        ALTER TABLE chunk_stats DROP CONSTRAINT chunk_stats_pkey, ADD PRIMARY KEY (collection_id, generation);
    END IF;
    IF 2 = (SELECT cardinality(conkey) FROM pg_constraint
            WHERE conrelid = 'chunk_terms'::regclass AND contype = 'p') THEN
        ALTER TABLE chunk_terms DROP CONSTRAINT chunk_terms_pkey, ADD PRIMARY KEY (collection_id, generation, term);
    END IF;
END
$$
"""


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0002_recall_probes")]

    operations = [
        migrations.RunSQL(ADD_COLUMNS, migrations.RunSQL.noop),
        migrations.RunSQL(WIDEN_KEYS, migrations.RunSQL.noop),
    ]
