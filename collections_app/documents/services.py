"""Documents: ingested as text, deleted, enabled, disabled, archived, indexed again.

An ingest that is made of what the document was when it was read must not undo what somebody wrote since.

What is left when its document has gone: earlier revisions, changes to chunks, files. Removed when asked for.

The trash: documents that people delete are kept for some days, apart from all that is searched or listed.

A document goes there as rows of tables of its own and is deleted as any other; restoring it ingests its text again
under the same ID, by the chunk policy that holds for it now, with its earlier revisions, manual edits, vectors,
original and access list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from collections_app.access.context import elevated, require
from collections_app.access.document_access import Codes, require_readable
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.chunks.finding_scan import redacted_spans
from collections_app.chunks.policies import policy_of
from collections_app.collections.models import key_label, name_actor
from collections_app.collections.retention_periods import kept_for
from collections_app.collections.services import check_quota
from collections_app.documents import stored_documents
from collections_app.documents.files import drop_stale_uploads
from collections_app.documents.revisions.services import drop_history, record_deletions, record_switches
from collections_app.domain.formats import MEGABYTE
from collections_app.errors import ServiceError, UnknownError, describe
from collections_app.index.ingestion import CommitHook, Draft, in_current_index_version, ingest
from collections_app.index.stores import open_store
from collections_app.jobs.attempts import IngestOutcome
from collections_app.jobs.queue import check_queue, send_jobs, supersede_jobs
from collections_app.models import (
    Chunk,
    ChunkOverlay,
    Collection,
    Document,
    DocumentRevision,
    IngestBatch,
    IngestJob,
    StateChange,
    TrashedDocument,
    Upload,
)
from ragd import telemetry
from ragd.errors import InvalidInput, RagdError
from ragd.identity import check_doc_id, check_language, clean_metadata, clean_tags, clean_title
from ragd.store.indexing import delete_document_chunks, lock_statistics
from ragd.store.store import execute, fetch_all
from ragd.text.chunking import document_text
from ragd.types import Segment

State = Document.State
# what a change leads from and to
CHANGES: dict[str, tuple[tuple[State, ...], State]] = {
    StateChange.Kind.ENABLED: ((State.DISABLED,), State.ENABLED),
    StateChange.Kind.DISABLED: ((State.ENABLED,), State.DISABLED),
    StateChange.Kind.ARCHIVED: ((State.ENABLED, State.DISABLED), State.ARCHIVED),
    StateChange.Kind.UNARCHIVED: ((State.ARCHIVED,), State.ENABLED),
}

MODES = ("replace", "upsert")
SEGMENTS_MAX = 100_000


def get_document(collection: Collection, doc_id: str) -> Document:
    """Raises ServiceError 404."""
    record = Document.objects.filter(collection=collection, doc_id=check_doc_id(doc_id)).first()
    if record is None:
        raise UnknownError("document", f"collection {collection.name!r} has no document {doc_id!r}", field="doc_id")
    record.collection = collection
    return record


def ingest_text(
    collection: Collection,
    doc_id: str,
    content: str | Sequence[Segment],
    *,
    title: str = "",
    tags: Iterable[str] = (),
    metadata: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
    mode: str = "replace",
    source: str = "api",
    language: str | None = None,
    access: Codes | None = None,
    actor: services.Actor = None,
) -> IngestOutcome:
    """Make the document consist of this text, at once; the caller waits.

    Either mode leaves exactly the chunks of the new content. "replace" embeds all of them; "upsert" keeps the vectors
    of chunks whose text the document had before. The content that is stored already: nothing is done.
    policy: the fields that this request states, over those that were stated for the document. language: ISO 639-1 code
    of the text, "" to have it found, None as it was said of the document before. access: who may read it,
    as `document_access.resolve` gives it; None: as it is. Raises InvalidInput,
    EmptyContent, EmbedderError, ServiceError 403 (a document that may not be read), 409 (archived) and 413.
    """
    if mode not in MODES:
        raise InvalidInput(f"ingest_mode must be replace or upsert, not {mode!r}", field="ingest_mode")
    doc_id = check_doc_id(doc_id)
    draft = Draft(
        doc_id=doc_id,
        content=_check_content(content),
        title=clean_title(title),
        tags=clean_tags(tags),
        metadata=clean_metadata(metadata),
        source=source,
        language=None if language is None else check_language(language),
        access=access,
    )
    require_readable(collection, [doc_id])
    check_quota(collection, len(document_text(draft.content)))

    def supersede(_: IngestOutcome) -> None:
        supersede_jobs(collection, [doc_id], "superseded by newer content of the same document")
        drop_stale_uploads(collection.pk, doc_id)

    def work() -> IngestOutcome:
        before = stored_documents.find_stored(collection, doc_id)
        return ingest(
            collection,
            draft,
            policy_of(collection, before, policy),
            on_commit=[supersede],
            before=before,
            fresh=mode == "replace",
            cause=stored_documents.Cause("text", name_actor(actor)),
        )

    asked_by = key_label(name_actor(actor))
    previous = Document.objects.listed().filter(collection=collection, doc_id=doc_id).first()
    with redacted_spans(collection), telemetry.ingest_span(collection=collection.name, doc_id=doc_id, api_key=asked_by):
        outcome = in_current_index_version(collection, work)
    if not outcome.unchanged:
        stored = Document.objects.listed().get(collection=collection, doc_id=doc_id)
        verb, message = (services.CHANGE, "text replaced") if previous else (services.ADDITION, "text stored")
        before = state_of(previous) if previous else None
        services.record(actor, [stored], verb, message, before=before, after=state_of(stored))
    return outcome


def state_of(document: Document) -> dict[str, Any]:
    """What the audit log keeps of a document that goes: how large it was and which content, never the text."""
    return {
        "tags": document.tags, "metadata": document.metadata, "state": document.state,
        "revision": document.revision, "size_chars": document.size_chars, "content_hash": document.content_hash,
    }  # fmt: skip


def _check_content(content: str | Sequence[Segment]) -> str | Sequence[Segment]:
    if not isinstance(content, str) and len(content) > SEGMENTS_MAX:
        raise InvalidInput(f"content must have at most {SEGMENTS_MAX} segments, not {len(content)}", field="content")
    texts = [content] if isinstance(content, str) else [segment.text for segment in content]
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    limit = settings.RAGD_MAX_DOCUMENT_MB
    if size > limit * MEGABYTE:
        raise ServiceError(
            f"the content has {size / MEGABYTE:.1f} MB; at most {limit} MB are taken. "
            "Split it, or raise RAGD_MAX_DOCUMENT_MB.",
            type="too_large",
            status=413,
            field="content",
        )
    return content


def _stored_content(document: Document | DocumentRevision) -> str | list[Segment]:
    """What the document's chunks are made from: its text, or its segments."""
    if not document.segments:
        return document.text
    segments = [Segment(document.text[start:end], t_start, t_end) for start, end, t_start, t_end in document.segments]
    return segments if document_text(segments) == document.text else document.text


