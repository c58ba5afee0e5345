"""Keys that are limited to collections keep the ids of those that the names stand for."""

from __future__ import annotations

from django.db import migrations

ADD = "ALTER TABLE api_keys ADD COLUMN IF NOT EXISTS collection_ids bigint[] NOT NULL DEFAULT '{}'"
# 0: no collection of that name was there yet, the first that is made is meant. -1: it was deleted.
FILL = """
UPDATE api_keys AS k SET collection_ids = ARRAY(
    SELECT coalesce(
        (SELECT c.id FROM collections c WHERE c.name = listed.name AND c.deleted_at IS NULL),
        CASE WHEN EXISTS (SELECT 1 FROM operations o WHERE o.kind = 'deletion' AND o.subject = listed.name
                                                       AND o.created_at >= k.created_at) THEN -1 ELSE 0 END)
    FROM unnest(k.collections) WITH ORDINALITY AS listed (name, place) ORDER BY listed.place)
WHERE cardinality(k.collections) > 0
"""
DROP = "ALTER TABLE api_keys DROP COLUMN collection_ids"


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0023_standard_labels")]
    operations = [migrations.RunSQL(ADD, DROP), migrations.RunSQL(FILL, migrations.RunSQL.noop)]
