"""Whether a golden question was suggested because a search had found its document."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0025_golden_set_rubrics")]

    operations = [
        migrations.AddField("goldenquestion", "by_construction", models.BooleanField(default=False, editable=False)),
    ]
