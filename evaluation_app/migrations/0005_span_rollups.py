"""What spans add up to by the hour, for the overview."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0004_span_search")]

    operations = [
        migrations.CreateModel(
            name="SpanRollup",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("hour", models.DateTimeField()),
                ("type", models.TextField(blank=True, default="")),
                ("collection", models.TextField(blank=True, default="")),
                ("model", models.TextField(blank=True, default="")),
                ("api_key", models.TextField(blank=True, default="")),
                ("bucket", models.SmallIntegerField()),
                ("spans", models.IntegerField()),
                ("failed", models.IntegerField(default=0)),
                ("input_tokens", models.BigIntegerField(default=0)),
                ("output_tokens", models.BigIntegerField(default=0)),
                ("cost_usd", models.FloatField(default=0.0)),
                ("priced", models.IntegerField(default=0)),
            ],
            options={
                "db_table": "span_rollups",
                "indexes": [models.Index(fields=["hour"], name="span_rollups_hour")],
            },
        ),
    ]
