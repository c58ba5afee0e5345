"""The trash: documents that people delete are kept for some days, apart from all that is searched or listed.

A document goes there as rows of tables of its own and is deleted as any other; restoring it ingests its text again
under the same ID, by the chunk policy that holds for it now, with its earlier revisions, manual edits, vectors,
original and access list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet

from collections_app.access.context import elevated, require
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.chunks.policies import policy_of
from collections_app.collections.models import name_actor
from collections_app.collections.retention_periods import kept_for
from collections_app.documents.services import delete_documents, draft_of
from collections_app.documents.stored_documents import Cause, DocumentOverlays, lock_documents, with_attachments
from collections_app.errors import ServiceError, describe
from collections_app.index.ingestion import in_current_index_version, ingest
from collections_app.jobs.attempts import IngestOutcome
from collections_app.models import Chunk, Collection, Document, TrashedDocument
from ragd.errors import RagdError
from ragd.store.store import execute, fetch_all

RESTORE = "restored"
DELETED_AT_ONCE = 500

# A document without a text came as chunks alone: it cannot be ingested again, so it is deleted at once.
MOVE = """
INSERT INTO trashed_documents
    (collection_id, doc_id, title, source, media_type, chunk_count, revision, embed_model, embed_dims, document,
     revisions, overlays, pages, fetched, file_name, file_media_type, file_content, file_created_at, deleted_at,
     deleted_by)
SELECT d.collection_id, d.doc_id, d.title, d.source, d.media_type, d.chunk_count, d.revision, c.embed_model,
       c.embed_dims, to_jsonb(d),
       coalesce((SELECT jsonb_agg(to_jsonb(r) - 'id' ORDER BY r.revision) FROM document_revisions r
                 WHERE r.collection_id = d.collection_id AND r.doc_id = d.doc_id), '[]'),
       coalesce((SELECT jsonb_agg(to_jsonb(o) ORDER BY o.id) FROM chunk_overlays o
                 WHERE o.collection_id = d.collection_id AND o.doc_id = d.doc_id), '[]'),
       coalesce((SELECT jsonb_agg(to_jsonb(p) ORDER BY p.id) FROM page_layouts p
                 WHERE p.collection_id = d.collection_id AND p.doc_id = d.doc_id), '[]'),
       (SELECT to_jsonb(f) FROM fetched_sources f WHERE f.document_id = d.id),
       coalesce(u.name, ''), coalesce(u.media_type, ''), u.content, u.created_at, clock_timestamp(), %(by)s
FROM documents d JOIN collections c ON c.id = d.collection_id
LEFT JOIN LATERAL (
    SELECT * FROM uploads u WHERE u.collection_id = d.collection_id AND u.doc_id = d.doc_id AND u.sha256 = d.source_hash
    ORDER BY u.id DESC LIMIT 1
) u ON true
WHERE d.collection_id = %(collection)s AND d.doc_id = ANY(%(doc_ids)s) AND d.size_chars > 0
ORDER BY d.doc_id
RETURNING id
"""
MOVE_CHUNKS = """
INSERT INTO trashed_chunks (trashed_id, collection_id, doc_id, chunk_index, content, context, embedding)
SELECT t.id, c.collection_id, c.doc_id, c.chunk_index, c.content, c.context, c.embedding::vector
FROM trashed_documents t JOIN {chunks} c ON c.collection_id = t.collection_id AND c.doc_id = t.doc_id
WHERE t.id = ANY(%(ids)s) AND c.collection_id = %(collection)s AND c.embedding IS NOT NULL
"""
# Rows as they were, with the numbers that they had; only a revision gets another one, which nothing points at.
RESTORE_OVERLAYS = """
INSERT INTO chunk_overlays SELECT o.* FROM trashed_documents t,
    jsonb_populate_recordset(NULL::chunk_overlays, t.overlays) o WHERE t.id = %(id)s
"""
RESTORE_PAGES = """
INSERT INTO page_layouts SELECT p.* FROM trashed_documents t,
    jsonb_populate_recordset(NULL::page_layouts, t.pages) p WHERE t.id = %(id)s ON CONFLICT DO NOTHING
"""
RESTORE_REVISIONS = """
INSERT INTO document_revisions SELECT r.* FROM trashed_documents t, jsonb_populate_recordset(NULL::document_revisions,
    (SELECT jsonb_agg(e || jsonb_build_object('id', nextval(pg_get_serial_sequence('document_revisions', 'id'))))
     FROM jsonb_array_elements(t.revisions) e)) r WHERE t.id = %(id)s AND t.revisions <> '[]'
"""
RESTORE_FETCHED = """
INSERT INTO fetched_sources SELECT f.* FROM trashed_documents t, jsonb_populate_record(NULL::fetched_sources,
    t.fetched || jsonb_build_object('document_id', %(document)s::bigint)) f
WHERE t.id = %(id)s AND t.fetched IS NOT NULL
"""
RESTORE_FILES = """
INSERT INTO uploads (collection_id, doc_id, sha256, name, media_type, size_bytes, content, created_at)
SELECT collection_id, doc_id, document->>'source_hash', file_name, file_media_type, length(file_content), file_content,
       file_created_at
