from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0010_evaluation_run_attempts")]

    operations = [
        migrations.AddField("goldenset", "bands", models.JSONField(blank=True, default=dict)),
    ]
