"""Sums of spans are kept per set of what they are told apart by, with their durations in one row."""

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0006_span_senders")]

    operations = [
        migrations.RunSQL("DELETE FROM span_rollups", migrations.RunSQL.noop),  # the worker adds them up anew
        migrations.RemoveField("spanrollup", "bucket"),
        migrations.AddField("spanrollup", "summed_over", models.SmallIntegerField(), preserve_default=False),
        migrations.AddField("spanrollup", "buckets", ArrayField(models.SmallIntegerField()), preserve_default=False),
        migrations.AddField("spanrollup", "counts", ArrayField(models.IntegerField()), preserve_default=False),
        migrations.AddIndex("spanrollup", models.Index(fields=["summed_over", "hour"], name="span_rollups_read")),
    ]
