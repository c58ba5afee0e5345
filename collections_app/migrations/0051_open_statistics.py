"""Statistics of the open chunks alone, by configuration: the column and the functions of ragd/schema.sql, and a recount."""

from __future__ import annotations

import re
from pathlib import Path

from django.db import migrations

import ragd

SCHEMA = (Path(ragd.__file__).parent / "schema.sql").read_text(encoding="utf-8")
NAMES = "sees_sizes|spread_access|prefix|terms|counted|count_access|bake_length|follow_length|recount|bm25"
FUNCTIONS = "\n".join(
    re.findall(rf"^CREATE OR REPLACE FUNCTION ragd_(?:{NAMES})\(.*?;\n(?=\n|CREATE)", SCHEMA, re.DOTALL | re.MULTILINE)
)
COLUMN = "ALTER TABLE chunk_stats ADD COLUMN IF NOT EXISTS open_count bigint NOT NULL DEFAULT 0;\n"
RECOUNT = """
DO $$
DECLARE
    its record;
    changed bigint;
BEGIN
    FOR its IN SELECT * FROM (SELECT collection_id, generation, length_baked,
                                     to_regclass(format('chunks_c%s_g%s', collection_id, generation)) AS part
                              FROM chunk_stats) AS listed WHERE part IS NOT NULL LOOP
        PERFORM ragd_recount(its.collection_id, its.generation);
        EXECUTE format('UPDATE %s SET lexical = ragd_bm25(fts, $1) WHERE ragd_prefix(fts) <> %L', its.part, '')
            USING its.length_baked;
        GET DIAGNOSTICS changed = ROW_COUNT;
        IF changed > 0 THEN
            DELETE FROM chunk_segments WHERE collection_id = its.collection_id AND generation = its.generation;
        END IF;
        PERFORM ragd_follow_length(its.collection_id, its.generation, 0);
    END LOOP;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0050_compact_indexes")]

    safe = {
        "filled": "the UPDATE of documents is in the body of a trigger's function and runs with that trigger, not here;"
        " counts, weights and the functions that keep them change in one transaction, or they would contradict each other"
    }

    operations = [migrations.RunSQL(COLUMN + FUNCTIONS + RECOUNT, migrations.RunSQL.noop)]