def draft_of(document: Document | DocumentRevision) -> Draft:
    """The document, or what it was, as it would come in again."""
    return Draft(
        doc_id=document.doc_id,
        content=_stored_content(document),
        title=document.title,
        tags=tuple(document.tags),
        metadata=document.metadata,
        file_metadata=document.file_metadata,
        source=document.source,
        media_type=document.media_type,
        source_hash=document.source_hash,
        page_map=document.page_map,
        cell_map=document.cell_map,
        warnings=document.warnings,
        language=document.language_stated if isinstance(document, Document) else None,
        found_language=document.language if isinstance(document, Document) else "",
    )


def delete_documents(collection: Collection, doc_ids: Iterable[str], *, actor: services.Actor = None) -> dict[str, int]:
    """Remove documents with chunks, earlier revisions, overlays, files and running jobs; returns how many went.

    What was attached to them goes too. Unknown ids are passed over.
    """
    require(Permission.WRITE, collection.pk)
    named = stored_documents.with_attachments(collection, [check_doc_id(doc_id) for doc_id in doc_ids])
    with transaction.atomic():
        names: list[str] = []
        while named != names:  # a mail that was being stored has made its attachments by now
            names = named
            stored_documents.lock_documents(collection, names)
            named = stored_documents.with_attachments(collection, names)
        records = list(Document.objects.listed().filter(collection=collection, doc_id__in=names))
        supersede_jobs(collection, names, "the document was deleted")
        services.record(actor, records, services.DELETION, f"deleted from {collection.name}", before=state_of)
        record_deletions(collection, [document.doc_id for document in records], actor)
        with elevated(Permission.WRITE, collection.pk):
            chunks = delete_document_chunks([document.doc_id for document in records], open_store(collection))
            # As the same role: a trigger reads the chunks that are left, and Citus lets no other read what this wrote.
            Document.objects.filter(pk__in=[document.pk for document in records]).delete()
        history = drop_history(collection, names)
        uploads, _ = Upload.objects.filter(collection=collection, doc_id__in=names).delete()
    return {"documents": len(records), "chunks": chunks, "uploads": uploads, **history}


