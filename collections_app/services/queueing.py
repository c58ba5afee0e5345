"""Background work whose whole state is its row. The broker carries the id and may lose or repeat it.

A job runs under its attempt number: every write of a run says which attempt it belongs to, and one that finds the job
cancelled, taken over or gone changes nothing and stops.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Max, Q
from django.utils import timezone

from collections_app.errors import ServiceError
from collections_app.models import Collection, Generation, IngestJob
from collections_app.parsing.types import ParseError
from collections_app.services import audit
from collections_app.services.ingestion import IngestOutcome
from ragd import telemetry
from ragd.errors import EmbedderError, RagdError, UnknownCollection

log = logging.getLogger(__name__)

State, Stage, Kind = IngestJob.State, IngestJob.Stage, IngestJob.Kind

PROGRESS_EVERY_S = 0.5
QUICK_CHUNKS = 16  # embedded sooner than anybody looks
RETRY_DELAY_S = 5
RETRY_DELAY_MAX_S = 60
RESEND_AFTER = timedelta(seconds=30)
IDLE_AFTER = timedelta(seconds=15)
ERROR_MAX_CHARS = 2000
TRANSIENT = (OperationalError, InterfaceError)

CLAIM = """
UPDATE ingest_jobs
SET state = 'running', stage = CASE kind WHEN 'file' THEN 'parse' ELSE 'chunk' END, attempts = attempts + 1,
    worker = %(worker)s, heartbeat_at = %(now)s, lease_until = %(lease_until)s,
    started_at = coalesce(started_at, %(now)s), chunks_done = 0, chunks_total = 0
WHERE id = %(id)s AND attempts - attempts_forgiven < %(attempts_max)s
  AND (state = 'queued' OR (state = 'running' AND lease_until < %(now)s))
