"""Documents: ingested as text, deleted, switched on and off, indexed again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from collections_app.access_context import elevated, require
from collections_app.domain.formats import MEGABYTE
from collections_app.domain.identity import check_doc_id, check_language, clean_metadata, clean_tags, clean_title
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models import (
    Chunk,
    Collection,
    Document,
    DocumentRevision,
    IngestBatch,
    IngestJob,
    StateChange,
    Upload,
)
from collections_app.models.library import key_label, name_actor
from collections_app.policies import policy_of
from collections_app.services.documents.document_tree import with_attachments
from collections_app.services.documents.files import drop_stale_uploads
from collections_app.services.governance import audit
from collections_app.services.governance.document_access import Codes, require_readable
from collections_app.services.governance.security_policy import redacted_spans
from collections_app.services.indexing.ingestion import Draft, in_current_generation, ingest
from collections_app.services.indexing.revisions import drop_history
from collections_app.services.indexing.state_changes import record_deletions, record_switches
from collections_app.services.indexing.stored_documents import Cause, find_stored, lock_documents
from collections_app.services.jobs.attempts import IngestOutcome
from collections_app.services.jobs.queue import check_queue, send_jobs, supersede_jobs
from collections_app.stores import open_store
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.store.indexing import delete_document_chunks, lock_statistics
from ragd.text.chunking import document_text
from ragd.types import Segment

MODES = ("replace", "upsert")
SEGMENTS_MAX = 100_000


def get_document(collection: Collection, doc_id: str) -> Document:
    """Raises ServiceError 404."""
    record = Document.objects.filter(collection=collection, doc_id=check_doc_id(doc_id)).first()
    if record is None:
        raise ServiceError(
            f"collection {collection.name!r} has no document {doc_id!r}",
            type="unknown_document",
            status=404,
            field="doc_id",
        )
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
    actor: audit.Actor = None,
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
        outcome = in_current_generation(collection, work)
    if not outcome.unchanged:
        stored = Document.objects.listed().get(collection=collection, doc_id=doc_id)
        verb, message = (audit.CHANGE, "text replaced") if previous else (audit.ADDITION, "text stored")
        before = state_of(previous) if previous else None
        audit.record(actor, [stored], verb, message, before=before, after=state_of(stored))
    return outcome


def state_of(document: Document) -> dict[str, Any]:
    """What the audit log keeps of a document that goes: how large it was and which content, never the text."""
    return {
        "tags": document.tags, "metadata": document.metadata, "enabled": document.enabled,
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


def delete_documents(collection: Collection, doc_ids: Iterable[str], *, actor: audit.Actor = None) -> dict[str, int]:
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
        audit.record(actor, records, audit.DELETION, f"deleted from {collection.name}", before=state_of)
        record_deletions(collection, [document.doc_id for document in records], actor)
        with elevated(Permission.WRITE, collection.pk):
            chunks = delete_document_chunks([document.doc_id for document in records], open_store(collection))
            # As the same role: a trigger reads the chunks that are left, and Citus lets no other read what this wrote.
            Document.objects.filter(pk__in=[document.pk for document in records]).delete()
        history = drop_history(collection, names)
        uploads, _ = Upload.objects.filter(collection=collection, doc_id__in=names).delete()
    return {"documents": len(records), "chunks": chunks, "uploads": uploads, **history}


def set_documents_enabled(
    collection: Collection, doc_ids: Iterable[str], *, enabled: bool, actor: audit.Actor = None
) -> int:
    """Let documents be retrieved or not; nothing of them is lost. Returns how many changed; archived ones do not."""
    require(Permission.WRITE, collection.pk)
    names = [check_doc_id(doc_id) for doc_id in doc_ids]
    with transaction.atomic():
        lock_documents(collection, names)
        rows = Document.objects.listed().filter(collection=collection, doc_id__in=names, archived_at=None)
        changed = list(rows.exclude(enabled=enabled))
        ids = [document.doc_id for document in changed]
        if not ids:
            return 0
        with elevated(Permission.WRITE, collection.pk):
            lock_statistics(open_store(collection))
            Document.objects.filter(pk__in=[document.pk for document in changed]).update(
                enabled=enabled, updated_at=timezone.now()
            )
            chunks = Chunk.objects.of(collection).filter(doc_id__in=ids, switched_off=False)
            chunks.update(enabled=enabled)
        kind = StateChange.Kind.ENABLED if enabled else StateChange.Kind.DISABLED
        record_switches(collection, changed, kind, actor)
        audit.record(
            actor,
            changed,
            audit.CHANGE,
            "enabled" if enabled else "disabled",
            before={"enabled": not enabled},
            after={"enabled": enabled},
        )
    return len(changed)


def reindex_documents(collection: Collection, doc_ids: Iterable[str], *, actor: audit.Actor = None) -> list[IngestJob]:
    """Queue one job per document that reads its source again, splits it by its policy and embeds it anew.

    The policy is the collection's with what was stated for the document. Meanwhile the present version is served.
    Archived documents are passed over.
    """
    require(Permission.WRITE, collection.pk)
    names = [check_doc_id(doc_id) for doc_id in doc_ids]
    with transaction.atomic():
        lock_documents(collection, [])
        rows = Document.objects.listed().filter(collection=collection, doc_id__in=names, archived_at=None)
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
        audit.record(actor, documents, audit.CHANGE, "queued for indexing again")
    return jobs
