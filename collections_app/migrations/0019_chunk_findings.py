"""What was found in chunks that may do harm, and how far it was looked for."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('collections_app', '0018_job_costs'),
    ]

    operations = [
        migrations.CreateModel(
            name='FindingScan',
            fields=[
                ('collection', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='finding_scan', serialize=False, to='collections_app.collection')),
                ('generation', models.IntegerField()),
                ('rules', models.CharField(max_length=64)),
                ('chunks_scanned', models.BigIntegerField(default=0)),
                ('complete', models.BooleanField(default=False)),
                ('reached_doc_id', models.TextField(blank=True, db_collation='C', default='')),
                ('reached_index', models.IntegerField(default=-1)),
                ('took_ms', models.FloatField(default=0)),
                ('scanned_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'finding_scans',
            },
        ),
        migrations.CreateModel(
            name='ChunkFindings',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('doc_id', models.TextField(db_collation='C')),
                ('chunk_index', models.IntegerField()),
                ('revision', models.IntegerField()),
                ('families', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), default=list, size=None)),
                ('findings', models.JSONField(default=list)),
                ('risk_score', models.FloatField()),
                ('collection', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='chunk_findings', to='collections_app.collection')),
            ],
            options={
                'db_table': 'chunk_findings',
                'indexes': [models.Index(fields=['collection', '-risk_score', 'doc_id', 'chunk_index'], name='chunk_findings_risk')],
                'constraints': [models.UniqueConstraint(fields=('collection', 'doc_id', 'chunk_index'), name='chunk_findings_key')],
            },
        ),
    ]