RETURNING *
"""


class JobLostError(Exception):
    """This run no longer owns its job: it was cancelled, superseded, taken over or deleted."""


class JobProgress:
    """The watcher of one run: writes stage, counts and times to the row, and stops the run when the job is lost."""

    def __init__(self, job: IngestJob) -> None:
        self.job = job
        self.attempt = job.attempts
        self.stage: str = job.stage
        self.stage_since = self.written_at = time.monotonic()
        self.timings_ms: dict[str, float] = {}

    def enter(self, stage: str, *, chunks_total: int = 0, chars: int = 0) -> None:
        """Begin a stage. It is written at once where it will take a while, else with the next write."""
        self._close_stage()
        self.stage = stage
        self.job.chars = chars or self.job.chars
        self.job.chunks_total = chunks_total or self.job.chunks_total
        if chunks_total > QUICK_CHUNKS or self._is_due():
            self._write(stage=stage, chars=self.job.chars, chunks_total=self.job.chunks_total)

    def advance(self, done: int, total: int) -> None:
        if self._is_due():
            self._write(stage=self.stage, chars=self.job.chars, chunks_done=done, chunks_total=total)

    def hold(self, *, forgive: bool = False) -> None:
        """Make sure that the job is still this run's; inside a transaction nobody takes or cancels it before its end.

        forgive: something was stored for good, so the attempts before this one count no more against the limit.
        """
        if forgive:
            self.job.attempts_forgiven = self.attempt - 1
        self._write(stage=self.stage, attempts_forgiven=self.job.attempts_forgiven)

    def _is_due(self) -> bool:
        return time.monotonic() - self.written_at >= PROGRESS_EVERY_S

    def finish(self, outcome: IngestOutcome) -> None:
        """Inside the storing transaction: the document is there exactly when its job says so."""
        self._close_stage()
        self._write(
            state=State.SUCCEEDED,
            stage=Stage.DONE,
            chunks_total=outcome.chunks_written,
            chunks_done=outcome.chunks_written,
            chars=outcome.chars,
            unchanged=outcome.unchanged,
            title=self.job.title,
            warnings=self.job.warnings,
            finished_at=timezone.now(),
            lease_until=None,
            error="",
            error_type="",
        )

    def _close_stage(self) -> None:
        now = time.monotonic()
        spent = self.timings_ms.get(self.stage, 0.0) + (now - self.stage_since) * 1000
        self.timings_ms[self.stage] = round(spent, 1)
        self.stage_since = now

    def _write(self, **values: object) -> None:
        now = timezone.now()
        mine = IngestJob.objects.filter(pk=self.job.pk, state=State.RUNNING, attempts=self.attempt)
        lease = {"heartbeat_at": now, "lease_until": now + lease_length(), "timings_ms": self.timings_ms}
        if not mine.update(**{**lease, **values}):
            raise JobLostError
        self.written_at = time.monotonic()


def lease_length() -> timedelta:
    return timedelta(seconds=settings.RAGD_JOB_LEASE_S)


def send_jobs(job_ids: Iterable[uuid.UUID], *, delay_s: float = 0) -> None:
    """Hand the jobs to the broker once the transaction has committed. A broker that is down only delays them."""
    ids = [str(job_id) for job_id in job_ids]
    transaction.on_commit(lambda: _send_now(ids, delay_s))


def _send_now(ids: list[str], delay_s: float) -> None:
    from collections_app.tasks import run_ingest_job  # tasks call this module

    for number, job_id in enumerate(ids):
        try:
            run_ingest_job.apply_async([job_id], countdown=delay_s or None)
        except Exception:  # every transport has errors of its own
            log.exception("%d of %d jobs were not sent; the sweeper sends them later", len(ids) - number, len(ids))
            return


def supersede_jobs(collection: Collection, doc_ids: Iterable[str], reason: str) -> int:
    """Cancel what is still under way for these documents, because something newer was asked for."""
    under_way = IngestJob.objects.active().filter(
        collection=collection, doc_id__in=list(doc_ids), kind__in=(Kind.FILE, Kind.REINDEX)
    )
    return under_way.update(state=State.CANCELLED, finished_at=timezone.now(), lease_until=None, error=reason)


def claim_job(job_id: uuid.UUID | str, worker: str) -> IngestJob | None:
    """Take a queued job, or a running one whose lease has expired. None: somebody else has it, or it is finished.

    A job that was tried too often is marked failed here: what kills its worker is set aside instead of tried for ever.
    """
    now = timezone.now()
    values = {
        "id": str(job_id),
        "worker": worker,
        "now": now,
        "lease_until": now + lease_length(),
        "attempts_max": settings.RAGD_JOB_MAX_ATTEMPTS,
    }
    claimed = list(IngestJob.objects.raw(CLAIM, values))
    if claimed:
        return claimed[0]
    with transaction.atomic():
        worn_out = IngestJob.objects.select_for_update().filter(_free(now), pk=job_id).first()
        if worn_out is not None and worn_out.tries >= settings.RAGD_JOB_MAX_ATTEMPTS:
            _give_up(worn_out)
    return None


def _free(now: datetime) -> Q:
    return Q(state=State.QUEUED) | Q(state=State.RUNNING, lease_until__lt=now)


def _give_up(job: IngestJob) -> None:
    reason = f"given up after {job.tries} attempts"
    reason += f": {job.error}" if job.error else f", each of which stopped its worker during the stage {job.stage}"
    job.state, job.error_type, job.error = State.FAILED, job.error_type or "worker_lost", reason[:ERROR_MAX_CHARS]
    job.finished_at, job.lease_until = timezone.now(), None
    job.save(update_fields=["state", "error_type", "error", "finished_at", "lease_until"])


def settle_failure(job: IngestJob, exc: BaseException) -> None:
    """Write down why a run ended: queued again when another try may help, else failed. A lost job is left alone."""
    kind, message, retryable = describe_failure(exc)
    mine = IngestJob.objects.filter(pk=job.pk, state=State.RUNNING, attempts=job.attempts)
    told = {"error_type": kind, "error": message[:ERROR_MAX_CHARS], "lease_until": None}
    if retryable and job.tries < settings.RAGD_JOB_MAX_ATTEMPTS:
        delay_s = min(RETRY_DELAY_S * 2 ** (job.tries - 1), RETRY_DELAY_MAX_S)
        sent_at = timezone.now() + timedelta(seconds=delay_s)
        with transaction.atomic():
            if mine.update(state=State.QUEUED, stage=Stage.QUEUED, sent_at=sent_at, **told):
                send_jobs([job.pk], delay_s=delay_s)
        return
    mine.update(state=State.FAILED, finished_at=timezone.now(), **told)


def describe_failure(exc: BaseException) -> tuple[str, str, bool]:
    """(type, message for people, whether another try may help)."""
    if isinstance(exc, EmbedderError):
        return f"embedder_failed_{exc.kind}", exc.message, exc.retryable
    if isinstance(exc, ParseError):
        return exc.kind, exc.message, False
    if isinstance(exc, ServiceError):
        return exc.type, exc.message, False
    if isinstance(exc, RagdError):
        return type(exc).__name__, exc.message, False
    if isinstance(exc, TRANSIENT):
        return "database_unavailable", "the database broke off; nothing of this run was stored", True
    return "internal_error", f"something broke inside the worker ({type(exc).__name__}); its log says what", False


def cancel_job(job: IngestJob, *, actor: audit.Actor = None) -> IngestJob:
    """End a queued or running job. What runs notices at its next step; nothing of it is stored. Else 409."""
    with transaction.atomic():
        ended = IngestJob.objects.active().filter(pk=job.pk)
        done = ended.update(
            state=State.CANCELLED,
            finished_at=timezone.now(),
            lease_until=None,
            error=f"cancelled by {audit.name_actor(actor)}",
        )
        if done:
            settle_generations(job.collection_id)
            audit.record(actor, [job], audit.CHANGE, "cancelled")
    job.refresh_from_db()
    if not done:
        raise ServiceError(f"the job is {job.state} already; there is nothing to cancel", type="conflict", status=409)
    return job


def retry_job(job: IngestJob, *, actor: audit.Actor = None) -> IngestJob:
    """Queue a failed or cancelled job again, with all its attempts. Else, or when its file is gone, 409."""
    with transaction.atomic():
        current = IngestJob.objects.select_for_update().filter(pk=job.pk).first()
        if current is None or current.state not in (State.FAILED, State.CANCELLED):
            state = current.state if current else "deleted"
            raise ServiceError(
                f"the job is {state}; only a failed or cancelled one can be retried", type="conflict", status=409
            )
        if current.kind == Kind.FILE and current.upload_id is None:
            raise ServiceError("the file of this job is gone; upload it again", type="conflict", status=409)
        if current.doc_id:
            supersede_jobs(current.collection, [current.doc_id], "superseded by the retry of another job")
        if current.generation is not None:
            reopen_generation(current.generation)
        current.state, current.stage, current.attempts = State.QUEUED, Stage.QUEUED, 0
        current.attempts_forgiven = 0
        current.error = current.error_type = ""
        current.sent_at, current.finished_at, current.started_at = timezone.now(), None, None
        current.traceparent = telemetry.current_traceparent()
        current.save()
        send_jobs([current.pk])
        audit.record(actor, [current], audit.CHANGE, "retried")
    return current


def settle_generations(collection_id: int) -> None:
    """A generation whose job has ended before it was built is failed or cancelled too, with the job's reason."""
    for generation in Generation.objects.filter(collection_id=collection_id, state=Generation.State.BUILDING):
        last = generation.jobs.newest().first()
        if last is not None and last.state in (State.FAILED, State.CANCELLED):
            ended = Generation.objects.filter(pk=generation.pk, state=Generation.State.BUILDING)
            ended.update(state=last.state, error=last.error, chunks_per_s=None, chars_per_s=None)


