"""Whether any or all of what a question expects is needed. Those that are there were measured as "all"."""

from __future__ import annotations

from django.db import migrations, models

CHOICES = [("any", "Any of them"), ("all", "All of them")]


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0020_golden_set_criteria")]

    operations = [
        migrations.AddField("goldenquestion", "match", models.CharField(choices=CHOICES, default="all", max_length=3)),
    ]
