"""Whether any or all of what a question expects is needed. Those that are there were measured as "all"."""

from __future__ import annotations

from django.db import migrations, models

CHOICES = [("any", "Any of them"), ("all", "All of them")]


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0019_standard_labels")]

    operations = [
        migrations.AddField("goldenquestion", "match", models.CharField(choices=CHOICES, default="all", max_length=3)),
    ]