def reopen_generation(generation: Generation) -> None:
    """Let the retried job of a generation go on where it stopped. ServiceError 409 when nothing is left of it."""
    if generation.state in (Generation.State.READY, Generation.State.RETIRED):
        return
    others = Generation.objects.filter(collection_id=generation.collection_id).next_up().exclude(pk=generation.pk)
    if generation.state != Generation.State.FAILED or others.exists():
        why = "another one is being built" if others.exists() else f"it is {generation.state}"
        raise ServiceError(
            f"generation {generation.number} cannot go on: {why}; start a new one", type="conflict", status=409
        )
    Generation.objects.filter(pk=generation.pk).update(state=Generation.State.BUILDING, error="")


def submit_index_build(collection: Collection) -> IngestJob | None:
    """Queue the build of the vector index, unless one is under way."""
    job = IngestJob(
        collection=collection,
        kind=Kind.BUILD_INDEX,
        traceparent=telemetry.current_traceparent(),
        created_by="the system",
    )
    with transaction.atomic():
        IngestJob.objects.bulk_create([job], ignore_conflicts=True)
        if not IngestJob.objects.filter(pk=job.pk).exists():
            return None
        send_jobs([job.pk])
    return job


def resend_lost_jobs(now: datetime) -> dict[str, int]:
    """Send again what a dead worker or a broker lost, and fail what was tried too often.

    A queued job counts as lost only when jobs that were sent well after it have been started, or when nothing at all
    runs: a long queue that moves is healthy.
    """
    busy = IngestJob.objects.filter(Q(state=State.RUNNING) | Q(heartbeat_at__gte=now - IDLE_AFTER))
    newest_started: datetime | None = busy.aggregate(newest=Max("sent_at"))["newest"]
    unsent_before = now - IDLE_AFTER if newest_started is None else min(newest_started, now) - RESEND_AFTER
    failed = 0
    with transaction.atomic():
        overdue = IngestJob.objects.overdue(now, unsent_before).select_for_update(skip_locked=True).order_by("sent_at")
        sent = []
        for job in overdue[:1000]:
            if job.tries >= settings.RAGD_JOB_MAX_ATTEMPTS:
                _give_up(job)
                failed += 1
            else:
                sent.append(job.pk)
        IngestJob.objects.filter(pk__in=sent).update(
            state=State.QUEUED, stage=Stage.QUEUED, sent_at=now, lease_until=None, worker=""
        )
        send_jobs(sent)
    return {"resent": len(sent), "failed": failed}


def require_collection(job: IngestJob) -> Collection:
    """The job's live collection. Raises UnknownCollection when it was deleted."""
    found = Collection.objects.live().filter(pk=job.collection_id).first()
    if found is None:
        raise UnknownCollection("the collection was deleted")
    return found
