"""Of which environment a run is. What evaluations and replays left is told by its door and its origin."""

from django.db import migrations, models

FILL = """
UPDATE retrieval_app_queryrun SET environment = CASE WHEN door = 'worker' THEN 'evaluation' ELSE 'playground' END
WHERE door = 'worker' OR replay_of IS NOT NULL
"""


class Migration(migrations.Migration):
    dependencies = [("retrieval_app", "0008_standard_labels")]

    operations = [
        migrations.AddField(
            "queryrun",
            "environment",
            models.CharField(
                choices=[("production", "Production"), ("evaluation", "Evaluation"), ("playground", "Playground")],
                default="production",
                db_default="production",  # for the code of before, which runs on during the upgrade
                max_length=10,
            ),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AddIndex(
            "queryrun",
            models.Index(fields=["environment", "-created_at", "-id"], name="queryrun_environment_newest"),
        ),
    ]