def change_state(
    collection: Collection, doc_ids: Iterable[str], change: str, *, actor: services.Actor = None
) -> list[str]:
    """Enable, disable, archive or unarchive documents; returns the ids of those that changed, sorted.

    change: one of CHANGES. A document in no state that it leads from stays as it is: an archived one is neither enabled
    nor disabled. What was still to be ingested for one that is archived is cancelled.
    """
    require(Permission.WRITE, collection.pk)
    names = [check_doc_id(doc_id) for doc_id in doc_ids]
    before, state = CHANGES[change]
    with transaction.atomic():
        stored_documents.lock_documents(collection, names)
        rows = Document.objects.listed().filter(collection=collection, doc_id__in=names, state__in=before)
        documents = list(rows.by_doc_id())
        ids = [document.doc_id for document in documents]
        if not ids:
            return []
        if state == State.ARCHIVED:
            supersede_jobs(collection, ids, "the document was archived")
        with elevated(Permission.WRITE, collection.pk):
            lock_statistics(open_store(collection))
            Document.objects.filter(pk__in=[document.pk for document in documents]).update(
                state=state, updated_at=timezone.now()
            )
            enabled = state == State.ENABLED
            chunks = Chunk.objects.of(collection).filter(doc_id__in=ids, switched_off=False)
            chunks.exclude(enabled=enabled).update(enabled=enabled)
        record_switches(collection, documents, change, actor)
        services.record(
            actor,
            documents,
            services.CHANGE,
            StateChange.Kind(change).value,
            before=lambda document: {"state": document.state},
            after={"state": state.value},
        )
    return ids


def reindex_documents(
    collection: Collection, doc_ids: Iterable[str], *, actor: services.Actor = None
) -> list[IngestJob]:
    """Queue one job per document that reads its source again, splits it by its policy and embeds it anew.

    The policy is the collection's with what was stated for the document. Meanwhile the present version is served.
    Archived documents are passed over.
    """
    require(Permission.WRITE, collection.pk)
    names = [check_doc_id(doc_id) for doc_id in doc_ids]
    with transaction.atomic():
        stored_documents.lock_documents(collection, [])
        rows = Document.objects.listed().filter(collection=collection, doc_id__in=names).in_state("present")
        documents = list(rows.by_doc_id())
        check_queue(len(documents))
        batch = IngestBatch.objects.create(
            collection=collection, kind=IngestBatch.Kind.REINDEX, submitted=len(documents), created_by=name_actor(actor)
        )
        supersede_jobs(collection, [document.doc_id for document in documents], "superseded by a later re-index")
        jobs = [
            IngestJob(
                collection=collection,
                kind=IngestJob.Kind.REINDEX,
                batch=batch,
                doc_id=document.doc_id,
                title=document.title,
                source=document.source,
                traceparent=telemetry.current_traceparent(),
                created_by=name_actor(actor),
            )
            for document in documents
        ]
        IngestJob.objects.bulk_create(jobs)
        send_jobs([job.pk for job in jobs])
        services.record(actor, documents, services.CHANGE, "queued for indexing again")
    return jobs


