"""The columns documents.language and language_stated of ragd/schema.sql for an older database.

They are empty there until a document is indexed again: what its language is decides nothing in an older index.
"""

from __future__ import annotations

from django.db import migrations, models

# Constant defaults: no row is written.
ADD_COLUMNS = """
ALTER TABLE documents ADD COLUMN IF NOT EXISTS language text NOT NULL DEFAULT '',
    ADD COLUMN IF NOT EXISTS language_stated text NOT NULL DEFAULT '';
"""


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0030_model_settings")]

    operations = [
        migrations.RunSQL(
            ADD_COLUMNS,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddField("document", "language", models.TextField(blank=True, db_default="", default="")),
                migrations.AddField(
                    "document", "language_stated", models.TextField(blank=True, db_default="", default="")
                ),
            ],
        ),
    ]
