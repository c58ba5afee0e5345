from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0013_sampling_enabled_at")]

    operations = [
        migrations.AddField(
            model_name="goldenquestion",
            name="chunk_marks",
            field=models.JSONField(blank=True, default=dict, editable=False),
        ),
    ]
