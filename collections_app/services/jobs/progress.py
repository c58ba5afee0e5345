"""What a run tells of itself: stages, counts and times go to the job's row, and a lost job stops the run."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError, connection
from django.utils import timezone

from collections_app.models import IngestJob
from collections_app.services.jobs.outcome import IngestOutcome
from collections_app.work.leases import Lease
from collections_app.work.progress import Progress
from ragd import telemetry
from ragd.store.store import execute

State, Stage = IngestJob.State, IngestJob.Stage

QUICK_CHUNKS = 16  # embedded sooner than anybody looks
UNITS = {
    Stage.FETCH: "bytes", Stage.PARSE: "bytes", Stage.CHUNK: "chars", Stage.EMBED: "chunks", Stage.STORE: "chunks",
}  # fmt: skip

ADD_COST = """
UPDATE ingest_jobs SET cost = jsonb_build_object(
    'usd', coalesce((cost->>'usd')::float8, 0) + %(usd)s,
    'priced', coalesce((cost->>'priced')::int, 0) + %(priced)s,
    'unpriced', coalesce((cost->>'unpriced')::int, 0) + %(unpriced)s)
WHERE id = %(job_id)s
"""

log = logging.getLogger(__name__)


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
