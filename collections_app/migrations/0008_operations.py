"""What is done to whole collections outside the jobs: exports, imports, checks, retention, deletions."""

import uuid

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("collections_app", "0007_switched_off"),
    ]

    operations = [
        migrations.CreateModel(
            name="Operation",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("export", "Export"),
                            ("import", "Import"),
                            ("check", "Check"),
                            ("retention", "Retention"),
                            ("deletion", "Deletion"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("running", "Running"), ("succeeded", "Succeeded"), ("failed", "Failed")],
                        default="running",
                        max_length=16,
                    ),
                ),
                ("subject", models.TextField(blank=True, db_collation="C", default="")),
                ("stage", models.TextField(blank=True, default="")),
                ("done", models.BigIntegerField(default=0)),
                ("total", models.BigIntegerField(default=0)),
                ("findings", models.IntegerField(default=0)),
                ("report", models.JSONField(blank=True, default=dict)),
                ("error_type", models.CharField(blank=True, default="", max_length=64)),
                ("error", models.TextField(blank=True, default="")),
                ("created_by", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("beat_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "db_table": "operations",
                "ordering": ["-created_at", "-id"],
                "indexes": [
                    models.Index(fields=["kind", "-created_at", "-id"], name="operations_kind_idx"),
                    models.Index(fields=["subject", "-created_at", "-id"], name="operations_subject_idx"),
                ],
            },
        ),
    ]
