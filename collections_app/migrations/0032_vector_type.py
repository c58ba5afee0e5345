"""Whether the vector index of a collection, and of each of its generations, holds 32-bit or 16-bit floats."""

from django.db import migrations, models

ADD_COLUMN = """
ALTER TABLE collections ADD COLUMN IF NOT EXISTS vector_type text NOT NULL DEFAULT 'vector'
    CHECK (vector_type IN ('vector', 'halfvec'))
"""


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0031_document_language")]

    operations = [
        migrations.AddField("generation", "vector_type", models.CharField(default="vector", max_length=8)),
        migrations.RunSQL(
            ADD_COLUMN,
            migrations.RunSQL.noop,
            state_operations=[migrations.AddField("collection", "vector_type", models.TextField(default="vector"))],
        ),
    ]
