"""Functions of policies anew: statements under row-level security run in parallel, and one of them uses its index."""

from __future__ import annotations

from pathlib import Path

from django.db import migrations

import ragd

SCHEMA = (Path(ragd.__file__).parent / "schema.sql").read_text(encoding="utf-8")
OPENED = "-- Who may read what."
ENDED = "-- What is indexed, per generation."


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0041_key_limits")]

    operations = [migrations.RunSQL(SCHEMA[SCHEMA.index(OPENED) : SCHEMA.index(ENDED)], migrations.RunSQL.noop)]
