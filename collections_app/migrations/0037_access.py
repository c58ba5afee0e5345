"""Roles, access lists of documents and scopes of API keys; ragd/schema.sql's part of it for an older database.

What was open to everybody who is logged in stays so: its people could change it, so the role is that of a curator.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import collections_app.models.library
import ragd

SCHEMA = (Path(ragd.__file__).parent / "schema.sql").read_text(encoding="utf-8")
OPENED = "-- Who may read what."
ENDED = "-- What is indexed, per generation."
NEED = "CREATE OR REPLACE FUNCTION ragd_need_document()"
AFTER_NEED = "-- The other side"

COLUMNS = """
ALTER TABLE documents ADD COLUMN IF NOT EXISTS access bigint[] NOT NULL DEFAULT '{0,1}';
ALTER TABLE chunks ADD COLUMN IF NOT EXISTS access bigint[] NOT NULL DEFAULT '{0,1}';
ALTER TABLE collections ADD COLUMN IF NOT EXISTS open_role text NOT NULL DEFAULT '';
ALTER TABLE api_keys ADD COLUMN IF NOT EXISTS scopes text[] NOT NULL DEFAULT '{read,ask,write,evaluate,administer}',
    ADD COLUMN IF NOT EXISTS user_id integer, ADD COLUMN IF NOT EXISTS group_ids bigint[] NOT NULL DEFAULT '{}';
UPDATE api_keys SET scopes = '{read,ask}' WHERE scope = 'read';
UPDATE collections SET open_role = 'curator';
"""
TABLES = """
SELECT c.relname, c.relispartition FROM pg_class c
WHERE c.relkind = 'r' AND c.relname ~ '^chunks_c[0-9]+_g[0-9]+$' AND c.relnamespace = current_schema()::regnamespace
"""
TRIGGERS = "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = %s::regclass AND tgname = %s)"


def change_tables(apps: Any, schema_editor: Any) -> None:
    """The column and the trigger of every generation's table; the index on access is made when it is first needed."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(TABLES)
        for table, is_partition in cursor.fetchall():
            if not is_partition:  # a partition has the column from chunks, and takes none of its own
                cursor.execute(
                    f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS access bigint[] NOT NULL DEFAULT '{{0,1}}'"
                )
            cursor.execute(TRIGGERS, [table, f"{table}_document"])
            if cursor.fetchone()[0]:
                cursor.execute(
                    f"DROP TRIGGER {table}_document ON {table};"
                    f"CREATE TRIGGER {table}_document BEFORE INSERT OR UPDATE OF collection_id, doc_id ON {table}"
                    " FOR EACH ROW EXECUTE FUNCTION ragd_need_document()"
                )


def open_array() -> Any:
    return django.contrib.postgres.fields.ArrayField(
        models.BigIntegerField(), default=collections_app.models.library.open_access, editable=False, db_default=[0, 1]
    )


class Migration(migrations.Migration):
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("collections_app", "0036_list_weights"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RunSQL(
            COLUMNS,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddField("document", "access", open_array()),
                migrations.AddField("chunk", "access", open_array()),
                migrations.AddField("collection", "open_role", models.TextField(blank=True, db_default="", default="")),
                migrations.AddField(
                    "apikey",
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(
                        models.TextField(), blank=True, default=collections_app.models.library.all_scopes
                    ),
                ),
                migrations.AddField(
                    "apikey",
                    "group_ids",
                    django.contrib.postgres.fields.ArrayField(models.BigIntegerField(), blank=True, default=list),
                ),
                migrations.AddField(
                    "apikey",
                    "user",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.RunSQL(SCHEMA[SCHEMA.index(OPENED) : SCHEMA.index(ENDED)], migrations.RunSQL.noop),
        migrations.RunSQL(SCHEMA[SCHEMA.index(NEED) : SCHEMA.index(AFTER_NEED)], migrations.RunSQL.noop),
        migrations.RunPython(change_tables, migrations.RunPython.noop),
        migrations.CreateModel(
            name="RoleGrant",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("viewer", "Viewer"),
                            ("asker", "Asker"),
                            ("curator", "Curator"),
                            ("evaluator", "Evaluator"),
                            ("administrator", "Administrator"),
                        ],
                        max_length=16,
                    ),
                ),
                ("created_by", models.TextField(blank=True, default="", editable=False)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("collection_id", models.BigIntegerField(default=0)),
                (
                    "group",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="role_grants",
                        to="auth.group",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="role_grants",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "role_grants",
                "ordering": ["collection_id", "id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("user__isnull", False), ("group__isnull", False), _connector="XOR"),
                        name="role_grants_one_holder",
                    ),
                    models.UniqueConstraint(
                        fields=("user", "group", "collection_id", "role"), name="role_grants_once", nulls_distinct=False
                    ),
                ],
            },
        ),
    ]
