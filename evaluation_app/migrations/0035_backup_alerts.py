from django.db import migrations

USUAL = (("backup", 93_600), ("restore_drill", 0))


def add_rules(apps, editor):
    rule = apps.get_model("evaluation_app", "AlertRule")
    rule.objects.bulk_create(
        rule(kind=kind, threshold=threshold, window_minutes=15, for_minutes=0) for kind, threshold in USUAL
    )


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0034_collector_settings")]

    operations = [migrations.RunPython(add_rules, migrations.RunPython.noop)]
