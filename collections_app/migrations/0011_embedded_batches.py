"""The vectors of large documents that are under way."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

# vectors are noise to a compressor
UNCOMPRESSED = "ALTER TABLE embedded_batches ALTER COLUMN vectors SET STORAGE EXTERNAL"


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0010_document_policy")]

    operations = [
        migrations.CreateModel(
            name="EmbeddedBatch",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job", models.UUIDField()),
                ("first", models.IntegerField()),
                ("size", models.IntegerField()),
                ("digest", models.CharField(max_length=64)),
                ("vectors", models.BinaryField()),
                ("made_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "collection",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="collections_app.collection",
                    ),
                ),
            ],
            options={
                "db_table": "embedded_batches",
                "constraints": [models.UniqueConstraint(fields=("job", "first"), name="embedded_batches_key")],
            },
        ),
        migrations.RunSQL(UNCOMPRESSED, migrations.RunSQL.noop),
    ]
