"""The alert rule of queries that went on without a part."""

from django.db import migrations


def add_rule(apps, editor):
    apps.get_model("evaluation_app", "AlertRule").objects.create(
        kind="degraded", threshold=0.0, window_minutes=15, for_minutes=1
    )


def remove_rules(apps, editor):
    apps.get_model("evaluation_app", "AlertRule").objects.filter(kind="degraded").delete()


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0035_backup_alerts"), ("retrieval_app", "0014_degraded")]

    operations = [migrations.RunPython(add_rule, remove_rules)]
