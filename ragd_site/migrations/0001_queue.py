from __future__ import annotations

from typing import Any

from django.db import migrations
from pgmq.install import get_embedded_install_sql

SELECT_INSTALLED = "SELECT to_regclass('pgmq.meta')"


def install_queue(apps: Any, schema_editor: Any) -> None:
    """The SQL of pgmq, which may run only once; a server may also bring it as an extension."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(SELECT_INSTALLED)
        if cursor.fetchone()[0] is None:
            cursor.execute(get_embedded_install_sql())


class Migration(migrations.Migration):
    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [migrations.RunPython(install_queue, migrations.RunPython.noop)]
