from django.db import migrations, models


class Migration(migrations.Migration):
    safe = {"removed": "the scan of a collection for contradictions is gone, and nothing was released that reads its rows"}

    dependencies = [
        ("collections_app", "0003_sql"),
    ]

    operations = [
        migrations.AlterField(
            model_name="operation",
            name="kind",
            field=models.CharField(
                choices=[
                    ("export", "Export"),
                    ("import", "Import"),
                    ("check", "Check"),
                    ("retention", "Retention"),
                    ("deletion", "Deletion"),
                ],
                max_length=16,
            ),
        ),
        migrations.DeleteModel(
            name="Contradiction",
        ),
    ]
