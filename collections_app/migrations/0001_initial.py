"""Replays ragd/schema.sql, then creates the tables that only the service uses."""

from __future__ import annotations

import uuid
from pathlib import Path

import django.contrib.postgres.fields
import django.contrib.postgres.search
import django.db.models.deletion
import django.utils.timezone
import pgvector.django.sparsevec
import pgvector.django.vector
from django.db import migrations, models

import ragd

SCHEMA = (Path(ragd.__file__).parent / "schema.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.RunSQL(SCHEMA, migrations.RunSQL.noop),
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("label", models.TextField()),
                ("key_hash", models.BinaryField(unique=True)),
                ("prefix", models.TextField(blank=True, default="")),
                ("scope", models.TextField(choices=[("read", "Read"), ("write", "Read and write")], default="write")),
                (
                    "collections",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, editable=False, null=True)),
            ],
            options={
                "verbose_name": "API key",
                "db_table": "api_keys",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Chunk",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("doc_id", models.TextField(db_collation="C")),
                ("chunk_index", models.IntegerField()),
                ("content", models.TextField()),
                ("start_char", models.IntegerField(default=0)),
                ("end_char", models.IntegerField(default=0)),
                ("context", models.TextField(blank=True, default="")),
                (
                    "tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                ("metadata", models.JSONField(blank=True, default=dict)),
                ("token_count", models.IntegerField(default=0)),
                ("revision", models.IntegerField(default=1)),
                ("enabled", models.BooleanField(default=True)),
                ("embedding", pgvector.django.vector.VectorField()),
                ("fts", django.contrib.postgres.search.SearchVectorField(editable=False, null=True)),
                ("lexical", pgvector.django.sparsevec.SparseVectorField(editable=False, null=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                "db_table": "chunks",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Collection",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.TextField(db_collation="C")),
                ("description", models.TextField(blank=True, default="")),
                ("embed_model", models.TextField()),
                ("embed_dims", models.IntegerField()),
                ("hybrid_enabled", models.BooleanField(default=True)),
                ("language", models.TextField(default="english")),
                ("chunk_policy", models.JSONField(blank=True, default=dict)),
                ("generation", models.IntegerField(default=1)),
                ("deleted_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "db_table": "collections",
                "ordering": ["name"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Document",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("doc_id", models.TextField(db_collation="C")),
                ("title", models.TextField(blank=True, default="")),
                (
                    "tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                ("metadata", models.JSONField(blank=True, default=dict)),
                ("source", models.TextField(blank=True, default="")),
                ("media_type", models.TextField(default="text/plain")),
                ("text", models.TextField(blank=True, default="")),
                ("size_chars", models.IntegerField(default=0)),
                ("token_count", models.IntegerField(default=0)),
                ("chunk_count", models.IntegerField(default=0)),
                ("content_hash", models.TextField(blank=True, default="")),
                ("source_hash", models.TextField(blank=True, default="")),
                ("page_map", models.JSONField(blank=True, default=list)),
                ("segments", models.JSONField(blank=True, default=list)),
                ("chunk_policy", models.JSONField(blank=True, default=dict)),
                ("warnings", models.JSONField(blank=True, default=list)),
                ("revision", models.IntegerField(default=1)),
                ("enabled", models.BooleanField(default=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "db_table": "documents",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="WorkerHeartbeat",
            fields=[
                ("name", models.CharField(max_length=200, primary_key=True, serialize=False)),
                ("host", models.TextField(default="")),
                ("pid", models.IntegerField(default=0)),
                ("job", models.UUIDField(blank=True, null=True)),
                ("jobs_done", models.IntegerField(default=0)),
                ("memory_mb", models.IntegerField(default=0)),
                ("started_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("beat_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "db_table": "worker_heartbeats",
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="IdempotencyRecord",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("owner", models.CharField(max_length=64)),
                ("key", models.CharField(max_length=255)),
                ("request_hash", models.CharField(max_length=64)),
                ("status", models.IntegerField(blank=True, null=True)),
                ("response", models.JSONField(blank=True, null=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                "db_table": "idempotency_records",
                "indexes": [models.Index(fields=["created_at"], name="idempotency_created_idx")],
                "constraints": [models.UniqueConstraint(fields=("owner", "key"), name="idempotency_owner_key")],
            },
        ),
        migrations.CreateModel(
            name="Upload",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("doc_id", models.TextField(db_collation="C")),
                ("sha256", models.CharField(max_length=64)),
                ("name", models.TextField()),
                ("media_type", models.TextField(default="application/octet-stream")),
                ("size_bytes", models.BigIntegerField()),
                ("content", models.BinaryField()),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "collection",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="uploads",
                        to="collections_app.collection",
                    ),
                ),
            ],
            options={
                "db_table": "uploads",
            },
        ),
        migrations.CreateModel(
            name="IngestJob",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("doc_id", models.TextField(blank=True, db_collation="C", default="")),
                ("title", models.TextField(blank=True, default="")),
                (
                    "tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                ("metadata", models.JSONField(blank=True, default=dict)),
                ("source", models.TextField(blank=True, default="")),
                ("policy", models.JSONField(blank=True, null=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[("file", "File"), ("reindex", "Re-index"), ("build_index", "Build vector index")],
                        default="file",
                        max_length=16,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "Queued"),
                            ("running", "Running"),
                            ("succeeded", "Succeeded"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="queued",
                        max_length=16,
                    ),
                ),
                (
                    "stage",
                    models.CharField(
                        choices=[
                            ("queued", "Queued"),
                            ("parse", "Parse"),
                            ("chunk", "Chunk"),
                            ("embed", "Embed"),
                            ("store", "Store"),
                            ("done", "Done"),
                        ],
                        default="queued",
                        max_length=16,
                    ),
                ),
                ("chunks_total", models.IntegerField(default=0)),
                ("chunks_done", models.IntegerField(default=0)),
                ("chars", models.IntegerField(default=0)),
                ("unchanged", models.BooleanField(default=False)),
                ("attempts", models.IntegerField(default=0)),
                ("sent_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                ("worker", models.TextField(blank=True, default="")),
                ("error_type", models.CharField(blank=True, default="", max_length=64)),
                ("error", models.TextField(blank=True, default="")),
                ("warnings", models.JSONField(blank=True, default=list)),
                ("timings_ms", models.JSONField(blank=True, default=dict)),
                ("traceparent", models.CharField(blank=True, default="", max_length=64)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("created_by", models.TextField(blank=True, default="")),
                (
                    "collection",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="jobs",
                        to="collections_app.collection",
                    ),
                ),
                (
                    "upload",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="jobs",
                        to="collections_app.upload",
                    ),
                ),
            ],
            options={
                "db_table": "ingest_jobs",
            },
        ),
        migrations.AddIndex(
            model_name="upload",
            index=models.Index(fields=["collection", "doc_id"], name="uploads_document_idx"),
        ),
        migrations.AddIndex(
            model_name="ingestjob",
            index=models.Index(fields=["collection", "-created_at", "-id"], name="ingest_jobs_newest_idx"),
        ),
        migrations.AddIndex(
            model_name="ingestjob",
            index=models.Index(
                condition=models.Q(("state__in", ("queued", "running"))),
                fields=["state", "lease_until"],
                name="ingest_jobs_active_idx",
            ),
        ),
        migrations.AddConstraint(
            model_name="ingestjob",
            constraint=models.UniqueConstraint(
                condition=models.Q(("kind", "build_index"), ("state__in", ("queued", "running"))),
                fields=("collection",),
                name="ingest_jobs_one_build",
            ),
        ),
    ]
