from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0014_chunk_marks")]

    operations = [
        migrations.AddField("evaluationrun", "calibration", models.TextField(blank=True, default="")),
    ]
