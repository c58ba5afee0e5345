"""Two lanes of the queue, what finished lately, endpoints as all workers know them, last results."""

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0008_operations")]

    operations = [
        migrations.CreateModel(
            name="Provider",
            fields=[
                ("name", models.CharField(max_length=300, primary_key=True, serialize=False)),
                ("failures", models.IntegerField(default=0)),
                ("open_until", models.DateTimeField(blank=True, null=True)),
                ("opened_at", models.DateTimeField(blank=True, null=True)),
                ("probe_until", models.DateTimeField(blank=True, null=True)),
                ("error", models.TextField(blank=True, default="")),
                ("failed_at", models.DateTimeField(blank=True, null=True)),
                ("requests_left", models.FloatField(blank=True, null=True)),
                ("tokens_left", models.FloatField(blank=True, null=True)),
                ("filled_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={"db_table": "providers", "ordering": ["name"]},
        ),
        migrations.CreateModel(
            name="Report",
            fields=[
                ("name", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("values", models.JSONField(blank=True, default=dict)),
                ("made_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={"db_table": "reports", "ordering": ["name"]},
        ),
        migrations.AddField(
            model_name="ingestjob",
            name="lane",
            field=models.SmallIntegerField(default=0),
        ),
        migrations.AddIndex(
            model_name="ingestjob",
            index=models.Index(fields=["finished_at"], name="ingest_jobs_finished_idx"),
        ),
    ]
