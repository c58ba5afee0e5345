"""Which run retrieved which chunk, one row each."""

import django.db.models.deletion
from django.db import migrations, models

# Runs and collections are deleted by SQL too; what they retrieved goes with them.
GO_WITH_BOTH = """
ALTER TABLE retrieval_app_retrievedchunk
    ADD CONSTRAINT retrievedchunk_run_fk
        FOREIGN KEY (run_id) REFERENCES retrieval_app_queryrun (id) ON DELETE CASCADE,
    ADD CONSTRAINT retrievedchunk_collection_fk
        FOREIGN KEY (collection_id) REFERENCES collections (id) ON DELETE CASCADE
"""


class Migration(migrations.Migration):
    dependencies = [
        ("collections_app", "0001_initial"),
        ("retrieval_app", "0002_plans"),
    ]

    operations = [
        migrations.CreateModel(
            name="RetrievedChunk",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("doc_id", models.TextField(db_collation="C")),
                ("chunk_index", models.IntegerField()),
                ("revision", models.IntegerField()),
                ("rank", models.IntegerField()),
                ("cited", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField()),
                (
                    "collection",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="collections_app.collection",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="retrieved",
                        to="retrieval_app.queryrun",
                    ),
                ),
            ],
            options={
                "verbose_name": "retrieved chunk",
                "indexes": [
                    models.Index(
                        fields=["collection", "doc_id", "chunk_index", "-created_at"],
                        include=("run", "rank", "cited", "revision"),
                        name="retrievedchunk_chunk",
                    )
                ],
                "constraints": [models.UniqueConstraint(fields=("run", "rank"), name="retrievedchunk_place")],
            },
        ),
        migrations.RunSQL(GO_WITH_BOTH, migrations.RunSQL.noop),
    ]
