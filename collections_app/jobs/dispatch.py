"""What a worker does with a job: by its kind, under a lease, to an end that is written down.

Documents are written from an uploaded file, from a source that is fetched, or once more from their own.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.db import close_old_connections, connection

from collections_app.access.document_access import lists_of, require_sender, unknown_names_warning
from collections_app.chunks.finding_scan import redacted_spans
from collections_app.chunks.policies import policy_of
from collections_app.collections.models import key_label
from collections_app.documents import stored_documents
from collections_app.documents.files import drop_stale_uploads, parse_with_recognition, require_upload
from collections_app.documents.revisions.services import hand_edits
from collections_app.documents.services import draft_of, require_unchanged, retry_on_conflict
from collections_app.endpoints.providers import require_endpoint
from collections_app.errors import UnknownError
from collections_app.index.builder import build_index_version, run_index_build
from collections_app.index.embedding_checkpoints import JobCheckpoints
from collections_app.index.ingestion import CommitHook, Draft, hash_content, in_current_index_version, ingest
from collections_app.index.measurements import run_measurement
from collections_app.jobs import attempts
from collections_app.jobs.leases import LeaseLostError, worker_name
from collections_app.jobs.queue import require_collection
from collections_app.jobs.recovery import settle_index_versions
from collections_app.models import Collection, Document, IngestJob, Upload
from collections_app.sources.source_jobs import fetch_source, remember_source
from collections_app.uploads.archives import unpack_archive
from collections_app.uploads.services import CARRIER_TYPES, attach
from ragd import telemetry
from ragd.errors import RagdError
from ragd.identity import TITLE_MAX_CHARS, clean_metadata, clean_title
from ragd.readers import ParsedDocument
from ragd.types import ChunkPolicy

log = logging.getLogger(__name__)

SETTLE_WAITS_S = (0.5, 1, 2, 4, 8)  # as long as a database takes to start again


def ingest_upload(collection: Collection, job: IngestJob, progress: attempts.JobProgress) -> None:
    """The document that the job's file is. Raises what parsing and `ingest` raise."""
    upload = require_upload(collection, job.upload_id)
    in_current_index_version(collection, lambda: _ingest_file(collection, job, upload, progress))


def ingest_source(collection: Collection, job: IngestJob, progress: attempts.JobProgress) -> None:
    """What is fetched goes on as an uploaded file would, an archive among them. Raises FetchError too."""
    upload = fetch_source(collection, job, progress)
    if job.kind == IngestJob.Kind.ARCHIVE:
        unpack_archive(collection, job, progress)
        return
    progress.enter(IngestJob.Stage.PARSE)
    in_current_index_version(collection, lambda: _ingest_file(collection, job, upload, progress))
    remember_source(collection, job, upload)


def reindex_document(collection: Collection, job: IngestJob, progress: attempts.JobProgress) -> None:
    """The document from its stored file, or from its text where there is none; what is edited meanwhile is kept."""
    work = partial(_reindex, collection, job, progress)
    retry_on_conflict(job.doc_id, lambda: in_current_index_version(collection, work))


