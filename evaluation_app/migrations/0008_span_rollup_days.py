"""Sums of spans by the day, beside those by the hour."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0007_span_rollup_sums")]

    operations = [
        migrations.AddField("spanrollup", "hours", models.SmallIntegerField(default=1)),
        migrations.RemoveIndex("spanrollup", name="span_rollups_read"),
        migrations.AddIndex(
            "spanrollup", models.Index(fields=["summed_over", "hours", "hour"], name="span_rollups_read")
        ),
    ]
