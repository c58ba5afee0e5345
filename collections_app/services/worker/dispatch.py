"""What a worker does with a job: by its kind, under a lease, to an end that is written down."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from django.db import close_old_connections, connection

from collections_app.domain.texts import LONG_CHARS, give_back_memory
from collections_app.models import Collection, IngestJob
from collections_app.services.endpoints.providers import require_endpoint
from collections_app.services.generations.builder import build_generation
from collections_app.services.generations.index_builds import run_index_build
from collections_app.services.generations.recall_probes import run_probe
from collections_app.services.governance import audit
from collections_app.services.governance.security_policy import redacted_spans
from collections_app.services.jobs.cancellation import settle_generations
from collections_app.services.jobs.claims import TRANSIENT, claim_job, describe_failure, settle_failure
from collections_app.services.jobs.progress import JobProgress, record_cost
from collections_app.services.jobs.queue import require_collection
from collections_app.services.jobs.workers import hold_lease
from collections_app.services.uploads.archives import unpack_archive
from collections_app.services.worker.document_jobs import ingest_source, ingest_upload, reindex_document
from collections_app.work.interrupting import LeaseLostError
from collections_app.work.leases import worker_name
from ragd import telemetry

log = logging.getLogger(__name__)

SETTLE_WAITS_S = (0.5, 1, 2, 4, 8)  # as long as a database takes to start again


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of job. asks_endpoint: whether the embedding endpoint answers is asked before anything is done."""

    handler: Callable[[Collection, IngestJob, JobProgress], object]
    span: str = telemetry.INGEST
    asks_endpoint: bool = False


WORK: dict[str, Work] = {
    IngestJob.Kind.FILE: Work(ingest_upload, asks_endpoint=True),
    IngestJob.Kind.FETCH: Work(ingest_source, asks_endpoint=True),
    IngestJob.Kind.REINDEX: Work(reindex_document, asks_endpoint=True),
    IngestJob.Kind.ARCHIVE: Work(unpack_archive),
    IngestJob.Kind.GENERATION: Work(build_generation),
    IngestJob.Kind.BUILD_INDEX: Work(run_index_build, telemetry.BUILD_INDEX),
    IngestJob.Kind.PROBE_RECALL: Work(run_probe, telemetry.PROBE),
}


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
    work, collection = WORK[job.kind], require_collection(job)
    if work.asks_endpoint:
        require_endpoint(collection)
    with (
        redacted_spans(collection),
        telemetry.ingest_span(
            name=work.span,
            collection=collection.name,
            doc_id=job.doc_id,
            job_id=str(job.pk),
            kind=job.kind,
            attempt=job.attempts,
            queue_ms=waited_ms(job),
            api_key=audit.key_label(job.created_by),
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
