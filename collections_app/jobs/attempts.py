"""One attempt of a job: it is claimed by one worker at a time, tells how far it is, and is settled at its end."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from django.db import DatabaseError, InterfaceError, InternalError, OperationalError, connection, transaction
from django.db.models import F
from django.utils import timezone

from collections_app.endpoints.providers import EndpointWaitsError
from collections_app.errors import ServiceError
from collections_app.jobs.leases import Lease, Progress, claim, claimable, job_retry_policy
from collections_app.jobs.queue import send_jobs
from collections_app.models import IngestJob
from ragd import telemetry
from ragd.errors import DimensionMismatch, EmbedderError, RagdError
from ragd.identity import UNSTORABLE
from ragd.readers.fetching import FetchError
from ragd.readers.types import ParseError
from ragd.store.store import execute

log = logging.getLogger(__name__)

State, Stage, Kind = IngestJob.State, IngestJob.Stage, IngestJob.Kind

ERROR_MAX_CHARS = 2000
# COPY raises the driver's own errors
TRANSIENT = (
    OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError,
    InternalError, psycopg.InternalError,  # so a coordinator tells of a node that died in the middle
)  # fmt: skip
POISON = ("crashed", "timeout", "memory")  # how a file ends its parser
WORKER_LOST = "worker_lost"
WAITING = "waiting_for_endpoint"
WAITING_FOR_SITE = "waiting_for_site"
FILE_KINDS = (Kind.FILE, Kind.FETCH, Kind.ARCHIVE, Kind.REINDEX)

CLAIMABLE = "state IN ('queued', 'running') AND attempts < attempts_forgiven + %(max_attempts)s"
BEGIN = """
state = 'running', started_at = coalesce(started_at, statement_timestamp()), chunks_done = 0, chunks_total = 0,
stages = '[]', timings_ms = '{}', stage = CASE kind WHEN 'fetch' THEN 'fetch' WHEN 'index_version' THEN 'embed'
    WHEN 'build_index' THEN 'store' WHEN 'measure' THEN 'probe' ELSE 'parse' END
"""

QUICK_CHUNKS = 16  # embedded sooner than anybody looks
UNITS = {
    Stage.FETCH: "bytes", Stage.PARSE: "bytes", Stage.OCR: "pages", Stage.CHUNK: "chars",
    Stage.EMBED: "chunks", Stage.STORE: "chunks",
}  # fmt: skip

ADD_COST = """
UPDATE ingest_jobs SET cost = jsonb_build_object(
    'usd', coalesce((cost->>'usd')::float8, 0) + %(usd)s,
    'priced', coalesce((cost->>'priced')::int, 0) + %(priced)s,
    'unpriced', coalesce((cost->>'unpriced')::int, 0) + %(unpriced)s)
