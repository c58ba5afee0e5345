"""Jobs are found by their document."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0012_fetched_sources")]

    operations = [
        migrations.AddIndex(
            model_name="ingestjob",
            index=models.Index(fields=["collection", "doc_id"], name="ingest_jobs_document_idx"),
        ),
    ]