FROM trashed_documents WHERE id = %(id)s AND file_content IS NOT NULL
"""
DROP = (
    "DELETE FROM trashed_chunks WHERE trashed_id = ANY(%(ids)s)",
    "DELETE FROM trashed_documents WHERE id = ANY(%(ids)s)",
)


def trash_documents(collection: Collection, doc_ids: Iterable[str], *, actor: services.Actor = None) -> dict[str, int]:
    """Delete documents, with what was attached to them, and keep them in the trash; what went, counted, as
    `delete_documents` counts it. Where they are kept for 0 days they are deleted for good."""
    require(Permission.WRITE, collection.pk)
    names = list(doc_ids)
    if not kept_for("trash_days"):
        return delete_documents(collection, names, actor=actor)
    with transaction.atomic():
        named: list[str] = []
        while named != (names := with_attachments(collection, names)):  # a mail may be making its attachments
            named = names
            lock_documents(collection, names)
        visible = Document.objects.filter(collection=collection, doc_id__in=names)
        params: dict[str, Any] = {"collection": collection.pk, "by": name_actor(actor)}
        params["doc_ids"] = list(visible.values_list("doc_id", flat=True))
        with elevated(Permission.WRITE, collection.pk):
            params["ids"] = [pk for (pk,) in fetch_all(connection, MOVE, params)]
            execute(connection, MOVE_CHUNKS.format(chunks=collection.chunks_table), params)
        return delete_documents(collection, names, actor=actor)


@dataclass(slots=True)
class Restored:
    """doc_ids that are back, and doc_id -> why it is not."""

    done: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def restore_documents(collection: Collection, ids: Sequence[int], *, actor: services.Actor = None) -> Restored:
    """Bring documents back from the trash, each by itself; of several deletions of one document the newest.

    One whose ID is taken by now is refused, with the reason. Unknown ids are passed over.
    """
    require(Permission.WRITE, collection.pk)
    result = Restored()
    rows = TrashedDocument.objects.filter(collection=collection, pk__in=list(ids)).newest().defer("file_content")
    for row in rows:
        if row.doc_id in result.done:
            continue
        try:
            with transaction.atomic():
                _restore(collection, row, actor)
        except (ServiceError, RagdError) as error:
            result.refused[row.doc_id] = describe(error)[1]["error"]["message"]
        else:
            result.done.append(row.doc_id)
    return result


def _restore(collection: Collection, row: TrashedDocument, actor: services.Actor) -> None:
    lock_documents(collection, [row.doc_id])
    with elevated(Permission.WRITE, collection.pk):
        taken = Document.objects.filter(collection=collection, doc_id=row.doc_id).exists()
        there = TrashedDocument.objects.filter(pk=row.pk).exists()
        if taken or not there:
            why = "a document with this ID is there by now; delete that first" if taken else "it was restored already"
            raise ServiceError(f"{row.doc_id!r} cannot be restored: {why}")
        values = {"id": row.pk, "ids": [row.pk]}
        for statement in (RESTORE_OVERLAYS, RESTORE_PAGES, RESTORE_FILES):
            execute(connection, statement, values)
    stored = row.document
    names = {each.attname: each for each in Document._meta.concrete_fields if not each.generated}
    past = Document(**{name: names[name].to_python(value) for name, value in stored.items() if name in names})
    stated = {"chunk_policy_stated": stored["chunk_policy_stated"], "state": past.state}
    same_model = (row.embed_model, row.embed_dims) == (collection.embed_model, collection.embed_dims)

    def put_back(_: IngestOutcome) -> None:
        """What no ingest makes, in the transaction that stores the document."""
        with elevated(Permission.WRITE, collection.pk):
            document = Document.objects.filter(collection=collection, doc_id=row.doc_id)
            document.update(**stated)
            if past.state != Document.State.ENABLED:
                Chunk.objects.of(collection).filter(doc_id=row.doc_id).update(enabled=False)
            execute(connection, RESTORE_REVISIONS, values)
            execute(connection, RESTORE_FETCHED, values | {"document": document.values_list("pk", flat=True).get()})
            _drop([row.pk])
        services.record(actor, [document.get()], "document.restore", "restored from the trash")

    in_current_index_version(
        collection,
        lambda: ingest(
            collection,
            draft_of(past),
            policy_of(collection, past),
            on_commit=[put_back],
            cause=Cause(RESTORE, name_actor(actor)),
            overlays=DocumentOverlays.read(collection.pk, row.doc_id),
            revision=past.revision,
            known_in=("trashed_chunks",) if same_model else (),
        ),
    )


def empty_trash(collection: Collection, ids: Sequence[int] | None = None, *, actor: services.Actor = None) -> int:
    """Delete what is in the trash for good, or only these of it; returns how many."""
    require(Permission.WRITE, collection.pk)
    rows = TrashedDocument.objects.filter(collection=collection)
    rows = rows if ids is None else rows.filter(pk__in=list(ids))
    with transaction.atomic():
        doomed = list(rows.listed().select_for_update())
        services.record(actor, doomed, "document.purge", "deleted from the trash")
        with elevated(Permission.WRITE, collection.pk):
            _drop([row.pk for row in doomed])
    return len(doomed)


def expired_trash(now: datetime, days: int) -> QuerySet[TrashedDocument]:
    """What has been in the trash for longer."""
    return TrashedDocument.objects.filter(deleted_at__lt=now - timedelta(days=days))


def expire_trash(now: datetime) -> int:
    """Delete what has been in the trash for longer than it is kept; returns how many documents."""
    old = expired_trash(now, kept_for("trash_days"))
    gone = 0
    while ids := list(old.values_list("pk", flat=True)[:DELETED_AT_ONCE]):
        with transaction.atomic():
            _drop(ids)
        gone += len(ids)
    return gone


def drop_trashed(collection: Collection, doc_ids: Sequence[str]) -> int:
    """Remove every trace of these documents from the trash, for an erasure; returns how many deletions it held."""
    rows = TrashedDocument.objects.filter(collection=collection, doc_id__in=list(doc_ids))
    ids = list(rows.values_list("pk", flat=True))
    _drop(ids)
    return len(ids)


def _drop(ids: Sequence[int]) -> None:
    for statement in DROP:
        execute(connection, statement, {"ids": list(ids)})
