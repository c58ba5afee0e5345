"""Revisions of documents, changes to chunks, batches and stages of jobs; archived documents; retention."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
import uuid
from django.db import migrations, models


ADD_COLUMNS = """
ALTER TABLE collections ADD COLUMN IF NOT EXISTS retention jsonb NOT NULL DEFAULT '{}';
ALTER TABLE documents ADD COLUMN IF NOT EXISTS archived_at timestamptz;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('collections_app', '0005_postings'),
    ]

    operations = [
        migrations.RunSQL(
            ADD_COLUMNS,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddField("collection", "retention", models.JSONField(blank=True, default=dict)),
                migrations.AddField(
                    "document", "archived_at", models.DateTimeField(blank=True, editable=False, null=True)
                ),
            ],
        ),
        migrations.AddField(
            model_name='ingestjob',
            name='origin',
            field=models.JSONField(blank=True, default=dict),
        ),
        migrations.AddField(
            model_name='ingestjob',
            name='stages',
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AlterField(
            model_name='ingestjob',
            name='kind',
            field=models.CharField(choices=[('file', 'File'), ('fetch', 'Fetch'), ('archive', 'Unpack archive'), ('reindex', 'Re-index'), ('build_index', 'Build vector index'), ('probe_recall', 'Probe recall'), ('generation', 'Build generation')], default='file', max_length=16),
        ),
        migrations.AlterField(
            model_name='ingestjob',
            name='stage',
            field=models.CharField(choices=[('queued', 'Queued'), ('fetch', 'Fetch'), ('parse', 'Parse'), ('chunk', 'Chunk'), ('embed', 'Embed'), ('store', 'Store'), ('probe', 'Probe'), ('done', 'Done')], default='queued', max_length=16),
        ),
        migrations.AlterField(
            model_name='ingestjob',
            name='state',
            field=models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('succeeded', 'Succeeded'), ('failed', 'Failed'), ('cancelled', 'Cancelled'), ('quarantined', 'Quarantined')], default='queued', max_length=16),
        ),
        migrations.CreateModel(
            name='ChunkOverlay',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('doc_id', models.TextField(db_collation='C')),
                ('kind', models.CharField(choices=[('edit', 'Edited'), ('disable', 'Disabled'), ('add', 'Added')], max_length=10)),
                ('anchor_hash', models.CharField(blank=True, default='', max_length=64)),
                ('anchor_text', models.TextField(blank=True, default='')),
                ('start_char', models.IntegerField(default=0)),
                ('content', models.TextField(blank=True, default='')),
                ('applies', models.BooleanField(default=True)),
                ('revision', models.IntegerField(default=1)),
                ('created_by', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('collection', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='overlays', to='collections_app.collection')),
            ],
            options={
                'db_table': 'chunk_overlays',
            },
        ),
        migrations.CreateModel(
            name='DocumentRevision',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('doc_id', models.TextField(db_collation='C')),
                ('revision', models.IntegerField()),
                ('title', models.TextField(blank=True, default='')),
                ('tags', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                ('metadata', models.JSONField(blank=True, default=dict)),
                ('source', models.TextField(blank=True, default='')),
                ('media_type', models.TextField(default='text/plain')),
                ('text', models.TextField(blank=True, default='')),
                ('size_chars', models.IntegerField(default=0)),
                ('content_hash', models.TextField(blank=True, default='')),
                ('source_hash', models.TextField(blank=True, default='')),
                ('page_map', models.JSONField(blank=True, default=list)),
                ('segments', models.JSONField(blank=True, default=list)),
                ('chunk_policy', models.JSONField(blank=True, default=dict)),
                ('warnings', models.JSONField(blank=True, default=list)),
                ('chunk_count', models.IntegerField(default=0)),
                ('chunks', models.JSONField(blank=True, default=list)),
                ('made_at', models.DateTimeField()),
                ('replaced_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('replaced_by', models.TextField(blank=True, default='')),
                ('reason', models.TextField(blank=True, default='')),
                ('collection', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='revisions', to='collections_app.collection')),
            ],
            options={
                'db_table': 'document_revisions',
                'ordering': ['collection', 'doc_id', '-revision'],
            },
        ),
        migrations.CreateModel(
            name='IngestBatch',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('upload', 'Upload'), ('folder', 'Folder'), ('archive', 'Archive'), ('urls', 'Addresses'), ('s3', 'Bucket'), ('sync', 'Sync'), ('reindex', 'Re-index')], default='upload', max_length=16)),
                ('label', models.TextField(blank=True, default='')),
                ('submitted', models.IntegerField(default=0)),
                ('skipped', models.IntegerField(default=0)),
                ('unchanged', models.IntegerField(default=0)),
                ('rejected', models.IntegerField(default=0)),
                ('deleted', models.IntegerField(default=0)),
                ('open', models.BooleanField(default=False)),
                ('created_by', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('collection', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='batches', to='collections_app.collection')),
            ],
            options={
                'verbose_name_plural': 'ingest batches',
                'db_table': 'ingest_batches',
            },
        ),
        migrations.AddField(
            model_name='ingestjob',
            name='batch',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='jobs', to='collections_app.ingestbatch'),
        ),
        migrations.AddIndex(
            model_name='ingestjob',
            index=models.Index(fields=['batch', 'state'], name='ingest_jobs_batch_idx'),
        ),
        migrations.AddIndex(
            model_name='chunkoverlay',
            index=models.Index(fields=['collection', 'doc_id', 'id'], name='chunk_overlays_document_idx'),
        ),
        migrations.AddConstraint(
            model_name='chunkoverlay',
            constraint=models.UniqueConstraint(condition=models.Q(('kind', 'add'), _negated=True), fields=('collection', 'doc_id', 'kind', 'anchor_hash', 'start_char'), name='chunk_overlays_one_per_chunk'),
        ),
        migrations.AddConstraint(
            model_name='documentrevision',
            constraint=models.UniqueConstraint(fields=('collection', 'doc_id', 'revision'), name='document_revisions_key'),
        ),
        migrations.AddIndex(
            model_name='ingestbatch',
            index=models.Index(fields=['collection', '-created_at', '-id'], name='ingest_batches_newest_idx'),
        ),
    ]
