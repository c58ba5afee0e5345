"""Find the few quarantined jobs of a collection among its many."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0014_near_duplicates")]

    operations = [
        migrations.AddIndex(
            model_name="ingestjob",
            index=models.Index(
                fields=["collection"], name="ingest_jobs_quarantine_idx", condition=models.Q(state="quarantined")
            ),
        ),
    ]
