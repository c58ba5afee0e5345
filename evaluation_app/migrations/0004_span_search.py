"""What spans are searched by: columns and their indexes; the spans that are there already are filled in."""

from pathlib import Path

import django.contrib.postgres.search
from django.db import migrations, models

SCHEMA = (Path(__file__).parent.parent / "spans.sql").read_text(encoding="utf-8")

FILL = """
UPDATE spans SET
    type = CASE split_part(name, ' ', 1)
        WHEN 'rag.pipeline' THEN 'aitf.rag.pipeline' WHEN 'rag.query' THEN 'aitf.rag.query'
        WHEN 'rag.retrieve' THEN 'aitf.rag.retrieve' WHEN 'rag.rerank' THEN 'aitf.rag.rerank'
        WHEN 'rag.evaluate' THEN 'aitf.rag.evaluate' WHEN 'chat' THEN 'gen_ai.inference'
        WHEN 'embeddings' THEN 'gen_ai.embeddings' ELSE split_part(name, ' ', 1) END,
    oi_kind = coalesce(attributes ->> 'openinference.span.kind', ''),
    model = coalesce(attributes ->> 'gen_ai.request.model', attributes ->> 'aitf.rag.rerank.model', ''),
    input_tokens = (attributes ->> 'gen_ai.usage.input_tokens')::bigint,
    output_tokens = (attributes ->> 'gen_ai.usage.output_tokens')::bigint,
    cost_usd = (attributes ->> 'aitf.cost.total_cost')::double precision,
    words = (
        SELECT coalesce(array_to_tsvector(array_agg(DISTINCT left(word, 64))), '') FROM regexp_split_to_table(lower(
            name || ' ' || left(status_description, 1000) || ' '
            || left(coalesce(attributes ->> 'input.value', ''), 2000)
        ), '[^[:alnum:]]+') AS word WHERE word <> '')
WHERE scope = 'ragd' AND type = ''
"""

# Until now all spans were in the default partition: it becomes one of the time that it holds, and a new one is made.
SET_ASIDE = """
DO $$
DECLARE
    first timestamptz;
    after timestamptz;
    named text;
BEGIN
    SELECT date_trunc('day', min(started_at), 'UTC'),
           date_trunc('day', greatest(max(started_at), now()), 'UTC') + interval '1 day'
    INTO first, after FROM spans_default;
    IF first IS NOT NULL THEN
        ALTER TABLE spans DETACH PARTITION spans_default;
        named := 'spans_p' || to_char(first AT TIME ZONE 'UTC', 'YYYYMMDD');
        EXECUTE format('ALTER TABLE spans_default RENAME TO %I', named);
        EXECUTE format('ALTER TABLE spans ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', named, first, after);
        CREATE TABLE spans_default PARTITION OF spans DEFAULT;
    END IF;
END $$
"""

COLUMNS = {
    "type": models.TextField(blank=True, default=""),
    "oi_kind": models.TextField(blank=True, default=""),
    "model": models.TextField(blank=True, default=""),
    "api_key": models.TextField(blank=True, default=""),
    "input_tokens": models.BigIntegerField(blank=True, null=True),
    "output_tokens": models.BigIntegerField(blank=True, null=True),
    "cost_usd": models.FloatField(blank=True, null=True),
    "risk_score": models.FloatField(blank=True, null=True),
    "words": django.contrib.postgres.search.SearchVectorField(editable=False, null=True),
}


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0003_metric_snapshots")]

    operations = [
        migrations.RunSQL(
            SCHEMA,
            migrations.RunSQL.noop,
            state_operations=[migrations.AddField("span", name, field) for name, field in COLUMNS.items()],
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.RunSQL(SET_ASIDE, migrations.RunSQL.noop),
    ]
