"""Where an access list comes from, and the key of metadata that names who may read a document."""

from __future__ import annotations

from django.db import migrations, models

COLUMNS = """
ALTER TABLE collections ADD COLUMN IF NOT EXISTS access_from text NOT NULL DEFAULT '';
ALTER TABLE document_access ADD COLUMN IF NOT EXISTS origin text NOT NULL DEFAULT 'stated',
    ADD COLUMN IF NOT EXISTS unknown text[] NOT NULL DEFAULT '{}';
"""


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0039_audit_copy")]

    operations = [
        migrations.RunSQL(
            COLUMNS,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddField(
                    "collection", "access_from", models.TextField(blank=True, db_default="", default="")
                ),
            ],
        ),
    ]
