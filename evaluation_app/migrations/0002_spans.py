"""The span store, the alerts that go with their rule, and the rules that a new server has."""

from pathlib import Path

from django.db import migrations

SPANS = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
# Rules of a deleted collection are deleted by the library's SQL; their alerts go with them.
GO_WITH_RULE = """
ALTER TABLE alerts ADD CONSTRAINT alerts_rule_fk
    FOREIGN KEY (rule_id) REFERENCES alert_rules (id) ON DELETE CASCADE
"""
# (kind, threshold, minutes that it looks back over, minutes before it fires)
USUAL = (
    ("error_rate", 0.05, 15, 5),
    ("latency", 10_000, 15, 10),
    ("queue_age", 900, 15, 5),
    ("workers", 1, 15, 2),
    ("failing_sources", 0, 15, 0),
    ("recall", 0.95, 15, 0),
    ("evaluation", 0.05, 15, 0),
    ("cost", 25, 15, 0),
    ("disk", 0.9, 15, 5),
    ("backup", 93_600, 15, 0),
    ("restore_drill", 0, 15, 0),
    ("degraded", 0, 15, 1),
)


def add_rules(apps, editor):
    rule = apps.get_model("evaluation_app", "AlertRule")
    rule.objects.bulk_create(
        rule(kind=kind, threshold=threshold, window_minutes=window, for_minutes=wait)
        for kind, threshold, window, wait in USUAL
    )


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0001_models")]
    operations = [
        migrations.RunSQL(SPANS, migrations.RunSQL.noop),
        migrations.RunSQL(GO_WITH_RULE, migrations.RunSQL.noop),
        migrations.RunPython(add_rules, migrations.RunPython.noop),
    ]
