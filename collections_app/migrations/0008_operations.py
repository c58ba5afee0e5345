"""What is done to whole collections outside the jobs: exports, imports, checks, retention, deletions."""

import django.utils.timezone
import uuid
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('collections_app', '0007_switched_off'),
    ]

    operations = [
        migrations.CreateModel(
            name='Operation',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('export', 'Export'), ('import', 'Import'), ('check', 'Check'), ('retention', 'Retention'), ('deletion', 'Deletion')], max_length=16)),
                ('state', models.CharField(choices=[('running', 'Running'), ('succeeded', 'Succeeded'), ('failed', 'Failed')], default='running', max_length=16)),
                ('subject', models.TextField(blank=True, db_collation='C', default='')),
                ('stage', models.TextField(blank=True, default='')),
                ('done', models.BigIntegerField(default=0)),
                ('total', models.BigIntegerField(default=0)),
                ('findings', models.IntegerField(default=0)),
                ('report', models.JSONField(blank=True, default=dict)),
                ('error_type', models.CharField(blank=True, default='', max_length=64)),
                ('error', models.TextField(blank=True, default='')),
                ('created_by', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('beat_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'operations',
                'ordering': ['-created_at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='Provider',
            fields=[
                ('name', models.CharField(max_length=300, primary_key=True, serialize=False)),
                ('failures', models.IntegerField(default=0)),
                ('open_until', models.DateTimeField(blank=True, null=True)),
                ('opened_at', models.DateTimeField(blank=True, null=True)),
                ('probe_until', models.DateTimeField(blank=True, null=True)),
                ('error', models.TextField(blank=True, default='')),
                ('failed_at', models.DateTimeField(blank=True, null=True)),
                ('requests_left', models.FloatField(blank=True, null=True)),
                ('tokens_left', models.FloatField(blank=True, null=True)),
                ('filled_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'providers',
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Report',
            fields=[
                ('name', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('values', models.JSONField(blank=True, default=dict)),
                ('made_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'reports',
                'ordering': ['name'],
            },
        ),
        migrations.AddField(
            model_name='ingestjob',
            name='lane',
            field=models.SmallIntegerField(default=0),
        ),
        migrations.AddIndex(
            model_name='ingestjob',
            index=models.Index(fields=['finished_at'], name='ingest_jobs_finished_idx'),
        ),
        migrations.AddIndex(
            model_name='operation',
            index=models.Index(fields=['kind', '-created_at', '-id'], name='operations_kind_idx'),
        ),
        migrations.AddIndex(
            model_name='operation',
            index=models.Index(fields=['subject', '-created_at', '-id'], name='operations_subject_idx'),
        ),
    ]
