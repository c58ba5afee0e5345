"""Where the chunks of an index version are, and the functions of ragd/schema.sql that read them by their table's name."""

from __future__ import annotations

import re
from pathlib import Path

from django.db import migrations

import ragd

SCHEMA = (Path(ragd.__file__).parent / "schema.sql").read_text(encoding="utf-8")
NAMES = ("ragd_serving_chunks", "ragd_need_no_chunks", "ragd_keep_name", "ragd_protect_chunks", "ragd_has_time")
FUNCTIONS = "\n".join(
    re.findall(rf"^CREATE OR REPLACE FUNCTION (?:{'|'.join(NAMES)})\(.*?;\n(?=\n)", SCHEMA, re.DOTALL | re.MULTILINE)
)
COLUMN = """
ALTER TABLE chunk_stats ADD COLUMN IF NOT EXISTS placement text NOT NULL DEFAULT 'local';
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conname = 'chunk_stats_placement_check') THEN
        ALTER TABLE chunk_stats ADD CONSTRAINT chunk_stats_placement_check
            CHECK (placement IN ('local', 'node', 'spread'));
    END IF;
END $$;
DROP FUNCTION IF EXISTS ragd_protect_chunks(text, bigint);
"""


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0047_collection_titles")]

    operations = [migrations.RunSQL(COLUMN + FUNCTIONS, migrations.RunSQL.noop)]
