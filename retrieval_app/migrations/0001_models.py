"""Query runs, plans, calibrations and chats."""

import django.contrib.postgres.fields
import django.core.serializers.json
import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('collections_app', '0002_tables'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ChatAssistant',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80, unique=True)),
                ('slug', models.SlugField(max_length=80, unique=True)),
                ('llm_model', models.TextField(blank=True, default='')),
                ('prompt', models.TextField(blank=True, default='')),
                ('greeting', models.TextField(blank=True, default='')),
                ('starters', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                ('collection_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), default=list, size=None)),
                ('is_public', models.BooleanField(default=False)),
                ('origins', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                ('per_minute', models.PositiveIntegerField(default=5)),
                ('per_day', models.PositiveIntegerField(default=50)),
                ('created_by', models.TextField(blank=True, default='')),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'verbose_name': 'assistant',
                'db_table': 'chat_assistants',
            },
        ),
        migrations.CreateModel(
            name='ChatThread',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('title', models.CharField(max_length=120)),
                ('collection_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), blank=True, default=list, size=None)),
                ('shared', models.BooleanField(default=False)),
                ('rewrites', models.BooleanField(default=True)),
                ('pinned', models.BooleanField(db_default=False, default=False)),
                ('archived', models.BooleanField(db_default=False, default=False)),
                ('has_files', models.BooleanField(db_default=False, default=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('assistant', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='retrieval_app.chatassistant')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'thread',
                'db_table': 'chat_threads',
                'indexes': [
                    models.Index(fields=['user', '-updated_at', '-id'], name='chat_threads_newest'),
                ],
            },
        ),
        migrations.CreateModel(
            name='ChatMessage',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('position', models.IntegerField()),
                ('question', models.TextField()),
                ('run_id', models.UUIDField(db_column='run', db_index=True)),
                ('other_run_id', models.UUIDField(blank=True, db_column='other_run', null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('writing_until', models.DateTimeField(blank=True, null=True)),
                ('stop_requested', models.BooleanField(db_default=False, default=False)),
                ('thread', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='messages', to='retrieval_app.chatthread')),
            ],
            options={
                'verbose_name': 'message',
                'db_table': 'chat_messages',
                'constraints': [
                    models.UniqueConstraint(fields=('thread', 'position'), name='chat_message_place'),
                ],
            },
        ),
        migrations.CreateModel(
            name='QueryRun',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('search', 'Search'), ('ask', 'Answer')], max_length=10)),
                ('collection_name', models.TextField()),
                ('query', models.TextField()),
                ('plan', models.JSONField(default=dict)),
                ('plan_hash', models.CharField(blank=True, max_length=64)),
                ('plan_name', models.TextField(blank=True)),
                ('index_version', models.IntegerField(default=1)),
                ('embed_model', models.TextField(blank=True)),
                ('spec_version', models.CharField(blank=True, max_length=20)),
                ('retrieved_ids', models.JSONField(blank=True, default=list)),
                ('results', models.JSONField(blank=True, default=list, encoder=django.core.serializers.json.DjangoJSONEncoder)),
                ('lists', models.JSONField(blank=True, default=dict)),
                ('short_result', models.JSONField(blank=True, null=True)),
                ('exact_used', models.BooleanField(blank=True, null=True)),
                ('compression', models.JSONField(blank=True, null=True)),
                ('store_state', models.JSONField(blank=True, default=dict)),
                ('elsewhere', models.JSONField(blank=True, db_default=models.Value({}, models.JSONField()), default=dict)),
                ('replay_of', models.UUIDField(blank=True, null=True)),
                ('answer', models.TextField(blank=True, null=True)),
                ('answerer', models.TextField(blank=True)),
                ('system_prompt', models.TextField(blank=True)),
                ('history', models.JSONField(blank=True, default=list)),
                ('sources', models.JSONField(blank=True, default=list)),
                ('citations', models.JSONField(blank=True, default=list)),
                ('sentences', models.JSONField(blank=True, default=list)),
                ('removed_citations', models.IntegerField(default=0)),
                ('trace_scores', models.JSONField(blank=True, null=True)),
                ('evidence', models.FloatField(blank=True, null=True)),
                ('retrieval_confidence', models.FloatField(blank=True, null=True)),
                ('doc_contribution_scores', models.JSONField(blank=True, null=True)),
                ('retrieval_action', models.TextField(blank=True)),
                ('fallback_triggered', models.BooleanField(default=False)),
                ('correction', models.JSONField(blank=True, null=True)),
                ('token_usage', models.JSONField(blank=True, default=dict)),
                ('cost_usd', models.FloatField(blank=True, null=True)),
                ('findings', models.JSONField(blank=True, default=list)),
                ('risk_score', models.FloatField(blank=True, null=True)),
                ('timings_ms', models.JSONField(blank=True, default=dict)),
                ('degraded', models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list)),
                ('status', models.CharField(choices=[('ok', 'Answered'), ('abstained', 'No answer'), ('error', 'Error'), ('refused', 'Blocked')], default='ok', max_length=10)),
                ('error', models.TextField(blank=True)),
                ('error_type', models.CharField(blank=True, max_length=60)),
                ('channel', models.CharField(choices=[('page', 'Web'), ('api', 'API'), ('mcp', 'MCP'), ('cli', 'CLI'), ('chat', 'Chat'), ('worker', 'Worker')], max_length=10)),
                ('environment', models.CharField(choices=[('production', 'Production'), ('evaluation', 'Evaluation'), ('playground', 'Playground')], db_default='production', default='production', max_length=10)),
                ('trace_id', models.CharField(blank=True, max_length=32)),
                ('conversation_id', models.TextField(blank=True, db_default='', default='')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('api_key_label', models.TextField(blank=True)),
                ('collection', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='runs', to='collections_app.collection')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'query run',
                'ordering': ['-created_at', '-id'],
                'indexes': [
                    models.Index(fields=['-created_at', '-id'], name='queryrun_newest'),
                    models.Index(fields=['collection_name', '-created_at', '-id'], name='queryrun_collection_newest'),
                    models.Index(fields=['trace_id'], name='queryrun_trace'),
                    models.Index(fields=['environment', '-created_at', '-id'], name='queryrun_environment_newest'),
                    models.Index(condition=models.Q(('conversation_id', ''), _negated=True), fields=['conversation_id', 'created_at', 'id'], name='queryrun_conversation'),
                    models.Index(condition=models.Q(('degraded', []), _negated=True), fields=['-created_at', '-id'], name='queryrun_degraded_newest'),
                ],
            },
        ),
        migrations.CreateModel(
            name='RetrievedChunk',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('doc_id', models.TextField(db_collation='C')),
                ('chunk_index', models.IntegerField()),
                ('revision', models.IntegerField()),
                ('rank', models.IntegerField()),
                ('cited', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField()),
                ('collection', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='collections_app.collection')),
                ('run', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='retrieved', to='retrieval_app.queryrun')),
            ],
            options={
                'verbose_name': 'retrieved chunk',
                'constraints': [
                    models.UniqueConstraint(fields=('run', 'rank'), name='retrievedchunk_place'),
                ],
                'indexes': [
                    models.Index(fields=['collection', 'doc_id', 'chunk_index', '-created_at'], include=('run', 'rank', 'cited', 'revision'), name='retrievedchunk_chunk'),
                ],
            },
        ),
        migrations.CreateModel(
            name='SavedPlan',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.TextField(db_collation='C')),
                ('plan', models.JSONField(default=dict)),
                ('description', models.TextField(blank=True, default='')),
                ('is_default', models.BooleanField(default=False)),
                ('created_by', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('collection', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='plans', to='collections_app.collection')),
            ],
            options={
                'ordering': ['collection', 'name'],
                'constraints': [
                    models.UniqueConstraint(fields=('collection', 'name'), name='savedplan_name'),
                    models.UniqueConstraint(condition=models.Q(('is_default', True)), fields=('collection',), name='savedplan_one_default'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Calibration',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('weights', models.JSONField(default=dict)),
                ('upper', models.FloatField(blank=True, null=True)),
                ('lower', models.FloatField(blank=True, null=True)),
                ('embed_model', models.TextField()),
                ('data', models.JSONField(default=dict)),
                ('figures', models.JSONField(default=dict)),
                ('corrects', models.BooleanField(default=False)),
                ('created_by', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('collection', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='collections_app.collection')),
            ],
            options={
                'ordering': ['collection'],
                'constraints': [models.UniqueConstraint(fields=('collection',), name='calibration_one')],
            },
        ),
    ]
