"""Conformance runs and sampling are held by the lease that all background work has."""

import django.utils.timezone
from django.db import migrations, models

FILL = """
UPDATE conformance_results SET finished_at = now(), error = 'its worker must have died; try again'
WHERE finished_at IS NULL AND started_at < now() - interval '10 minutes'
"""


def lease_fields(model: str) -> list[migrations.AddField]:
    return [
        migrations.AddField(model, "worker", models.TextField(blank=True, default="")),
        migrations.AddField(model, "attempts", models.IntegerField(default=0)),
        migrations.AddField(model, "attempts_forgiven", models.IntegerField(default=0)),
        migrations.AddField(model, "sent_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
        migrations.AddField(model, "lease_until", models.DateTimeField(blank=True, null=True)),
        migrations.AddField(model, "heartbeat_at", models.DateTimeField(blank=True, null=True)),
    ]


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0017_evaluation_run_leases")]

    operations = [
        *lease_fields("conformanceresult"),
        *lease_fields("sampling"),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]
