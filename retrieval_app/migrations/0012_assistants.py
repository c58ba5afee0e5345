"""Assistants of the chat."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('retrieval_app', '0011_searched_elsewhere'),
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
        migrations.AddField(
            model_name='chatthread',
            name='assistant',
            field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='retrieval_app.chatassistant'),
        ),
    ]
