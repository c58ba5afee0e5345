"""A job is taken by one run at a time, and a run that ends without success settles what becomes of its job."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import psycopg
from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import F, Q
from django.utils import timezone

from collections_app.errors import ServiceError
from collections_app.fetching import FetchError
from collections_app.identity import UNSTORABLE
from collections_app.models import IngestJob
from collections_app.parsing.types import ParseError
from collections_app.services.progress import lease_length
from collections_app.services.providers import EndpointWaitsError
from collections_app.services.queueing import send_jobs
from ragd.errors import EmbedderError, RagdError

State, Stage, Kind = IngestJob.State, IngestJob.Stage, IngestJob.Kind

RETRY_DELAY_S = 5
RETRY_DELAY_MAX_S = 60
JITTER = 0.25  # of the delay, at most, so that many do not come back at the same moment
ERROR_MAX_CHARS = 2000
# COPY raises the driver's own errors
TRANSIENT = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
POISON = ("crashed", "timeout", "memory")  # how a file ends its parser
WORKER_LOST = "worker_lost"
WAITING = "waiting_for_endpoint"
WAITING_FOR_SITE = "waiting_for_site"
FILE_KINDS = (Kind.FILE, Kind.FETCH, Kind.ARCHIVE, Kind.REINDEX)

CLAIM = """
UPDATE ingest_jobs
SET state = 'running', attempts = attempts + 1, worker = %(worker)s, heartbeat_at = %(now)s,
    stage = CASE kind WHEN 'fetch' THEN 'fetch' WHEN 'generation' THEN 'embed' WHEN 'build_index' THEN 'store'
            WHEN 'probe_recall' THEN 'probe' ELSE 'parse' END,
    lease_until = %(lease_until)s, started_at = coalesce(started_at, %(now)s),
    chunks_done = 0, chunks_total = 0, stages = '[]', timings_ms = '{}'
WHERE id = %(id)s AND attempts - attempts_forgiven < %(attempts_max)s
  AND (state = 'queued' OR (state = 'running' AND lease_until < %(now)s))
RETURNING *
"""


def claim_job(job_id: uuid.UUID | str, worker: str) -> IngestJob | None:
    """Take a queued job, or a running one whose lease has expired. None: somebody else has it, or it is finished.

    A job that was tried too often ends here: what kills its worker is set aside instead of tried for ever.
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
            give_up(worn_out)
    return None


def _free(now: datetime) -> Q:
    return Q(state=State.QUEUED) | Q(state=State.RUNNING, lease_until__lt=now)


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
    kind, message, retryable = describe_failure(exc)
    mine = IngestJob.objects.filter(pk=job.pk, state=State.RUNNING, attempts=job.attempts)
    told: dict[str, Any] = {"error_type": kind, "error": message[:ERROR_MAX_CHARS], "lease_until": None, "worker": ""}
    if stages is not None:
        told["stages"] = stages
    if isinstance(exc, EndpointWaitsError):
        wait_for_endpoint(mine, exc, told)
    elif isinstance(exc, FetchError) and exc.postpone_s is not None:
        wait_for_site(mine, exc.postpone_s, told)
    elif retryable and job.tries < settings.RAGD_JOB_MAX_ATTEMPTS:
        delay_s = _delay(job, getattr(exc, "retry_after_s", None))
        sent_at = timezone.now() + timedelta(seconds=delay_s)
        with transaction.atomic():
            if mine.update(state=State.QUEUED, stage=Stage.QUEUED, sent_at=sent_at, **told):
                send_jobs([job.pk], delay_s=delay_s, had_turn=isinstance(exc, TRANSIENT))
    else:
        if retryable:
            job.state = _final_state(job, kind)
            told["error"] = _final_words(job, message) if job.state == State.QUARANTINED else told["error"]
        else:
            job.state = State.FAILED
        mine.update(**told | {"state": job.state, "worker": job.worker, "finished_at": timezone.now()})


def wait_for_endpoint(mine: Any, exc: EndpointWaitsError, told: dict[str, Any]) -> None:
    """The endpoint is at fault, not the job: it waits without an attempt lost, and the sweeper sends it again."""
    mine.update(
        **told
        | {
            "state": State.QUEUED,
            "stage": Stage.QUEUED,
            "sent_at": exc.until,
            "attempts_forgiven": F("attempts"),
            "error_type": WAITING,
        }
    )


def wait_for_site(mine: Any, wait_s: float, told: dict[str, Any]) -> None:
    """The site wants to be left alone: its job waits without an attempt lost, and the sweeper sends it then."""
    until = timezone.now() + timedelta(seconds=wait_s)
    waits = {"state": State.QUEUED, "stage": Stage.QUEUED, "sent_at": until, "attempts_forgiven": F("attempts")}
    mine.update(**told | waits | {"error_type": WAITING_FOR_SITE})


def forgive_attempts(host: str, *, but: Iterable[int] = ()) -> int:
    """The workers of a host are to stop: no job is to blame for being cut off. Returns how many run there.

    but: processes that died by themselves, whose jobs may be to blame.
    """
    running = IngestJob.objects.filter(state=State.RUNNING, worker__startswith=f"{host}:")
    blamed = [f"{host}:{pid}" for pid in but]
    return running.exclude(worker__in=blamed).update(attempts_forgiven=F("attempts"))


def _delay(job: IngestJob, asked_s: float | None) -> float:
    delay_s: float = max(min(RETRY_DELAY_S * 2 ** (job.tries - 1), RETRY_DELAY_MAX_S), asked_s or 0)
    return min(delay_s, 2 * RETRY_DELAY_MAX_S) * (1 + random.uniform(0, JITTER))  # noqa: S311


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
