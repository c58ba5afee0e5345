"""A job is taken by one run at a time, and a run that ends without success settles what becomes of its job."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

import psycopg
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Case, F, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone

from collections_app.domain.identity import UNSTORABLE
from collections_app.errors import ServiceError
from collections_app.fetching import FetchError
from collections_app.models import IngestJob
from collections_app.parsing.types import ParseError
from collections_app.services.endpoints.providers import EndpointWaitsError
from collections_app.services.jobs.queue import send_jobs
from collections_app.work.leases import Lease, claim, claimable
from collections_app.work.retry_policy import job_retry_policy
from ragd.errors import EmbedderError, RagdError

State, Stage, Kind = IngestJob.State, IngestJob.Stage, IngestJob.Kind

ERROR_MAX_CHARS = 2000
# COPY raises the driver's own errors
TRANSIENT = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
POISON = ("crashed", "timeout", "memory")  # how a file ends its parser
WORKER_LOST = "worker_lost"
WAITING = "waiting_for_endpoint"
WAITING_FOR_SITE = "waiting_for_site"
FILE_KINDS = (Kind.FILE, Kind.FETCH, Kind.ARCHIVE, Kind.REINDEX)
FIRST_STAGES = {
    Kind.FETCH: Stage.FETCH,
    Kind.GENERATION: Stage.EMBED,
    Kind.BUILD_INDEX: Stage.STORE,
    Kind.PROBE_RECALL: Stage.PROBE,
}  # of the other kinds: parse


def claim_job(job_id: uuid.UUID | str, worker: str) -> IngestJob | None:
    """Take a queued job, or a running one whose lease has expired. None: somebody else has it, or it is finished.

    A job that was tried too often ends here: what kills its worker is set aside instead of tried for ever.
    """
    now, policy = timezone.now(), job_retry_policy()
    lease = claim(
        IngestJob.objects.active().filter(attempts__lt=F("attempts_forgiven") + policy.max_attempts),
        job_id,
        worker,
        state=State.RUNNING,
        stage=Case(
            *(When(kind=kind, then=Value(stage)) for kind, stage in FIRST_STAGES.items()), default=Value(Stage.PARSE)
        ),
        started_at=Coalesce("started_at", now),
        chunks_done=0,
        chunks_total=0,
        stages=[],
        timings_ms={},
    )
    if lease is not None:
        return lease.work
    with transaction.atomic():
        worn_out = IngestJob.objects.active().select_for_update().filter(claimable(now), pk=job_id).first()
        if worn_out is not None and not policy.allows(worn_out.tries):
            give_up(worn_out)
    return None


def give_up(job: IngestJob) -> None:
    """End a job that was tried as often as it may be. The caller holds its row.

    A file that ended its worker or its parser each time is quarantined, anything else has failed.
    """
    kind = WORKER_LOST if job.state == State.RUNNING else job.error_type or WORKER_LOST
    if kind == WORKER_LOST:
        reason = f"its worker ended during the stage {job.stage}"
        reason += f"; before that: {job.error}" if job.error else ""
    else:
        reason = job.error
    job.state = _final_state(job, kind)
    job.error_type, job.error = kind, _final_words(job, reason)
    job.finished_at, job.lease_until = timezone.now(), None
    job.save(update_fields=["state", "error_type", "error", "finished_at", "lease_until"])


def _final_state(job: IngestJob, kind: str) -> str:
    is_poison = job.kind in FILE_KINDS and kind in (*POISON, WORKER_LOST)
    return State.QUARANTINED if is_poison else State.FAILED


def _final_words(job: IngestJob, reason: str) -> str:
    verb = "quarantined" if job.state == State.QUARANTINED else "given up"
    attempts = f"{job.tries} attempt" + ("s" if job.tries != 1 else "")
    return f"{verb} after {attempts}: {reason}"[:ERROR_MAX_CHARS]


def settle_failure(job: IngestJob, exc: BaseException, stages: list[dict[str, Any]] | None = None) -> None:
    """Write down why a run ended: waiting or queued again when later may help, else failed or quarantined.

    stages: of the run, as `JobProgress.fail` closed them. A job that is no longer this run's is left alone.
    """
    lease, policy = Lease(job, job.attempts), job_retry_policy()
    kind, message, retryable = describe_failure(exc)
    ended: dict[str, Any] = {"error_type": kind, "error": message[:ERROR_MAX_CHARS]}
    if stages is not None:
        ended["stages"] = stages
    queued = {"state": State.QUEUED, "stage": Stage.QUEUED}
    if (pause := _pause(exc)) is not None:
        until, waiting = pause
        forgiven = {"attempts_forgiven": F("attempts"), "error_type": waiting}
        lease.release(**ended | queued | forgiven, sent_at=until)
    elif retryable and policy.allows(job.tries):
        delay_s = policy.delay_s(job.tries, getattr(exc, "retry_after_s", None))
        with transaction.atomic():
            if lease.release(**ended | queued, sent_at=timezone.now() + timedelta(seconds=delay_s)):
                send_jobs([job.pk], delay_s=delay_s, had_turn=isinstance(exc, TRANSIENT))
    else:
        job.state = _final_state(job, kind) if retryable else State.FAILED
        if job.state == State.QUARANTINED:
            ended["error"] = _final_words(job, message)
        lease.release(**ended, state=job.state, worker=job.worker, finished_at=timezone.now())


def _pause(exc: BaseException) -> tuple[datetime, str] | None:
    """(until when, why) the job waits although it is not at fault: it loses no attempt, and the sweeper sends it."""
    if isinstance(exc, EndpointWaitsError):
        return exc.until, WAITING
    if isinstance(exc, FetchError) and exc.postpone_s is not None:
        return timezone.now() + timedelta(seconds=exc.postpone_s), WAITING_FOR_SITE
    return None


def describe_failure(exc: BaseException) -> tuple[str, str, bool]:
    """(type, message for people, whether another try may help). What others wrote in it is made fit to be kept."""
    kind, message, retryable = _describe(exc)
    return kind, UNSTORABLE.sub("\ufffd", message), retryable


def _describe(exc: BaseException) -> tuple[str, str, bool]:
    if isinstance(exc, EmbedderError):
        return f"embedder_failed_{exc.kind}", exc.message, exc.retryable
    if isinstance(exc, FetchError):
        return exc.kind, exc.message, exc.retryable
    if isinstance(exc, ParseError):
        return exc.kind, exc.message, exc.kind in POISON
    if isinstance(exc, ServiceError):
        return exc.type, exc.message, False
    if isinstance(exc, RagdError):
        return type(exc).__name__, exc.message, False
    if isinstance(exc, TRANSIENT):
        return "database_unavailable", "the database broke off; nothing of this run was stored", True
    return "internal_error", f"something broke inside the worker ({type(exc).__name__}); its log says what", False
