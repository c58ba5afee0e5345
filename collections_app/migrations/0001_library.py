"""The tables and functions of the library: ragd/schema.sql as it was when this was written."""

from pathlib import Path

from django.db import migrations

SCHEMA = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    dependencies: list[tuple[str, str]] = []
    operations = [migrations.RunSQL(SCHEMA, migrations.RunSQL.noop)]
