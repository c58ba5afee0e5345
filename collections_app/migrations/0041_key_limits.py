"""Rotation, last address and limits of API keys, and what requests and tokens are counted in."""

from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

COLUMNS = """
ALTER TABLE api_keys
    ADD COLUMN IF NOT EXISTS created_by text NOT NULL DEFAULT '',
    ADD COLUMN IF NOT EXISTS last_used_from text NOT NULL DEFAULT '',
    ADD COLUMN IF NOT EXISTS rotated_at timestamptz,
    ADD COLUMN IF NOT EXISTS previous_hash bytea,
    ADD COLUMN IF NOT EXISTS previous_until timestamptz,
    ADD COLUMN IF NOT EXISTS requests_per_minute integer CHECK (requests_per_minute >= 0),
    ADD COLUMN IF NOT EXISTS tokens_per_day bigint CHECK (tokens_per_day >= 0);
CREATE INDEX IF NOT EXISTS api_keys_previous ON api_keys (previous_hash) WHERE previous_hash IS NOT NULL;
"""
# Unlogged: what was counted in this minute and on this day may be lost with the server, and no request waits for a disk.
COUNTS = """
CREATE UNLOGGED TABLE usage_counts (
    holder    text COLLATE "C" PRIMARY KEY,  -- "key:<id>", "user:<id>" or "address:<address>"
    minute    timestamptz NOT NULL,
    requests  integer NOT NULL,              -- in that minute
    day       date NOT NULL,
    tokens    bigint NOT NULL                -- on that day
) WITH (fillfactor = 50);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("collections_app", "0040_access_lists"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RunSQL(
            COLUMNS,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddField(
                    "apikey", "created_by", models.TextField(blank=True, db_default="", default="", editable=False)
                ),
                migrations.AddField(
                    "apikey", "last_used_from", models.TextField(blank=True, db_default="", default="", editable=False)
                ),
                migrations.AddField("apikey", "rotated_at", models.DateTimeField(blank=True, editable=False, null=True)),
                migrations.AddField("apikey", "previous_hash", models.BinaryField(blank=True, null=True)),
                migrations.AddField(
                    "apikey", "previous_until", models.DateTimeField(blank=True, editable=False, null=True)
                ),
                migrations.AddField("apikey", "requests_per_minute", models.IntegerField(blank=True, null=True)),
                migrations.AddField("apikey", "tokens_per_day", models.BigIntegerField(blank=True, null=True)),
                migrations.AlterField(
                    "apikey",
                    "user",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.RunSQL(COUNTS, "DROP TABLE usage_counts"),
    ]
