"""What each process has counted, for all of them to be read at one address."""


import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('evaluation_app', '0002_conformance_results'),
    ]

    operations = [
        migrations.CreateModel(
            name='MetricSnapshot',
            fields=[
                ('name', models.CharField(max_length=200, primary_key=True, serialize=False)),
                ('service', models.CharField(blank=True, default='', max_length=100)),
                ('data', models.JSONField(blank=True, default=list)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'metric_snapshots',
                'ordering': ['name'],
            },
        ),
    ]
