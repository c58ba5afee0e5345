"""The column documents.cell_map of ragd/schema.sql for an older database, and that of earlier revisions."""

from __future__ import annotations

from django.db import migrations, models

ADD_COLUMN = "ALTER TABLE documents ADD COLUMN IF NOT EXISTS cell_map jsonb NOT NULL DEFAULT '[]'"


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0032_vector_type")]

    operations = [
        migrations.AddField("documentrevision", "cell_map", models.JSONField(blank=True, db_default=[], default=list)),
        migrations.RunSQL(
            ADD_COLUMN,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddField("document", "cell_map", models.JSONField(blank=True, db_default=[], default=list))
            ],
        ),
    ]
