"""Whether a golden question was suggested because a search had found its document."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0026_tried_fixes")]

    operations = [
        migrations.AddField("goldenquestion", "by_construction", models.BooleanField(default=False, editable=False)),
    ]
