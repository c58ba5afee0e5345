"""What a run did without."""

from django.db import migrations, models
from django.db.models import Value


class Migration(migrations.Migration):
    dependencies = [("retrieval_app", "0013_conversations")]

    operations = [
        migrations.AddField(
            "queryrun",
            "degraded",
            models.JSONField(blank=True, default=list, db_default=Value([], models.JSONField())),
        ),
    ]
