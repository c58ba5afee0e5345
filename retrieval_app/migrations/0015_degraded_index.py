"""The runs that did without something are found without reading the others."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("retrieval_app", "0014_degraded")]

    operations = [
        AddIndexConcurrently(
            "queryrun",
            models.Index(
                fields=["-created_at", "-id"], condition=~models.Q(degraded=[]), name="queryrun_degraded_newest"
            ),
        ),
    ]