Result = TypeVar("Result")

TRIES = 3


class RevisionConflictError(Exception):
    """Somebody else wrote or deleted the document after it was read; nothing of this ingest was stored."""


def require_unchanged(document: Document, *, any_revision: bool = False) -> CommitHook:
    """A hook that stops an ingest when the document was written or deleted since it was read.

    document: as it was read. any_revision: what was written to it since does not matter, only that it is there.
    """

    def check(outcome: IngestOutcome) -> None:
        is_newer = outcome.revision > document.revision + 1 and not any_revision
        if is_newer or not Document.objects.filter(pk=document.pk).exists():  # a row of another key was made
            raise RevisionConflictError

    return check


def retry_on_conflict(doc_id: str, work: Callable[[], Result], *, field: str | None = None) -> Result:
    """Do the work, which reads the document first, and again when it was changed meanwhile. 409 after TRIES times."""
    for _ in range(TRIES):
        try:
            return work()
        except (RevisionConflictError, Document.DoesNotExist, DocumentRevision.DoesNotExist):
            continue  # what is gone, half read, is told by the next try
    raise ServiceError(f"{doc_id!r} is being written all the time; nothing was changed. Try again", field=field)


NEEDED_BY_JOBS = ("queued", "running", "failed", "quarantined")


def drop_orphans(collection: Collection, doc_ids: Sequence[str], *, actor: services.Actor = None) -> int:
    """Delete revisions of and changes to documents that are not there; those that are keep theirs. Returns how many."""
    with transaction.atomic():
        stored_documents.lock_documents(collection, doc_ids)
        present = Document.objects.filter(collection=collection, doc_id__in=doc_ids).values_list("doc_id", flat=True)
        gone = sorted(set(doc_ids) - set(present))
        revisions, _ = DocumentRevision.objects.filter(collection=collection, doc_id__in=gone).delete()
        overlays, _ = ChunkOverlay.objects.filter(collection=collection, doc_id__in=gone).delete()
        if removed := revisions + overlays:
            words = f"deleted {revisions} revisions and {overlays} changes of chunks whose documents are gone"
            services.record(actor, [collection], services.DELETION, words)
    return removed


def drop_unneeded_uploads(uploads: Sequence[Upload], *, actor: services.Actor = None) -> int:
    """Delete the files among these that are no document's source and that no job may need again; returns how many."""
    gone = [upload for upload in uploads if _is_unneeded(upload)]
    with transaction.atomic():
        services.record(actor, gone, services.DELETION, "deleted a file that nothing needs")
        Upload.objects.filter(pk__in=[upload.pk for upload in gone]).delete()
    return len(gone)


def _is_unneeded(upload: Upload) -> bool:
    if upload.jobs.filter(state__in=NEEDED_BY_JOBS).exists():
        return False
    owners = Document.objects.filter(
        collection_id=upload.collection_id, doc_id=upload.doc_id, source_hash=upload.sha256
    )
    return not owners.exists()


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
        while named != (
            names := stored_documents.with_attachments(collection, names)
        ):  # a mail may be making its attachments
            named = names
            stored_documents.lock_documents(collection, names)
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
    stored_documents.lock_documents(collection, [row.doc_id])
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
            cause=stored_documents.Cause(RESTORE, name_actor(actor)),
            overlays=stored_documents.DocumentOverlays.read(collection.pk, row.doc_id),
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
