"""What no revision tells of, written down in the transaction that changes it: switches, deletions, index versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db import connection

from collections_app.domain.overlays import MARK
from collections_app.models import Collection, Document, DocumentRevision, StateChange
from collections_app.models.library import Actor, name_actor
from collections_app.retention_periods import kept_for
from collections_app.services.indexing.revisions import DROP, keep_sql
from ragd.store.store import execute

Kind = StateChange.Kind
NO_LIMIT = 2**31 - 1

# A new array for each document: the rows of its earlier revisions and its last state, which `KEEP` has put there.
RECORD_DELETED = """
INSERT INTO state_changes
    (collection_id, kind, doc_id, document_id, enabled_before, number, began_at, kept, made_at, made_by)
SELECT d.collection_id, 'deleted', d.doc_id, d.id, d.enabled, d.revision, d.created_at,
       CASE WHEN %(keeps)s THEN (
           SELECT jsonb_agg(to_jsonb(r) - 'id' - 'collection_id' ORDER BY r.revision) FROM document_revisions r
           WHERE r.collection_id = d.collection_id AND r.doc_id = d.doc_id) END,
       clock_timestamp(), %(by)s
FROM documents d WHERE d.collection_id = %(collection_id)s AND d.doc_id = ANY(%(doc_ids)s)
"""


def deleted_kept_days(collection: Collection) -> int:
    """For how many days the content of deleted documents is kept; 0: it goes with them."""
    explicit = collection.retention.get("deleted_days")
    return kept_for("deleted_days") if explicit is None else int(explicit)


def record_switches(collection: Collection, documents: Iterable[Document], kind: str, actor: Actor) -> None:
    """That these documents, as they were read, are enabled, disabled, archived or unarchived now."""
    StateChange.objects.bulk_create(
        StateChange(
            collection=collection,
            kind=kind,
            doc_id=document.doc_id,
            document_id=document.pk,
            enabled_before=document.enabled,
            made_by=name_actor(actor),
        )
        for document in documents
    )


def record_deletions(collection: Collection, doc_ids: Sequence[str], actor: Actor) -> None:
    """That these documents are about to be deleted, with what is kept of them. Before the first of their rows goes."""
    values = {
        "collection_id": collection.pk,
        "doc_ids": list(doc_ids),
        "by": name_actor(actor),
        "keeps": deleted_kept_days(collection) > 0,
        "reason": Kind.DELETED.value,
        "replaced_by": name_actor(actor),
        "kept": NO_LIMIT,
        "mark": MARK,
        "text_hash": "",
    }
    if values["keeps"]:
        execute(connection, DROP, values)
        execute(connection, keep_sql(collection, "false"), values)
    execute(connection, RECORD_DELETED, values)
    if values["keeps"]:
        last = DocumentRevision.objects.filter(collection_id=collection.pk, doc_id__in=list(doc_ids))
        last.filter(reason=Kind.DELETED.value)._raw_delete("default")


def record_serving(collection: Collection, before: int, by: str) -> None:
    """That another index version than `before` is active from now on."""
    StateChange.objects.create(collection=collection, kind=Kind.SERVING, number=before, made_by=by)


def record_beginning(collection: Collection) -> None:
    """That nothing is known of the collection before this moment."""
    StateChange.objects.create(collection=collection, kind=Kind.RECORDED)


def forget_deleted(collection: Collection, now: datetime) -> int:
    """Give up the content of documents that were deleted longer ago than it is kept; returns of how many."""
    until = now - timedelta(days=deleted_kept_days(collection))
    rows = StateChange.objects.filter(collection=collection, kind=Kind.DELETED, kept__isnull=False, made_at__lt=until)
    return rows.update(kept=None)
