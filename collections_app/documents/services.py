"""Documents: ingested as text, deleted, enabled, disabled, archived, indexed again.

An ingest that is made of what the document was when it was read must not undo what somebody wrote since.

What is left when its document has gone: earlier revisions, changes to chunks, files. Removed when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from collections_app.access.context import elevated, require
from collections_app.access.document_access import Codes, require_readable
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.chunks.finding_scan import redacted_spans
from collections_app.chunks.policies import policy_of
from collections_app.collections.models import key_label, name_actor
from collections_app.collections.services import check_quota
from collections_app.documents.files import drop_stale_uploads
from collections_app.documents.revisions.services import drop_history, record_deletions, record_switches
from collections_app.documents.stored_documents import Cause, find_stored, lock_documents, with_attachments
from collections_app.domain.formats import MEGABYTE
from collections_app.errors import ServiceError, UnknownError
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
    Upload,
)
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.identity import check_doc_id, check_language, clean_metadata, clean_tags, clean_title
from ragd.store.indexing import delete_document_chunks, lock_statistics
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
        before = find_stored(collection, doc_id)
        return ingest(
            collection,
            draft,
            policy_of(collection, before, policy),
            on_commit=[supersede],
            before=before,
            fresh=mode == "replace",
            cause=Cause("text", name_actor(actor)),
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
    named = with_attachments(collection, [check_doc_id(doc_id) for doc_id in doc_ids])
    with transaction.atomic():
        names: list[str] = []
        while named != names:  # a mail that was being stored has made its attachments by now
            names = named
            lock_documents(collection, names)
            named = with_attachments(collection, names)
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
        lock_documents(collection, names)
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
        lock_documents(collection, [])
        rows = Document.objects.listed().filter(collection=collection, doc_id__in=names).in_state("present")
        documents = list(rows.by_doc_id())
        check_queue(len(documents))
        batch = IngestBatch.objects.create(
            collection=collection,
            kind=IngestBatch.Kind.REINDEX,
            submitted=len(documents),
            created_by=name_actor(actor),
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
        lock_documents(collection, doc_ids)
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
