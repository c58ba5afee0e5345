"""The display name and the starter questions of a collection."""

from __future__ import annotations

import django.contrib.postgres.fields
from django.db import migrations, models

COLUMNS = """
ALTER TABLE collections ADD COLUMN IF NOT EXISTS title text NOT NULL DEFAULT '',
    ADD COLUMN IF NOT EXISTS starters text[] NOT NULL DEFAULT '{}';
"""


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0046_trash")]

    operations = [
        migrations.RunSQL(
            COLUMNS,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddField("collection", "title", models.TextField(blank=True, db_default="", default="")),
                migrations.AddField(
                    "collection",
                    "starters",
                    django.contrib.postgres.fields.ArrayField(
                        models.TextField(), blank=True, db_default=[], default=list
                    ),
                ),
            ],
        ),
    ]