def _ingest_file(collection: Collection, job: IngestJob, upload: Upload, progress: attempts.JobProgress) -> None:
    before = stored_documents.find_stored(collection, job.doc_id)
    policy = policy_of(collection, before, job.policy)
    draft = None
    on_commit: list[CommitHook] = [_warn_of_list(collection, job), progress.finish]
    if before is not None and before.source_hash == upload.sha256:
        draft = _same_as_stored(collection, job, policy)
    if draft is None:
        parsed = _parse(job, upload, progress, keep_attachments=True)
        draft = _draft(job, upload, parsed, is_new=before is None)
        if parsed.media_type in CARRIER_TYPES:
            on_commit.insert(0, attach(collection, job, parsed.attachments))
    job.title, job.warnings = draft.title, list(draft.warnings)
    ingest(
        collection,
        draft,
        policy,
        progress=progress,
        on_commit=on_commit,
        before=before,
        cause=stored_documents.Cause(job.origin.type or "upload", job.created_by),
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
    draft = replace(draft_of(document), access=job.origin.access)
    if job.origin.language not in (None, draft.language):
        return None
    overlays = stored_documents.DocumentOverlays.read(collection.pk, job.doc_id)
    same = hash_content(collection, draft, document.text, policy, overlays.digest) == document.content_hash
    return draft if same else None


def _draft(job: IngestJob, upload: Upload, parsed: ParsedDocument, *, is_new: bool) -> Draft:
    """What was said with the file, over what was set by hand before; what the file says of itself stays apart."""
    title, fields = ("", {}) if is_new else hand_edits(job.collection_id, job.doc_id)
    return Draft(
        doc_id=job.doc_id,
        content=parsed.text,
        title=clean_title((job.title or title or parsed.title)[:TITLE_MAX_CHARS]),
        tags=tuple(job.tags),
        metadata=clean_metadata({**fields, **job.metadata}),
        file_metadata=_said_by_file(parsed),
        source=job.source if job.kind == IngestJob.Kind.FETCH else upload.name,
        media_type=parsed.media_type,
        source_hash=upload.sha256,
        page_map=parsed.page_map,
        cell_map=parsed.cell_map,
        warnings=parsed.warnings,
        layout=parsed.layout,
        language=job.origin.language,
        access=job.origin.access,
    )


def _warn_of_list(collection: Collection, job: IngestJob) -> CommitHook:
    """A hook that notes with the job which names of the document's access list are of nobody."""

    def warn(outcome: attempts.IngestOutcome) -> None:
        listed = None if outcome.is_open else lists_of(collection, [job.doc_id]).get(job.doc_id)
        if listed is not None and listed.unknown:
            job.warnings = [*job.warnings, unknown_names_warning(listed.unknown)]

    return warn


def _parse(
    job: IngestJob, upload: Upload, progress: attempts.JobProgress, *, keep_attachments: bool = False
) -> ParsedDocument:
    progress.enter(IngestJob.Stage.PARSE, total=upload.size_bytes)
    return parse_with_recognition(upload, progress, keep_attachments=keep_attachments, fresh_parser=job.tries > 1)


def _said_by_file(parsed: ParsedDocument) -> dict[str, Any]:
    """What the file says of itself, its title among it; nothing where that is too much to keep."""
    title = {"title": parsed.title} if parsed.title else {}
    try:
        return clean_metadata(title | dict(parsed.metadata))
    except (RagdError, TypeError, ValueError):
        return {}


def _reindex(collection: Collection, job: IngestJob, progress: attempts.JobProgress) -> None:
    rows = Document.objects.filter(collection=collection, doc_id=job.doc_id)
    document, upload = rows.listed().first(), None
    if document is not None:
        files = Upload.objects.listed().of_document(collection.pk, job.doc_id)
        upload = files.filter(sha256=document.source_hash).first()
        if upload is None:
            document = rows.first()
        else:  # read from its source, so the text that is stored stays where it is
            document.text, document.page_map, document.cell_map, document.segments = "", [], [], []
    if document is None:
        raise UnknownError("document", "the document was deleted")
    draft = draft_of(document)
    if upload is not None:
        parsed = _parse(job, upload, progress)
        draft = replace(
            draft,
            content=parsed.text,
            media_type=parsed.media_type,
            page_map=parsed.page_map,
            cell_map=parsed.cell_map,
            warnings=parsed.warnings,
            file_metadata=_said_by_file(parsed),
            layout=parsed.layout,
        )
    job.title, job.warnings = draft.title, list(draft.warnings)
    before = stored_documents.find_stored(collection, job.doc_id)
    ingest(
        collection,
        draft,
        policy_of(collection, before, job.policy),
        progress=progress,
        on_commit=[require_unchanged(document), progress.finish],
        before=before,
        force=True,
        cause=stored_documents.Cause("re-index", job.created_by),
        checkpoints=JobCheckpoints(job, progress),
    )


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of job. asks_endpoint: whether the embedding endpoint answers is asked before anything is done."""

    handler: Callable[[Collection, IngestJob, attempts.JobProgress], object]
    span: str = telemetry.INGEST
    asks_endpoint: bool = False


WORK: dict[str, Work] = {
    IngestJob.Kind.FILE: Work(ingest_upload, asks_endpoint=True),
    IngestJob.Kind.FETCH: Work(ingest_source, asks_endpoint=True),
    IngestJob.Kind.REINDEX: Work(reindex_document, asks_endpoint=True),
    IngestJob.Kind.ARCHIVE: Work(unpack_archive),
    IngestJob.Kind.INDEX_VERSION: Work(build_index_version),
    IngestJob.Kind.BUILD_INDEX: Work(run_index_build, telemetry.BUILD_INDEX),
    IngestJob.Kind.MEASURE: Work(run_measurement, telemetry.PROBE, asks_endpoint=True),
}


def run_job(job_id: uuid.UUID | str) -> str | None:
    """Run a job that is free, to its end. Returns the state it is in afterwards, None when it was not free.

    Running it twice changes nothing: a second run finds it taken or finished.
    """
    job = attempts.claim_job(job_id, worker_name())
    if job is None:
        return None
    progress = attempts.JobProgress(job)
    with telemetry.attached(job.traceparent), attempts.hold_lease(job), attempts.record_cost(job):
        try:
            _work(job, progress)
            return IngestJob.State.SUCCEEDED
        except LeaseLostError:
            log.info("job %s was cancelled or taken over; this run stored nothing", job.pk)
        except Exception as exc:
            log.warning("job %s (%s) failed: %s", job.pk, job, exc, exc_info=not hasattr(exc, "message"))
            _settle(job, exc, progress)
        finally:
            if job.chars > stored_documents.LONG_CHARS:
                stored_documents.give_back_memory()
        if job.kind == IngestJob.Kind.INDEX_VERSION:
            settle_index_versions(job.collection_id)
    return IngestJob.objects.filter(pk=job.pk).values_list("state", flat=True).first()


def _settle(job: IngestJob, exc: Exception, progress: attempts.JobProgress) -> None:
    """Write down how the run ended, also when the database comes back only in a while."""
    stages = progress.fail(attempts.describe_failure(exc)[1])
    for wait_s in (*SETTLE_WAITS_S, None):
        try:
            if not connection.in_atomic_block:
                close_old_connections()  # it may have gone away: settle over a new connection
            attempts.settle_failure(job, exc, stages)
            return
        except attempts.TRANSIENT:
            if wait_s is None or connection.in_atomic_block:
                raise
            time.sleep(wait_s)


def _work(job: IngestJob, progress: attempts.JobProgress) -> None:
    work, collection = WORK[job.kind], require_collection(job)
    if work.asks_endpoint:
        require_endpoint(collection)
    require_sender(collection, job)
    with (
        redacted_spans(collection),
        telemetry.ingest_span(
            name=work.span,
            collection=collection.name,
            doc_id=job.doc_id,
            job=telemetry.JobAttempt(str(job.pk), job.kind, job.attempts, waited_ms(job)),
            api_key=key_label(job.created_by),
        ),
    ):
        work.handler(collection, job, progress)


def waited_ms(job: IngestJob) -> float | None:
    """How long this attempt waited for a worker after the job was sent, in milliseconds; None where that is unknown.

    A time before which the job was to wait, for an endpoint or a site, is no time in the queue.
    """
    if job.heartbeat_at is None:
        return None
    return max(0.0, (job.heartbeat_at - job.sent_at).total_seconds() * 1000)
