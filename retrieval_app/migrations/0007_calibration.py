"""Calibrations of collections, and what a run was thought to be worth; evidence gets a column of its own."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

# Collections are deleted by the library's SQL; their calibrations go with them.
GO_WITH_COLLECTION = """
ALTER TABLE retrieval_app_calibration ADD CONSTRAINT calibration_collection_fk
    FOREIGN KEY (collection_id) REFERENCES collections (id) ON DELETE CASCADE
"""

# What stood there until now was the evidence of an answer's best sentence, another figure under the same name.
MOVE_EVIDENCE = """
UPDATE retrieval_app_queryrun SET evidence = retrieval_confidence, retrieval_confidence = NULL
WHERE retrieval_confidence IS NOT NULL AND evidence IS NULL
"""


class Migration(migrations.Migration):
    dependencies = [
        ("collections_app", "0001_initial"),
        ("retrieval_app", "0006_refused"),
    ]

    operations = [
        migrations.AddField("queryrun", "evidence", models.FloatField(blank=True, null=True)),
        migrations.AddField("queryrun", "correction", models.JSONField(blank=True, null=True)),
        migrations.CreateModel(
            name="Calibration",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("weights", models.JSONField(default=dict)),
                ("upper", models.FloatField(blank=True, null=True)),
                ("lower", models.FloatField(blank=True, null=True)),
                ("embed_model", models.TextField()),
                ("data", models.JSONField(default=dict)),
                ("figures", models.JSONField(default=dict)),
                ("corrects", models.BooleanField(default=False)),
                ("created_by", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "collection",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="collections_app.collection",
                    ),
                ),
            ],
            options={
                "ordering": ["collection"],
                "constraints": [models.UniqueConstraint(fields=("collection",), name="calibration_one")],
            },
        ),
        migrations.RunSQL(GO_WITH_COLLECTION, migrations.RunSQL.noop),
        migrations.RunSQL(MOVE_EVIDENCE, migrations.RunSQL.noop),
    ]
