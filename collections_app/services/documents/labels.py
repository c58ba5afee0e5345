"""Tags and metadata of many documents, changed without cutting or embedding anything anew."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from collections_app.access_context import elevated, require
from collections_app.domain.audit_digests import differing
from collections_app.domain.overlays import MARK
from collections_app.domain.permissions import Permission
from collections_app.models import Collection, Document
from collections_app.services.governance import audit
from collections_app.services.governance.document_access import list_by_metadata
from collections_app.services.indexing.ingestion import hash_decisive
from collections_app.services.indexing.revisions import keep_labels
from collections_app.services.indexing.stored_documents import Cause, DocumentOverlays
from collections_app.stores import open_store
from ragd.store.indexing import lock_statistics
from ragd.store.store import execute, fetch_all
from ragd.types import canonical_json

# What chunk() and bind() say of a chunk; there they win over the document's metadata.
OWN_KEYS = frozenset(("headings", "segment_start", "segment_end", "t_start", "t_end", "page", MARK))

DECISIVE = """
SELECT d.id, d.title, d.tags, d.metadata::text, d.revision, d.content_hash, d.language_stated,
       encode(sha256(convert_to(d.text, 'UTF8')), 'hex'), d.segments::text, d.page_map::text, d.cell_map::text,
       d.chunk_policy::text,
       EXISTS (SELECT FROM chunk_overlays o WHERE o.collection_id = d.collection_id AND o.doc_id = d.doc_id)
FROM documents d WHERE d.id = ANY(%(ids)s)
"""

WRITE = """
UPDATE documents d
SET tags = s.tags, metadata = s.metadata, content_hash = s.content_hash, revision = s.revision,
    updated_at = clock_timestamp()
FROM jsonb_to_recordset(%(rows)s::jsonb)
     AS s (id bigint, tags text[], metadata jsonb, content_hash text, revision integer)
WHERE d.id = s.id
"""

WRITE_CHUNKS = """
UPDATE {chunks} c
SET tags = s.tags, metadata = (c.metadata - s.gone) || s.put, revision = s.revision
FROM jsonb_to_recordset(%(rows)s::jsonb) AS s (doc_id text, tags text[], gone text[], put jsonb, revision integer)
WHERE c.collection_id = %(collection_id)s AND c.doc_id = s.doc_id COLLATE "C"
"""


@dataclass(frozen=True, slots=True)
class Labels:
    """What a document is to be labelled with; pk is the row's."""

    pk: int
    doc_id: str
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]


def touches_chunk_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether keys differ that a chunk may have of its own, so that only cutting it anew tells what stands there."""
    return any(before.get(key) != after.get(key) or (key in before) != (key in after) for key in OWN_KEYS)


def relabel(
    collection: Collection, requested: Sequence[Labels], cause: Cause, *, actor: audit.Actor = None
) -> list[str]:
    """Give the documents these tags and metadata; returns the ids of those that changed, each now a new revision.

    Statements are as many for one document as for many. The caller holds the documents' locks and the transaction,
    has refused archived ones, and knows that no key of OWN_KEYS changes (`touches_chunk_keys`). Content hashes go
    along, so that the same file is still unchanged.
    """
    require(Permission.WRITE, collection.pk)
    rows = {row[0]: row for row in fetch_all(connection, DECISIVE, {"ids": [labels.pk for labels in requested]})}
    documents, chunks = [], []
    previous: dict[int, dict[str, Any]] = {}
    for labels in requested:
        _, title, tags, metadata, revision, digest, language, text_hash, segments, pages, cells, policy, overlaid = (
            rows[labels.pk]
        )
        before = json.loads(metadata)
        if (tuple(tags), before) == (labels.tags, dict(labels.metadata)):
            continue
        overlays = DocumentOverlays.read(collection.pk, labels.doc_id).digest if overlaid else ()
        if digest:
            digest = hash_decisive(
                collection,
                text_hash=text_hash,
                segments=json.loads(segments) or None,
                pages=json.loads(pages),
                cells=json.loads(cells),
                title=title,
                tags=labels.tags,
                metadata=labels.metadata,
                policy=json.loads(policy),
                overlays=overlays,
                language=language,
            )
        shared = {"tags": list(labels.tags), "revision": revision + 1}
        gone = [key for key in before if key not in labels.metadata]
        put = {key: value for key, value in labels.metadata.items() if key not in before or before[key] != value}
        previous[labels.pk] = {"tags": list(tags), "metadata": before}
        documents.append(shared | {"id": labels.pk, "metadata": dict(labels.metadata), "content_hash": digest})
        chunks.append(shared | {"doc_id": labels.doc_id, "gone": gone, "put": put})
    if documents:
        names = [row["doc_id"] for row in chunks]
        keep_labels(collection, names, cause)
        with elevated(Permission.WRITE, collection.pk):
            store = open_store(collection)
            lock_statistics(store)  # whoever writes chunks of many documents waits for its turn
            execute(connection, WRITE, {"rows": canonical_json(documents)})
            execute(
                connection,
                WRITE_CHUNKS.format(chunks=store.collection.partition),
                {"collection_id": collection.pk, "rows": canonical_json(chunks)},
            )
        for labels in sorted(requested, key=lambda each: each.doc_id) if collection.access_from else ():
            list_by_metadata(collection, labels.doc_id, labels.metadata)
        changed = Document.objects.listed().filter(pk__in=[row["id"] for row in documents])
        following = {row["id"]: {"tags": row["tags"], "metadata": row["metadata"]} for row in documents}
        audit.record(
            actor,
            list(changed),
            audit.CHANGE,
            f"{cause.reason}: tags or metadata",
            before=lambda document: differing(previous[document.pk], following[document.pk])[0],
            after=lambda document: differing(previous[document.pk], following[document.pk])[1],
        )
    return [row["doc_id"] for row in chunks]
