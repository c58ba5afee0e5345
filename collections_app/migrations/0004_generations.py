"""Generations, which state of which document they hold, and the jobs that build them."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("collections_app", "0003_statistics_per_generation"),
    ]

    operations = [
        migrations.CreateModel(
            name="GenerationDocument",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("doc_id", models.TextField(db_collation="C")),
                ("document_id", models.BigIntegerField()),
                ("revision", models.IntegerField()),
                ("enabled", models.BooleanField()),
                ("chunk_count", models.IntegerField()),
                ("content_hash", models.TextField()),
                ("chunk_policy", models.JSONField()),
            ],
            options={
                "db_table": "generation_documents",
            },
        ),
        migrations.AddField(
            model_name="ingestjob",
            name="attempts_forgiven",
            field=models.IntegerField(default=0),
        ),
        migrations.AlterField(
            model_name="ingestjob",
            name="kind",
            field=models.CharField(
                choices=[
                    ("file", "File"),
                    ("reindex", "Re-index"),
                    ("build_index", "Build vector index"),
                    ("probe_recall", "Probe recall"),
                    ("generation", "Build generation"),
                ],
                default="file",
                max_length=16,
            ),
        ),
        migrations.CreateModel(
            name="Generation",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("number", models.IntegerField()),
                ("hash", models.CharField(max_length=64)),
                ("spec_version", models.CharField(max_length=20)),
                ("embed_model", models.TextField()),
                ("embed_dims", models.IntegerField()),
                ("hybrid_enabled", models.BooleanField()),
                ("language", models.TextField()),
                ("chunk_policy", models.JSONField(blank=True, default=dict)),
                ("policy", models.JSONField(blank=True, default=dict)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("building", "Building"),
                            ("ready", "Ready"),
                            ("serving", "Serving"),
                            ("retired", "Retired"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                            ("dropped", "Dropped"),
                        ],
                        default="building",
                        max_length=16,
                    ),
                ),
                ("automatic", models.BooleanField(default=True)),
                ("documents_total", models.IntegerField(default=0)),
                ("documents_done", models.IntegerField(default=0)),
                ("chars_total", models.BigIntegerField(default=0)),
                ("chars_done", models.BigIntegerField(default=0)),
                ("chunks_done", models.IntegerField(default=0)),
                ("chunks_per_s", models.FloatField(blank=True, null=True)),
                ("chars_per_s", models.FloatField(blank=True, null=True)),
                ("error", models.TextField(blank=True, default="")),
                ("created_by", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("ready_at", models.DateTimeField(blank=True, null=True)),
                ("swapped_at", models.DateTimeField(blank=True, null=True)),
                ("retired_at", models.DateTimeField(blank=True, null=True)),
                (
                    "collection",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="generations",
                        to="collections_app.collection",
                    ),
                ),
            ],
            options={
                "db_table": "generations",
                "ordering": ["collection", "-number"],
            },
        ),
        migrations.AddField(
            model_name="ingestjob",
            name="generation",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="jobs",
                to="collections_app.generation",
            ),
        ),
        migrations.AddConstraint(
            model_name="ingestjob",
            constraint=models.UniqueConstraint(
                condition=models.Q(("kind", "generation"), ("state__in", ("queued", "running"))),
                fields=("collection",),
                name="ingest_jobs_one_generation",
            ),
        ),
        migrations.AddField(
            model_name="generationdocument",
            name="generation",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="documents", to="collections_app.generation"
            ),
        ),
        migrations.AddConstraint(
            model_name="generation",
            constraint=models.UniqueConstraint(fields=("collection", "number"), name="generations_number"),
        ),
        migrations.AddConstraint(
            model_name="generation",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ("building", "ready"))),
                fields=("collection",),
                name="generations_one_next",
            ),
        ),
        migrations.AddConstraint(
            model_name="generationdocument",
            constraint=models.UniqueConstraint(fields=("generation", "doc_id"), name="generation_documents_key"),
        ),
    ]
