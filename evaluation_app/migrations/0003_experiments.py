"""Experiments take the place of sweeps, bake-offs and tried fixes, whose rows go: nothing was released with them."""

import django.db.models.deletion
import django.utils.timezone
import uuid
from django.db import migrations, models


class Migration(migrations.Migration):

    safe = {'removed': 'nothing was released with these tables'}

    dependencies = [
        ('evaluation_app', '0002_spans'),
    ]

    operations = [
        migrations.CreateModel(
            name='Experiment',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('plans', 'Retrieval settings'), ('models', 'Embedding models'), ('fix', 'Fix')], max_length=10)),
                ('set_name', models.CharField(blank=True, default='', max_length=200)),
                ('set_version', models.IntegerField(default=0)),
                ('set_digest', models.CharField(blank=True, default='', max_length=64)),
                ('collection_name', models.TextField(db_collation='C')),
                ('name', models.TextField(blank=True, default='')),
                ('grid', models.JSONField(default=dict)),
                ('variants', models.JSONField(default=list)),
                ('measure', models.CharField(blank=True, default='', max_length=60)),
                ('settings', models.JSONField(default=dict)),
                ('questions', models.JSONField(default=list)),
                ('doc_ids', models.JSONField(default=list)),
                ('outcome', models.CharField(choices=[('open', 'Open'), ('kept', 'Kept'), ('discarded', 'Discarded')], default='open', max_length=10)),
                ('saved_as', models.TextField(blank=True, default='')),
                ('is_default', models.BooleanField(default=False)),
                ('decided_by', models.TextField(blank=True, default='')),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'db_table': 'experiments',
                'ordering': ['-created_at', '-id'],
            },
        ),
        migrations.DeleteModel(
            name='BakeOff',
        ),
        migrations.RemoveField(
            model_name='evaluationrun',
            name='sweep',
        ),
        migrations.RemoveField(
            model_name='triedfix',
            name='run',
        ),
        migrations.RemoveField(
            model_name='evaluationrun',
            name='base_run',
        ),
        migrations.RemoveField(
            model_name='evaluationrun',
            name='sweep_place',
        ),
        migrations.AddField(
            model_name='evaluationrun',
            name='place',
            field=models.IntegerField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name='evaluationrun',
            name='purpose',
            field=models.CharField(choices=[('manual', 'Manual'), ('api', 'API'), ('cli', 'CLI'), ('experiment', 'Experiment'), ('fix', 'Fix'), ('gate', 'Quality gate')], default='manual', max_length=10),
        ),
        migrations.AddField(
            model_name='experiment',
            name='base',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='fixes', to='evaluation_app.evaluationrun'),
        ),
        migrations.AddField(
            model_name='experiment',
            name='golden_set',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='experiments', to='evaluation_app.goldenset'),
        ),
        migrations.AddField(
            model_name='evaluationrun',
            name='experiment',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='evaluation_app.experiment'),
        ),
        migrations.DeleteModel(
            name='Sweep',
        ),
        migrations.DeleteModel(
            name='TriedFix',
        ),
    ]
