from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0009_evaluation_runs")]

    operations = [
        migrations.AddField("evaluationrun", "losses", models.IntegerField(default=0)),
        migrations.AddField("evaluationrun", "retries", models.IntegerField(default=0)),
    ]
