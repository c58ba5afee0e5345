"""Evaluation runs are held by the lease that all background work has; `losses` is the tries that are not forgiven."""

import django.utils.timezone
from django.db import migrations, models

# A run that is worked at while this runs is taken over, as if its worker had died. One that waits was tried `losses`
# times at its question.
FILL = """
UPDATE evaluation_runs SET
    sent_at = coalesce(beat_at, created_at),
    lease_until = CASE WHEN state = 'running' THEN coalesce(beat_at, created_at) END,
    attempts_forgiven = greatest(attempts - losses - (state = 'running')::int, 0)
"""


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0016_drop_metric_snapshots")]

    operations = [
        migrations.AddField("evaluationrun", "attempts_forgiven", models.IntegerField(default=0)),
        migrations.AddField(
            "evaluationrun", "sent_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)
        ),
        migrations.AddField("evaluationrun", "lease_until", models.DateTimeField(blank=True, null=True)),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.RemoveIndex("evaluationrun", "evaluation_runs_state"),
        migrations.AlterField(
            "evaluationrun", "beat_at", models.DateTimeField(blank=True, db_column="beat_at", null=True)
        ),
        migrations.RenameField("evaluationrun", "beat_at", "heartbeat_at"),
        migrations.AddIndex(
            "evaluationrun", models.Index(fields=["state", "lease_until"], name="evaluation_runs_state")
        ),
        migrations.RemoveField("evaluationrun", "losses"),
    ]
