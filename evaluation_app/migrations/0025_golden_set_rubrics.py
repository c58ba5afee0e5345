"""A test set's own rubrics."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0024_run_comparisons")]

    operations = [
        migrations.AddField("goldenset", "rubrics", models.JSONField(blank=True, default=list)),
    ]
