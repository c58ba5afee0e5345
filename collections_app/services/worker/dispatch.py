"""What a worker does with a job."""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import close_old_connections, connection

from collections_app.domain.identity import TITLE_MAX_CHARS, clean_metadata, clean_title
from collections_app.domain.texts import LONG_CHARS, give_back_memory
from collections_app.errors import ServiceError
from collections_app.models import Collection, Document, IngestJob, Upload
from collections_app.parsing import parse
from collections_app.parsing.process.process import stop_server
from collections_app.parsing.types import ParsedDocument
from collections_app.policies import policy_of
from collections_app.services.documents.documents import draft_of
from collections_app.services.documents.optimistic_lock import RevisionGuard, retry_on_conflict
from collections_app.services.endpoints.providers import require_endpoint
from collections_app.services.generations.builder import build_generation
from collections_app.services.generations.index_builds import build_index
from collections_app.services.generations.recall_probes import run_probe, submit_probe
from collections_app.services.governance import audit
from collections_app.services.governance.security_policy import redacted_spans
from collections_app.services.indexing.chunk_overlays import DocumentOverlays
from collections_app.services.indexing.document_locks import find_stored
from collections_app.services.indexing.embedding_checkpoints import JobCheckpoints
from collections_app.services.indexing.ingestion import (
    Draft,
    IngestOutcome,
    Progress,
    hash_content,
    in_current_generation,
    ingest,
)
from collections_app.services.indexing.revisions import Cause, hand_edits
from collections_app.services.jobs.cancellation import settle_generations
from collections_app.services.jobs.claims import TRANSIENT, claim_job, describe_failure, settle_failure
from collections_app.services.jobs.job_costs import record_cost
from collections_app.services.jobs.progress import JobProgress
from collections_app.services.jobs.queue import require_collection
from collections_app.services.jobs.workers import hold_lease
from collections_app.services.sources.fetch_stage import fetch_source, remember_source
from collections_app.services.uploads.archives import parse_limits, unpack_archive
from collections_app.services.uploads.attachments import watch_attachments
from collections_app.services.uploads.uploads import drop_stale_uploads, open_content
from collections_app.stores import open_store
from collections_app.work.interrupting import LeaseLostError, interruptible
from collections_app.work.leases import worker_name
from ragd import telemetry
from ragd.errors import UnknownCollection
from ragd.types import ChunkPolicy

log = logging.getLogger(__name__)

# What is asked whether its embedding endpoint answers, before anything is done.
ASKING_FIRST = (IngestJob.Kind.FILE, IngestJob.Kind.REINDEX, IngestJob.Kind.FETCH)
SPAN_NAMES: dict[str, str] = {
    IngestJob.Kind.BUILD_INDEX: telemetry.BUILD_INDEX,
    IngestJob.Kind.PROBE_RECALL: telemetry.PROBE,
}

SETTLE_WAITS_S = (0.5, 1, 2, 4, 8)  # as long as a database takes to start again

FIND_UPLOAD = """
SELECT c.*, u.sha256 AS upload_sha256, u.name AS upload_name, u.size_bytes AS upload_size_bytes
FROM uploads u
JOIN collections c ON c.id = u.collection_id
WHERE u.id = %(upload_id)s
"""


def run_job(job_id: uuid.UUID | str) -> str | None:
    """Run a job that is free, to its end. Returns the state it is in afterwards, None when it was not free.

    Running it twice changes nothing: a second run finds it taken or finished.
    """
    job = claim_job(job_id, worker_name())
    if job is None:
        return None
    progress = JobProgress(job)
    with telemetry.attached(job.traceparent), hold_lease(job), record_cost(job):
        try:
            _work(job, progress)
            return IngestJob.State.SUCCEEDED
        except LeaseLostError:
            log.info("job %s was cancelled or taken over; this run stored nothing", job.pk)
        except Exception as exc:
            log.warning("job %s (%s) failed: %s", job.pk, job, exc, exc_info=not _is_expected(exc))
            _settle(job, exc, progress)
        finally:
            if job.chars > LONG_CHARS:
                give_back_memory()
        if job.kind == IngestJob.Kind.GENERATION:
            settle_generations(job.collection_id)
    return IngestJob.objects.filter(pk=job.pk).values_list("state", flat=True).first()


def _settle(job: IngestJob, exc: Exception, progress: JobProgress) -> None:
    """Write down how the run ended, also when the database comes back only in a while."""
    stages = progress.fail(describe_failure(exc)[1])
    for wait_s in (*SETTLE_WAITS_S, None):
        try:
            if not connection.in_atomic_block:
                close_old_connections()  # it may have gone away: settle over a new connection
            settle_failure(job, exc, stages)
            return
        except TRANSIENT:
            if wait_s is None or connection.in_atomic_block:
                raise
            time.sleep(wait_s)


def _is_expected(exc: Exception) -> bool:
    """Whether the message says enough for the log."""
    return hasattr(exc, "message")


