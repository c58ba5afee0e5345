"""What files say of themselves gets a column of its own, and leaves the metadata of documents that are stored.

It is told apart by name, by the metadata that came with the file and by what people changed since. Where that cannot be
told (no job is kept, a rollback, manual edits of chunks, a content hash that is not the present kind) it stays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.db import migrations, models

from ragd.types import canonical_json

AT_ONCE = 200

# What the readers of files wrote.
NAMES = frozenset((
    "attachments", "author", "charset", "created_at", "delimiter", "description", "keywords", "language",
    "message_class", "message_id", "modified_at", "pages", "pictured_pages", "publisher", "scanned_pages", "subject",
    "unpacked_media_type",
))  # fmt: skip

ADD_COLUMN = "ALTER TABLE documents ADD COLUMN IF NOT EXISTS file_metadata jsonb NOT NULL DEFAULT '{}'"

READ = """
SELECT d.id, c.embed_model, c.embed_dims, d.title, d.tags, d.metadata::text, d.content_hash,
       encode(sha256(convert_to(d.text, 'UTF8')), 'hex'), d.segments::text, d.page_map::text, d.chunk_policy::text,
       j.metadata::text
FROM documents d
JOIN collections c ON c.id = d.collection_id
JOIN LATERAL (
    SELECT metadata FROM ingest_jobs
    WHERE collection_id = d.collection_id AND doc_id = d.doc_id AND kind IN ('file', 'fetch') AND state = 'succeeded'
    ORDER BY created_at DESC, id DESC LIMIT 1
) AS j ON true
WHERE d.id > %(after)s AND d.source_hash <> '' AND d.content_hash <> '' AND d.metadata ?| %(names)s
  AND NOT EXISTS (SELECT FROM chunk_overlays o WHERE o.collection_id = d.collection_id AND o.doc_id = d.doc_id)
  AND NOT EXISTS (SELECT FROM document_revisions r WHERE r.collection_id = d.collection_id AND r.doc_id = d.doc_id
                                                     AND r.reason LIKE 'rollback%%')
ORDER BY d.id LIMIT %(most)s
"""

# Metadata before and after what people changed.
EDITS = """
SELECT d.id, r.metadata::text, coalesce(n.metadata, d.metadata)::text
FROM document_revisions r
JOIN documents d ON d.collection_id = r.collection_id AND d.doc_id = r.doc_id
LEFT JOIN document_revisions n
  ON n.collection_id = r.collection_id AND n.doc_id = r.doc_id AND n.revision = r.revision + 1
WHERE d.id = ANY(%(ids)s) AND r.reason IN ('edit', 'bulk edit')
"""

WRITE = """
UPDATE documents d SET metadata = s.metadata, file_metadata = s.file_metadata, content_hash = s.content_hash
FROM jsonb_to_recordset(%(rows)s::jsonb) AS s (id bigint, metadata jsonb, file_metadata jsonb, content_hash text)
WHERE d.id = s.id
"""


def split(apps: Any, schema_editor: Any) -> None:
    """Some hundred documents at a time. updated_at and revision stay: nothing that anybody said has changed."""
    after = 0
    with schema_editor.connection.cursor() as cursor:
        while True:
            cursor.execute(READ, {"after": after, "names": sorted(NAMES), "most": AT_ONCE})
            rows = cursor.fetchall()
            if not rows:
                return
            after = rows[-1][0]
            by_hand = _edited(cursor, [row[0] for row in rows])
            written = [each for row in rows if (each := _split(row, by_hand.get(row[0], set()))) is not None]
            if written:
                cursor.execute(WRITE, {"rows": json.dumps(written, ensure_ascii=False)})


def _edited(cursor: Any, ids: list[int]) -> dict[int, set[str]]:
    """Document id -> names that people set."""
    cursor.execute(EDITS, {"ids": ids})
    found: dict[int, set[str]] = {}
    for pk, before, after in cursor.fetchall():
        old, new = _object(before), _object(after)
        found.setdefault(pk, set()).update(name for name in new if name not in old or old[name] != new[name])
    return found


def _split(row: tuple[Any, ...], by_hand: set[str]) -> dict[str, Any] | None:
    """What to write; None where nothing is to be, or the hash tells that something else decides the chunks."""
    pk, model, dims, title, tags, metadata, digest, text_hash, segments, pages, policy, asked = row
    whole, said = _object(metadata), _object(asked)
    own = {name: value for name, value in whole.items() if name in NAMES and name not in said and name not in by_hand}
    rest = {name: value for name, value in whole.items() if name not in own}

    def hash_of(values: Mapping[str, Any]) -> str:
        decisive = {
            "text": text_hash,
            "segments": json.loads(segments) or None,
            "pages": json.loads(pages),
            "title": title,
            "tags": list(tags),
            "metadata": dict(values),
            "policy": json.loads(policy),
            "model": [model, dims],
        }
        return hashlib.sha256(canonical_json(decisive).encode()).hexdigest()

    if not own or hash_of(whole) != digest:
        return None
    return {"id": pk, "metadata": rest, "file_metadata": own, "content_hash": hash_of(rest)}


def _object(text: str | None) -> dict[str, Any]:
    return dict(json.loads(text) if text else {})


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0026_history")]

    operations = [
        migrations.AddField(
            "documentrevision", "file_metadata", models.JSONField(blank=True, db_default={}, default=dict)
        ),
        migrations.RunSQL(
            ADD_COLUMN,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddField("document", "file_metadata", models.JSONField(blank=True, db_default={}, default=dict))
            ],
        ),
        migrations.RunPython(split, migrations.RunPython.noop),
    ]
