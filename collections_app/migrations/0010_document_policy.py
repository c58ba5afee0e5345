"""A document may state a chunk policy of its own over that of its collection."""

from django.db import migrations, models

ADD_COLUMN = """
ALTER TABLE documents ADD COLUMN IF NOT EXISTS chunk_policy_stated jsonb NOT NULL DEFAULT '{}';
"""


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0009_queue")]

    operations = [
        migrations.RunSQL(
            ADD_COLUMN,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddField("document", "chunk_policy_stated", models.JSONField(blank=True, default=dict)),
            ],
        ),
    ]