def _work(job: IngestJob, progress: JobProgress) -> None:
    kind = job.kind
    upload = _find_upload(job) if kind == IngestJob.Kind.FILE else None
    collection = upload.collection if upload else require_collection(job)
    if kind in ASKING_FIRST:
        require_endpoint(collection)
    with (
        redacted_spans(collection),
        telemetry.ingest_span(
            name=SPAN_NAMES.get(kind, telemetry.INGEST),
            collection=collection.name,
            doc_id=job.doc_id,
            job_id=str(job.pk),
            kind=kind,
            attempt=job.attempts,
            queue_ms=waited_ms(job),
            api_key=audit.key_label(job.created_by),
        ),
    ):
        if upload is not None:
            file = upload
            in_current_generation(collection, lambda: _ingest_file(collection, job, file, progress))
        elif kind == IngestJob.Kind.REINDEX:
            again = partial(_index_again, collection, job, progress)
            retry_on_conflict(job.doc_id, lambda: in_current_generation(collection, again))
        elif kind == IngestJob.Kind.BUILD_INDEX:
            _build_index(collection, progress)
        elif kind == IngestJob.Kind.GENERATION:
            build_generation(collection, job, progress)
        elif kind == IngestJob.Kind.ARCHIVE:
            unpack_archive(collection, job, progress)
        elif kind == IngestJob.Kind.PROBE_RECALL:
            run_probe(collection, job, progress)
        else:
            _fetch(collection, job, progress)


def waited_ms(job: IngestJob) -> float | None:
    """How long this attempt waited for a worker after the job was sent, in milliseconds; None where that is unknown.

    A time before which the job was to wait, for an endpoint or a site, is no time in the queue.
    """
    if job.heartbeat_at is None:
        return None
    return max(0.0, (job.heartbeat_at - job.sent_at).total_seconds() * 1000)


def _fetch(collection: Collection, job: IngestJob, progress: JobProgress) -> None:
    """What is fetched goes on as an uploaded file would, an archive among them."""
    upload = fetch_source(collection, job, progress)
    if job.kind == IngestJob.Kind.ARCHIVE:
        unpack_archive(collection, job, progress)
        return
    progress.enter(IngestJob.Stage.PARSE)
    in_current_generation(collection, lambda: _ingest_file(collection, job, upload, progress))
    remember_source(collection, job, upload)


def _find_upload(job: IngestJob) -> Upload:
    """The job's file, without its bytes, and its collection, in one query. Raises ServiceError, UnknownCollection."""
    rows = list(Collection.objects.raw(FIND_UPLOAD, {"upload_id": job.upload_id}))
    if not rows:
        raise ServiceError("the file of this job is gone; upload it again", type="upload_gone", status=409)
    collection: Any = rows[0]
    if collection.deleted_at is not None:
        raise UnknownCollection("the collection was deleted")
    return Upload(
        pk=job.upload_id,
        collection=collection,
        doc_id=job.doc_id,
        sha256=collection.upload_sha256,
        name=collection.upload_name,
        size_bytes=collection.upload_size_bytes,
    )


def _build_index(collection: Collection, progress: JobProgress) -> None:
    progress.enter(IngestJob.Stage.STORE)
    build_index(open_store(collection), progress)
    progress.finish(IngestOutcome(0, 0, False, 0))
    submit_probe(collection, created_by="the index build")


def _ingest_file(collection: Collection, job: IngestJob, upload: Upload, progress: JobProgress) -> None:
    before = find_stored(collection, job.doc_id)
    policy = policy_of(collection, before, job.policy)
    draft = None
    watcher: Progress = progress
    if before is not None and before.source_hash == upload.sha256:
        draft = _same_as_stored(collection, job, policy)
    if draft is None:
        parsed = _parse(job, upload, progress, keep_attachments=True)
        draft = _draft(job, upload, parsed)
        watcher = watch_attachments(collection, job, parsed, progress)
    job.title, job.warnings = draft.title, list(draft.warnings)
    cause = Cause(job.origin.get("type") or "upload", job.created_by)
    kept = JobCheckpoints(job, progress)
    ingest(collection, draft, policy, watcher, before=before, cause=cause, kept=kept)
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


def _draft(job: IngestJob, upload: Upload, parsed: ParsedDocument) -> Draft:
    """What was said with the file, over what was set by hand before, over what the file says of itself."""
    title, fields = hand_edits(job.collection_id, job.doc_id)
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
    limits = parse_limits(keep_attachments=keep_attachments)
    with telemetry.parse_span(name=upload.name, size_bytes=upload.size_bytes) as span:
        content = open_content(upload.pk)
        if job.tries > 1:
            stop_server()  # what an earlier attempt left behind in it is not to blame
        with content, interruptible():
            parsed = parse(content, upload.name, limits=limits)
        telemetry.record_counts(span, size_chars=len(parsed.text), media_type=parsed.media_type)
    return parsed


def _merge(found: Any, stated: dict[str, Any]) -> dict[str, Any]:
    """What the uploader said over what the file says of itself, which gives way when it is too much to keep."""
    try:
        return clean_metadata({**found, **stated})
    except Exception:
        return clean_metadata(stated)


def _index_again(collection: Collection, job: IngestJob, progress: JobProgress) -> None:
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
    policy = policy_of(collection, before, job.policy)
    cause = Cause("re-index", job.created_by)
    kept = JobCheckpoints(job, progress)
    watcher = RevisionGuard(progress, document)
    ingest(collection, draft, policy, watcher, before=before, force=True, cause=cause, kept=kept)
