"""Creates the span store from spans.sql, and the golden questions."""

from __future__ import annotations

from pathlib import Path

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


SCHEMA = (Path(__file__).parent.parent / "spans.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.RunSQL(SCHEMA, migrations.RunSQL.noop),
        migrations.CreateModel(
            name="Span",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("trace_id", models.TextField(db_collation="C")),
                ("span_id", models.TextField(db_collation="C")),
                (
                    "parent_span_id",
                    models.TextField(blank=True, db_collation="C", null=True),
                ),
                ("name", models.TextField()),
                ("kind", models.TextField()),
                ("scope", models.TextField(blank=True, default="")),
                ("service", models.TextField(blank=True, default="")),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField()),
                ("duration_ms", models.FloatField()),
                ("status_code", models.TextField(default="UNSET")),
                ("status_description", models.TextField(blank=True, default="")),
                ("collection", models.TextField(blank=True, default="")),
                ("run_id", models.UUIDField(blank=True, null=True)),
                ("attributes", models.JSONField(blank=True, default=dict)),
                ("events", models.JSONField(blank=True, default=list)),
                ("links", models.JSONField(blank=True, default=list)),
                ("dropped_count", models.IntegerField(default=0)),
            ],
            options={
                "db_table": "spans",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="GoldenSet",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200, unique=True)),
                ("description", models.TextField(blank=True, default="")),
                ("collection_name", models.TextField(db_collation="C")),
                ("version", models.IntegerField(default=1)),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "db_table": "golden_sets",
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="SpanWriter",
            fields=[
                (
                    "name",
                    models.CharField(max_length=200, primary_key=True, serialize=False),
                ),
                ("written", models.BigIntegerField(default=0)),
                ("lost", models.BigIntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
                ("last_error_at", models.DateTimeField(blank=True, null=True)),
                ("updated_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "db_table": "span_writers",
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="GoldenQuestion",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("position", models.IntegerField(default=0)),
                ("question", models.TextField()),
                ("expected_doc_ids", models.JSONField(blank=True, default=list)),
                ("expected_chunks", models.JSONField(blank=True, default=list)),
                ("expected_answer", models.TextField(blank=True, default="")),
                ("category", models.CharField(default="factual", max_length=60)),
                ("weight", models.FloatField(default=1.0)),
                ("thresholds", models.JSONField(blank=True, default=dict)),
                ("notes", models.TextField(blank=True, default="")),
                ("suggested", models.BooleanField(default=False)),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "golden_set",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="questions",
                        to="evaluation_app.goldenset",
                    ),
                ),
            ],
            options={
                "db_table": "golden_questions",
                "ordering": ["golden_set", "position", "id"],
                "constraints": [
                    models.UniqueConstraint(fields=("golden_set", "question"), name="golden_question_once")
                ],
            },
        ),
    ]
