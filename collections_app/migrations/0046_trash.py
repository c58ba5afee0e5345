"""Deleted documents that can be restored."""

import django.db.models.deletion
import django.utils.timezone
import pgvector.django.vector
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('collections_app', '0045_personal_settings'),
    ]

    operations = [
        migrations.CreateModel(
            name='TrashedDocument',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('doc_id', models.TextField(db_collation='C')),
                ('title', models.TextField(default='')),
                ('source', models.TextField(default='')),
                ('media_type', models.TextField(default='text/plain')),
                ('chunk_count', models.IntegerField(default=0)),
                ('revision', models.IntegerField(default=1)),
                ('embed_model', models.TextField(default='')),
                ('embed_dims', models.IntegerField(default=0)),
                ('document', models.JSONField()),
                ('revisions', models.JSONField(default=list)),
                ('overlays', models.JSONField(default=list)),
                ('pages', models.JSONField(default=list)),
                ('fetched', models.JSONField(null=True)),
                ('deleted_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('deleted_by', models.TextField(default='')),
                ('collection', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='trashed', to='collections_app.collection')),
            ],
            options={
                'db_table': 'trashed_documents',
            },
        ),
        migrations.CreateModel(
            name='TrashedChunk',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('doc_id', models.TextField(db_collation='C')),
                ('chunk_index', models.IntegerField()),
                ('content', models.TextField()),
                ('context', models.TextField(default='')),
                ('embedding', pgvector.django.vector.VectorField()),
                ('collection', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='collections_app.collection')),
                ('trashed', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='chunks', to='collections_app.trasheddocument')),
            ],
            options={
                'db_table': 'trashed_chunks',
            },
        ),
        migrations.CreateModel(
            name='TrashedFile',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('doc_id', models.TextField(db_collation='C')),
                ('sha256', models.CharField(max_length=64)),
                ('name', models.TextField()),
                ('media_type', models.TextField()),
                ('size_bytes', models.BigIntegerField()),
                ('content', models.BinaryField()),
                ('created_at', models.DateTimeField()),
                ('collection', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='collections_app.collection')),
                ('trashed', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='files', to='collections_app.trasheddocument')),
            ],
            options={
                'db_table': 'trashed_files',
            },
        ),
        migrations.AddIndex(
            model_name='trasheddocument',
            index=models.Index(fields=['collection', '-deleted_at', '-id'], name='trashed_documents_newest_idx'),
        ),
        migrations.AddIndex(
            model_name='trashedchunk',
            index=models.Index(fields=['collection', 'doc_id'], name='trashed_chunks_document_idx'),
        ),
    ]
