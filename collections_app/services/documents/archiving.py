"""Documents put away and brought back: archived, they are read-only and not retrieved."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from collections_app.access_context import elevated, require
from collections_app.domain.identity import check_doc_id
from collections_app.domain.permissions import Permission
from collections_app.models import Chunk, Collection, Document, StateChange
from collections_app.services.governance import audit
from collections_app.services.indexing.state_changes import record_switches
from collections_app.services.indexing.stored_documents import lock_documents
from collections_app.services.jobs.queue import supersede_jobs
from collections_app.stores import open_store
from ragd.store.indexing import lock_statistics


def archive_documents(collection: Collection, doc_ids: Iterable[str], *, actor: audit.Actor = None) -> list[str]:
    """Make documents read-only and keep them out of retrieval; returns the ids of those that were not archived yet.

    What was still to be ingested for them is cancelled. Nothing of them is lost.
    """
    require(Permission.WRITE, collection.pk)
    return _move(collection, doc_ids, archived_at=timezone.now(), actor=actor)


def unarchive_documents(collection: Collection, doc_ids: Iterable[str], *, actor: audit.Actor = None) -> list[str]:
    """Let archived documents be changed and retrieved again; returns the ids of those that were archived."""
    require(Permission.WRITE, collection.pk)
    return _move(collection, doc_ids, archived_at=None, actor=actor)


def _move(
    collection: Collection, doc_ids: Iterable[str], *, archived_at: datetime | None, actor: audit.Actor
) -> list[str]:
    names = [check_doc_id(doc_id) for doc_id in doc_ids]
    enabled = archived_at is None
    with transaction.atomic():
        lock_documents(collection, names)
        rows = Document.objects.listed().filter(collection=collection, doc_id__in=names)
        moved = list(rows.filter(archived_at__isnull=not enabled).by_doc_id())
        ids = [document.doc_id for document in moved]
        if not ids:
            return []
        if archived_at is not None:
            supersede_jobs(collection, ids, "the document was archived")
        with elevated(Permission.WRITE, collection.pk):
            lock_statistics(open_store(collection))
            Document.objects.filter(pk__in=[document.pk for document in moved]).update(
                archived_at=archived_at, enabled=enabled, updated_at=timezone.now()
            )
            chunks = Chunk.objects.of(collection).filter(doc_id__in=ids, switched_off=False)
            chunks.exclude(enabled=enabled).update(enabled=enabled)
        kind = StateChange.Kind.UNARCHIVED if enabled else StateChange.Kind.ARCHIVED
        record_switches(collection, moved, kind, actor)
        audit.record(
            actor,
            moved,
            audit.CHANGE,
            "unarchived" if enabled else "archived",
            before={"archived": enabled},
            after={"archived": not enabled},
        )
    return ids
