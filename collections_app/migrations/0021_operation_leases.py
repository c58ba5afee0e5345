"""Operations that a worker does are held by the lease that all background work has; the file of one is stored."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

# One that runs while this does keeps its two minutes. A check that waits for a worker is sent again.
FILL = """
UPDATE operations SET lease_until = beat_at + interval '2 minutes', sent_at = created_at WHERE state = 'running';
UPDATE operations SET arguments = '{}', lease_until = NULL
WHERE state = 'running' AND kind = 'check' AND stage = 'waits for a worker';
"""
UNCOMPRESSED = "ALTER TABLE operation_files ALTER COLUMN content SET STORAGE EXTERNAL"


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0020_generation_gates")]

    operations = [
        migrations.AddField("operation", "worker", models.TextField(blank=True, default="")),
        migrations.AddField("operation", "attempts", models.IntegerField(default=0)),
        migrations.AddField("operation", "attempts_forgiven", models.IntegerField(default=0)),
        migrations.AddField(
            "operation", "sent_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)
        ),
        migrations.AddField("operation", "lease_until", models.DateTimeField(blank=True, null=True)),
        migrations.AddField("operation", "arguments", models.JSONField(blank=True, null=True)),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AlterField(
            "operation", "beat_at", models.DateTimeField(db_column="beat_at", default=django.utils.timezone.now)
        ),
        migrations.RenameField("operation", "beat_at", "heartbeat_at"),
        migrations.CreateModel(
            "OperationFile",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("position", models.IntegerField()),
                ("content", models.BinaryField()),
                (
                    "operation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="files",
                        to="collections_app.operation",
                    ),
                ),
            ],
            options={
                "db_table": "operation_files",
                "constraints": [
                    models.UniqueConstraint(fields=("operation", "position"), name="operation_files_position")
                ],
            },
        ),
        migrations.RunSQL(UNCOMPRESSED, migrations.RunSQL.noop),
    ]
