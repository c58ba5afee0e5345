"""Jobs that write one document: from an uploaded file, from a source that is fetched, or once more from its own."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from collections_app.domain.identity import TITLE_MAX_CHARS, clean_metadata, clean_title
from collections_app.errors import ServiceError
from collections_app.models import Collection, Document, IngestJob, Upload
from collections_app.parsing import ParsedDocument
from collections_app.policies import policy_of
from collections_app.services.documents.documents import draft_of
from collections_app.services.documents.files import drop_stale_uploads, find_upload, parse_upload
from collections_app.services.documents.optimistic_lock import require_unchanged, retry_on_conflict
from collections_app.services.indexing.chunk_overlays import DocumentOverlays
from collections_app.services.indexing.document_locks import find_stored
from collections_app.services.indexing.embedding_checkpoints import JobCheckpoints
from collections_app.services.indexing.ingestion import CommitHook, Draft, hash_content, in_current_generation, ingest
from collections_app.services.indexing.revisions import Cause, hand_edits
from collections_app.services.jobs.progress import JobProgress
from collections_app.services.sources.fetch_stage import fetch_source, remember_source
from collections_app.services.uploads.archives import unpack_archive
from collections_app.services.uploads.attachments import MAIL_TYPES, attach
from ragd.types import ChunkPolicy


def ingest_upload(collection: Collection, job: IngestJob, progress: JobProgress) -> None:
    """The document that the job's file is. Raises what parsing and `ingest` raise."""
    upload = find_upload(collection, job.upload_id)
    in_current_generation(collection, lambda: _ingest_file(collection, job, upload, progress))


def ingest_source(collection: Collection, job: IngestJob, progress: JobProgress) -> None:
    """What is fetched goes on as an uploaded file would, an archive among them. Raises FetchError too."""
    upload = fetch_source(collection, job, progress)
    if job.kind == IngestJob.Kind.ARCHIVE:
        unpack_archive(collection, job, progress)
        return
    progress.enter(IngestJob.Stage.PARSE)
    in_current_generation(collection, lambda: _ingest_file(collection, job, upload, progress))
    remember_source(collection, job, upload)


def reindex_document(collection: Collection, job: IngestJob, progress: JobProgress) -> None:
    """The document from its stored file, or from its text where there is none; what is edited meanwhile is kept."""
    work = partial(_reindex, collection, job, progress)
    retry_on_conflict(job.doc_id, lambda: in_current_generation(collection, work))


def _ingest_file(collection: Collection, job: IngestJob, upload: Upload, progress: JobProgress) -> None:
    before = find_stored(collection, job.doc_id)
    policy = policy_of(collection, before, job.policy)
    draft = None
    on_commit: list[CommitHook] = [progress.finish]
    if before is not None and before.source_hash == upload.sha256:
        draft = _same_as_stored(collection, job, policy)
    if draft is None:
        parsed = _parse(job, upload, progress, keep_attachments=True)
        draft = _draft(job, upload, parsed, is_new=before is None)
        if parsed.media_type in MAIL_TYPES:
            on_commit.insert(0, attach(collection, job, parsed.attachments))
    job.title, job.warnings = draft.title, list(draft.warnings)
    ingest(
        collection,
        draft,
        policy,
        progress=progress,
        on_commit=on_commit,
        before=before,
        cause=Cause(job.origin.get("type") or "upload", job.created_by),
        checkpoints=JobCheckpoints(job, progress),
    )
    if before is not None:
        drop_stale_uploads(collection.pk, job.doc_id, keep=upload.pk)


def _same_as_stored(collection: Collection, job: IngestJob, policy: ChunkPolicy) -> Draft | None:
    """The document, which came from the same bytes, as a draft, when nothing else that was asked for has changed."""
    kinds = (IngestJob.Kind.FILE, IngestJob.Kind.FETCH)
    earlier = IngestJob.objects.filter(collection=collection, doc_id=job.doc_id, kind__in=kinds)
    last = earlier.filter(state=IngestJob.State.SUCCEEDED).newest().first()
    document = Document.objects.filter(collection=collection, doc_id=job.doc_id).first()
    if document is None or last is None or (last.tags, last.metadata) != (job.tags, job.metadata):
        return None
    draft = draft_of(document)
    overlays = DocumentOverlays.read(collection.pk, job.doc_id)
    same = hash_content(collection, draft, document.text, policy, overlays.digest) == document.content_hash
    return draft if same else None


def _draft(job: IngestJob, upload: Upload, parsed: ParsedDocument, *, is_new: bool) -> Draft:
    """What was said with the file, over what was set by hand before, over what the file says of itself."""
    title, fields = ("", {}) if is_new else hand_edits(job.collection_id, job.doc_id)
    metadata = _merge(parsed.metadata, {**fields, **job.metadata})
    return Draft(
        doc_id=job.doc_id,
        content=parsed.text,
        title=clean_title((job.title or title or parsed.title)[:TITLE_MAX_CHARS]),
        tags=tuple(job.tags),
        metadata=metadata,
        source=job.source if job.kind == IngestJob.Kind.FETCH else upload.name,
        media_type=parsed.media_type,
        source_hash=upload.sha256,
        page_map=parsed.page_map,
        warnings=parsed.warnings,
    )


def _parse(job: IngestJob, upload: Upload, progress: JobProgress, *, keep_attachments: bool = False) -> ParsedDocument:
    progress.enter(IngestJob.Stage.PARSE, total=upload.size_bytes)
    return parse_upload(upload, keep_attachments=keep_attachments, fresh_parser=job.tries > 1)


def _merge(results: Any, explicit: dict[str, Any]) -> dict[str, Any]:
    """What the uploader said over what the file says of itself, which gives way when it is too much to keep."""
    try:
        return clean_metadata({**results, **explicit})
    except Exception:
        return clean_metadata(explicit)


def _reindex(collection: Collection, job: IngestJob, progress: JobProgress) -> None:
    rows = Document.objects.filter(collection=collection, doc_id=job.doc_id)
    document, upload = rows.listed().first(), None
    if document is not None:
        files = Upload.objects.listed().of_document(collection.pk, job.doc_id)
        upload = files.filter(sha256=document.source_hash).first()
        if upload is None:
            document = rows.first()
        else:  # read from its source, so the text that is stored stays where it is
            document.text, document.page_map, document.segments = "", [], []
    if document is None:
        raise ServiceError("the document was deleted", type="unknown_document", status=404)
    draft = draft_of(document)
    if upload is not None:
        parsed = _parse(job, upload, progress)
        draft = replace(
            draft, content=parsed.text, media_type=parsed.media_type, page_map=parsed.page_map, warnings=parsed.warnings
        )
    job.title, job.warnings = draft.title, list(draft.warnings)
    before = find_stored(collection, job.doc_id)
    ingest(
        collection,
        draft,
        policy_of(collection, before, job.policy),
        progress=progress,
        on_commit=[require_unchanged(document), progress.finish],
        before=before,
        force=True,
        cause=Cause("re-index", job.created_by),
        checkpoints=JobCheckpoints(job, progress),
    )
