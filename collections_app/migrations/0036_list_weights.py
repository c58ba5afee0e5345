"""Fusion weights of a generation, measured in a job of their own kind."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('collections_app', '0035_filter_indexes'),
    ]

    operations = [
        migrations.AddField(
            model_name='generation',
            name='list_weights',
            field=models.JSONField(blank=True, db_default={}, default=dict),
        ),
        migrations.AddField(
            model_name='generation',
            name='list_weights_measured_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='generation',
            name='list_weights_report',
            field=models.JSONField(blank=True, db_default={}, default=dict),
        ),
        migrations.AlterField(
            model_name='ingestjob',
            name='kind',
            field=models.CharField(choices=[('file', 'File'), ('fetch', 'Fetch'), ('archive', 'Extract archive'), ('reindex', 'Re-index'), ('build_index', 'Build vector index'), ('probe_recall', 'Probe recall'), ('measure_weights', 'Measure fusion weights'), ('generation', 'Build index version')], default='file', max_length=16),
        ),
        migrations.AddConstraint(
            model_name='ingestjob',
            constraint=models.UniqueConstraint(condition=models.Q(('kind', 'measure_weights'), ('state__in', ('queued', 'running'))), fields=('collection',), name='ingest_jobs_one_measure'),
        ),
    ]
