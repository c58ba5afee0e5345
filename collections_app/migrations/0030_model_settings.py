"""Model endpoints that administrators set up in the interface."""

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('collections_app', '0029_chunk_attributes'),
    ]

    operations = [
        migrations.CreateModel(
            name='ModelSetting',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100, unique=True)),
                ('purpose', models.CharField(choices=[('embeddings', 'Embeddings'), ('rerank', 'Reranking'), ('chat', 'Chat'), ('judge', 'Judge')], max_length=16)),
                ('preset', models.CharField(max_length=32)),
                ('base_url', models.CharField(max_length=500)),
                ('model', models.CharField(blank=True, max_length=200)),
                ('identity', models.CharField(blank=True, editable=False, max_length=210)),
                ('dims', models.IntegerField(blank=True, null=True)),
                ('window', models.IntegerField(blank=True, null=True)),
                ('query_prompt', models.CharField(blank=True, default='', max_length=1000)),
                ('passage_prompt', models.CharField(blank=True, default='', max_length=1000)),
                ('send_dimensions', models.BooleanField(default=False)),
                ('api_version', models.CharField(blank=True, default='', max_length=32)),
                ('secret', models.TextField(blank=True, default='', editable=False)),
                ('is_default', models.BooleanField(default=False)),
                ('created_by', models.TextField(blank=True, default='', editable=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'db_table': 'model_settings',
                'ordering': ['purpose', 'name'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('purpose', 'embeddings')), fields=('identity',), name='model_settings_identity'), models.UniqueConstraint(condition=models.Q(('is_default', True)), fields=('purpose',), name='model_settings_default')],
            },
        ),
    ]