WHERE id = %(job_id)s
"""

running: dict[str, Any] = {"job": None, "jobs_done": 0}  # of this process, for its status


@dataclass(frozen=True, slots=True)
class IngestOutcome:
    """What a document is after its ingest. chunks_written: chunks that it consists of; tokens_estimated: its words;
    is_open: it was seen to have no access list."""

    chunks_written: int
    tokens_estimated: int
    unchanged: bool
    revision: int
    chars: int = 0
    is_open: bool = False


def claim_job(job_id: uuid.UUID | str, worker: str) -> IngestJob | None:
    """Take a queued job, or a running one whose lease has expired. None: somebody else has it, or it is finished.

    A job that was tried too often ends here: what kills its worker is set aside instead of tried for ever.
    """
    policy = job_retry_policy()
    lease = claim(IngestJob, job_id, worker, CLAIMABLE, BEGIN, max_attempts=policy.max_attempts)
    if lease is not None:
        return lease.work
    with transaction.atomic():
        rows = IngestJob.objects.active().select_for_update()
        worn_out = rows.filter(claimable(), pk=job_id).first()
        if worn_out is not None and not policy.allows(worn_out.tries):
            give_up(worn_out)
    return None


@contextmanager
def hold_lease(job: IngestJob) -> Iterator[None]:
    """Extend the job's lease while the block runs, show the job as this worker's, and interrupt a run that lost it."""
    running["job"] = str(job.pk)
    try:
        with Lease(job, job.attempts).hold(interrupts=True):
            yield
    finally:
        running["job"] = None
        running["jobs_done"] += 1


class JobProgress(Progress[IngestJob]):
    """The watcher of one run: writes stage, counts and times to the row, and stops the run when the job is lost."""

    def __init__(self, job: IngestJob) -> None:
        super().__init__(Lease(job, job.attempts))
        self.job = job
        self.stages: list[dict[str, Any]] = []
        self.stage = ""
        self._open(job.stage)

    def enter(self, stage: str, *, chunks_total: int = 0, chars: int = 0, total: int = 0) -> None:
        """Begin a stage. It is written at once where it will take a while, else with the next write.

        total: in the stage's own unit, where that is known before.
        """
        self.job.chars = chars or self.job.chars
        self.job.chunks_total = chunks_total or self.job.chunks_total
        if stage != self.stage:
            self._close()
            self._open(stage)
        self._entry["total"] = total or self._known_total(stage)
        if chunks_total > QUICK_CHUNKS or self.is_due:
            self._write(stage=stage, chars=self.job.chars, chunks_total=self.job.chunks_total)

    def advance(self, done: int, total: int) -> None:
        """So much of the stage is done, in its unit."""
        entry = self._entry
        if done != entry["done"]:
            self._measure(entry, done)
        entry["done"], entry["total"] = done, total
        if self.is_due:
            counts = {"chunks_done": done, "chunks_total": total} if entry["unit"] == "chunks" else {}
            self._write(stage=self.stage, chars=self.job.chars, **counts)

    def hold(self, *, forgive: bool = False) -> None:
        """Make sure that the job is still this run's; inside a transaction nobody takes or cancels it before its end.

        forgive: something was stored for good, so the attempts before this one count no more against the limit.
        """
        if forgive:
            self.job.attempts_forgiven = self.lease.attempt - 1
        self._write(stage=self.stage, attempts_forgiven=self.job.attempts_forgiven)

    def check(self) -> None:
        """Raise LeaseLostError when the job is no longer this run's. Nothing is written, so nobody waits for it."""
        self.lease.check()

    def finish(self, outcome: IngestOutcome) -> None:
        """Inside the storing transaction: the document is there exactly when its job says so."""
        self.job.chars, self.job.chunks_total = outcome.chars, outcome.chunks_written
        if self.stage == Stage.STORE:
            self._entry["total"] = outcome.chunks_written
        self._close()
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

    def fail(self, message: str) -> list[dict[str, Any]]:
        """Close the stage that broke with the reason; the stages, to be written by whoever settles the job."""
        self._tick()
        self._entry["state"], self._entry["error"] = State.FAILED, message
        return self.stages

    @property
    def _entry(self) -> dict[str, Any]:
        return next(entry for entry in self.stages if entry["stage"] == self.stage)

    def _open(self, stage: str) -> None:
        """Make the stage the present one; one that is entered again goes on with its time."""
        self.stage, self.stage_since = stage, time.monotonic()
        self.measured_from: tuple[float, int] | None = None
        for entry in self.stages:
            if entry["stage"] == stage:
                entry.update(state=State.RUNNING, done=0, total=0, rate=None)
                return
        self.stages.append(
            {
                "stage": str(stage),
                "state": str(State.RUNNING),
                "done": 0,
                "total": self._known_total(stage),
                "unit": "files" if self.job.kind == IngestJob.Kind.ARCHIVE else UNITS.get(Stage(stage), ""),
                "started_at": timezone.now().isoformat(),
                "ms": 0.0,
                "rate": None,
                "error": "",
            }
        )

    def _known_total(self, stage: str) -> int:
        return {"chars": self.job.chars, "chunks": self.job.chunks_total}.get(UNITS.get(Stage(stage), ""), 0)

    def _close(self) -> None:
        self._tick()
        entry = self._entry
        entry["state"], entry["done"] = str(State.SUCCEEDED), entry["total"] or entry["done"]
        if entry["rate"] is None and entry["ms"] > 0 and entry["done"]:
            entry["rate"] = round(entry["done"] / entry["ms"] * 1000, 3)

    def _tick(self) -> None:
        now = time.monotonic()
        self._entry["ms"] = round(self._entry["ms"] + (now - self.stage_since) * 1000, 1)
        self.stage_since = now

    def _measure(self, entry: dict[str, Any], done: int) -> None:
        """The rate since the first count, which may hold what was there before this run."""
        now = time.monotonic()
        if self.measured_from is None:
            self.measured_from = (now, done)
            return
        since, first = self.measured_from
        if done > first and now > since:
            entry["rate"] = round((done - first) / (now - since), 3)

    def _write(self, **values: object) -> None:
        self._tick()
        timings = {entry["stage"]: entry["ms"] for entry in self.stages}
        self.write(**{"stages": self.stages, "timings_ms": timings, **values})


@contextmanager
def record_cost(job: IngestJob) -> Iterator[None]:
    """Adds what its model calls cost to the job, also when it fails or is lost: they are paid for all the same.

    A job that asked no model elsewhere is left alone.
    """
    with telemetry.spending() as spent:
        try:
            yield
        finally:
            if spent.priced or spent.unpriced:
                _add(job, spent)


def _add(job: IngestJob, spent: telemetry.Spending) -> None:
    values = {"usd": spent.known_usd, "priced": spent.priced, "unpriced": spent.unpriced, "job_id": job.pk}
    try:
        execute(connection, ADD_COST, values)
    except DatabaseError:
        log.warning("what job %s cost could not be written", job.pk, exc_info=True)


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


def settle_failure(job: IngestJob, exc: BaseException, stages: list[dict[str, Any]]) -> None:
    """Write down why a run ended: waiting or queued again when later may help, else failed or quarantined.

    stages: of the run, as `JobProgress.fail` closed them. A job that is no longer this run's is left alone.
    """
    lease, policy = Lease(job, job.attempts), job_retry_policy()
    kind, message, retryable = describe_failure(exc)
    ended: dict[str, Any] = {"error_type": kind, "error": message[:ERROR_MAX_CHARS], "stages": stages}
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
    """(until when, why) the job waits although it is not at fault: it loses no attempt, and maintenance sends it."""
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
        return (
            type(exc).__name__,
            exc.message,
            isinstance(exc, DimensionMismatch),
        )  # the endpoint may have been wrong once
    if isinstance(exc, TRANSIENT):
        return "database_unavailable", "the database broke off; nothing of this run was stored", True
    return "internal_error", f"something broke inside the worker ({type(exc).__name__}); its log says what", False
