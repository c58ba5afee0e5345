"""What documents were fetched from, and the hosts that were asked."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

# whoever deletes a document, by whatever statement, leaves nothing of it behind
FOLLOW_DOCUMENT = """
ALTER TABLE fetched_sources ADD CONSTRAINT fetched_sources_document_fk
    FOREIGN KEY (document_id) REFERENCES documents (id) ON DELETE CASCADE
"""


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0011_embedded_batches")]

    operations = [
        migrations.CreateModel(
            name="FetchHost",
            fields=[
                ("host", models.TextField(db_collation="C", primary_key=True, serialize=False)),
                ("next_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("robots", models.JSONField(blank=True, default=dict)),
                ("asked_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "db_table": "fetch_hosts",
                "indexes": [models.Index(fields=["asked_at"], name="fetch_hosts_asked_idx")],
            },
        ),
        migrations.CreateModel(
            name="FetchedSource",
            fields=[
                (
                    "document",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="fetched",
                        serialize=False,
                        to="collections_app.document",
                    ),
                ),
                ("kind", models.CharField(choices=[("url", "Address"), ("s3", "Bucket")], default="url", max_length=8)),
                ("address", models.TextField(db_collation="C")),
                ("endpoint", models.TextField(blank=True, default="")),
                ("final_address", models.TextField(blank=True, default="")),
                ("etag", models.TextField(blank=True, default="")),
                ("last_modified", models.TextField(blank=True, default="")),
                ("sha256", models.CharField(max_length=64)),
                ("size_bytes", models.BigIntegerField(default=0)),
                ("checked_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "db_table": "fetched_sources",
                "indexes": [models.Index(fields=["kind", "address"], name="fetched_sources_address_idx")],
            },
        ),
        migrations.RunSQL(FOLLOW_DOCUMENT, migrations.RunSQL.noop),
    ]
