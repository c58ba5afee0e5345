"""Of which environment spans and their sums are; the spans that are there already are told by their runs.

The index comes after the fill, so that filling writes into none. Sums of hours whose spans are still there are made
anew by the worker, and until then read from the spans; of older ones nobody can tell, and their environment stays "".
"""

from pathlib import Path

from django.db import migrations, models

SCHEMA = (Path(__file__).parent.parent / "spans.sql").read_text(encoding="utf-8")
ADD_COLUMN = "ALTER TABLE spans ADD COLUMN IF NOT EXISTS environment text NOT NULL DEFAULT 'production'"
FILL_PLAYGROUND_RUNS = """
UPDATE retrieval_app_queryrun SET environment = 'playground'
WHERE door = 'page' AND environment = 'production' AND trace_id IN (
    SELECT trace_id FROM spans WHERE kind = 'SERVER' AND name LIKE '%/playground/%')
"""
FILL_SPANS = """
UPDATE spans SET environment = run.environment
FROM (SELECT DISTINCT trace_id, environment FROM retrieval_app_queryrun
      WHERE environment <> 'production' AND trace_id <> '') AS run
WHERE spans.trace_id = run.trace_id
"""
FILL_JUDGEMENTS = """
UPDATE spans SET environment = 'evaluation'
WHERE environment = 'production' AND trace_id IN (SELECT trace_id FROM spans WHERE type = 'aitf.rag.evaluate')
  AND trace_id NOT IN (SELECT trace_id FROM retrieval_app_queryrun)
"""
FILL_PAGES = """
UPDATE spans SET environment = 'interface'
WHERE kind = 'SERVER' AND type = '' AND environment = 'production' AND name !~ '^[A-Z]+ (v1/|mcp)'
  AND trace_id NOT IN (SELECT trace_id FROM retrieval_app_queryrun)
"""
FORGET_SUMS = """
DELETE FROM span_rollups WHERE hour >= (
    SELECT date_trunc('day', min(started_at), 'UTC') + interval '1 day' FROM spans)
"""


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0021_golden_match"), ("retrieval_app", "0009_environment")]

    operations = [
        migrations.RunSQL(ADD_COLUMN, migrations.RunSQL.noop),
        *(
            migrations.RunSQL(statement, migrations.RunSQL.noop)
            for statement in (FILL_PLAYGROUND_RUNS, FILL_SPANS, FILL_JUDGEMENTS, FILL_PAGES)
        ),
        migrations.RunSQL(
            SCHEMA,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddField("span", "environment", models.TextField(blank=True, default="production"))
            ],
        ),
        migrations.AddField("spanrollup", "environment", models.TextField(blank=True, default="")),
        migrations.RunSQL(FORGET_SUMS, migrations.RunSQL.noop),
    ]
