"""Which chunks say what others say, and when that was looked for."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0013_jobs_of_a_document")]

    operations = [
        migrations.CreateModel(
            name="DuplicateScan",
            fields=[
                (
                    "collection",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="duplicate_scan",
                        serialize=False,
                        to="collections_app.collection",
                    ),
                ),
                ("generation", models.IntegerField()),
                ("chunk_count", models.BigIntegerField(default=0)),
                ("found", models.IntegerField(default=0)),
                ("complete", models.BooleanField(default=True)),
                ("error", models.TextField(blank=True, default="")),
                ("took_ms", models.FloatField(default=0)),
                ("scanned_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={"db_table": "duplicate_scans"},
        ),
        migrations.CreateModel(
            name="NearDuplicate",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("doc_id", models.TextField(db_collation="C")),
                ("chunk_index", models.IntegerField()),
                ("revision", models.IntegerField()),
                ("of_doc_id", models.TextField(db_collation="C")),
                ("of_chunk_index", models.IntegerField()),
                ("share", models.FloatField()),
                (
                    "collection",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="near_duplicates",
                        to="collections_app.collection",
                    ),
                ),
            ],
            options={
                "db_table": "near_duplicates",
                "constraints": [
                    models.UniqueConstraint(fields=("collection", "doc_id", "chunk_index"), name="near_duplicates_key")
                ],
            },
        ),
    ]
