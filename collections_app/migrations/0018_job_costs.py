"""What the model calls of a job cost."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0017_prices_and_security")]

    operations = [migrations.AddField("ingestjob", "cost", models.JSONField(blank=True, default=dict))]
