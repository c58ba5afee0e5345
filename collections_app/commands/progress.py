"""Progress of a command on standard error, and waiting for batches: watched, or done in this process."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from django.db import connection
from django.db.models import F
from django.utils import timezone
from tqdm import tqdm

from collections_app.domain.formats import MEGABYTE
from collections_app.jobs.batches import ALIVE_WITHIN, BatchProgress, batch_progress
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.leases import worker_name
from collections_app.jobs.maintenance import maintain
from collections_app.jobs.queue import send_jobs
from collections_app.models import IngestBatch, IngestJob, Status

LINE_EVERY_S = 5.0
FORMAT = "{desc} {percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} {unit} [{rate_fmt}, {remaining} left{postfix}]"
LOOK_EVERY_S = 0.5
MAINTAIN_EVERY = timedelta(seconds=5)
INTERRUPTED = 130  # what a shell expects of a command that was stopped by Ctrl-C

State, Stage = IngestJob.State, IngestJob.Stage


class Bar:
    """How far something is. Used as a context; `show` may be called as often as one likes.

    bytes_: what is counted are bytes. quiet: plain lines are left out, a bar on a terminal is not.
    """

    def __init__(self, what: str, unit: str, total: int = 0, *, bytes_: bool = False, quiet: bool = False) -> None:
        self.what = what
        self.unit = unit
        self.total = total
        self.done = 0
        self.quiet = quiet
        self.in_bytes = bytes_
        self.on_terminal = sys.stderr.isatty()
        self._began = self._said_at = time.monotonic()
        self._said = ""
        self._bar: Any = None
        if self.on_terminal:
            scale = {"unit_scale": True, "unit_divisor": 1000} if bytes_ else {}
            self._bar = tqdm(
                total=total or None,
                desc=what,
                unit=unit,
                file=sys.stderr,
                bar_format=FORMAT,
                dynamic_ncols=True,
                leave=False,
                **scale,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif kind is None and self._said and not self.quiet:
            self._say(self._line(), always=True)

    def show(self, done: int, total: int | None = None, note: str = "") -> None:
        """So much is done. total: when it has changed. note: a word at the end, such as "2 failed"."""
        self.done = done
        self.total = self.total if total is None else total
        if self._bar is not None:
            self._bar.total = self.total or None
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.n = done
            self._bar.refresh()
        elif not self.quiet:
            self._say(self._line(note))

    def say(self, line: str) -> None:
        """A line of its own, above the bar."""
        if self._bar is not None:
            self._bar.write(line, file=sys.stderr)
        else:
            print(line, file=sys.stderr, flush=True)

    def _line(self, note: str = "") -> str:
        passed_s = max(time.monotonic() - self._began, 0.001)
        line = f"{self.what}: {self._count(self.done)} of {self._count(self.total)} {self._unit}"
        if self.done and self.done < self.total:
            rate = self.done / passed_s
            shown = self._count(int(rate)) if rate >= 10 or self.in_bytes else f"{rate:,.1f}"
            line += f", {shown} {self._unit}/s, {(self.total - self.done) / rate:,.0f} s left"
        return f"{line}, {note}" if note else line

    @property
    def _unit(self) -> str:
        return self.unit if not self.in_bytes else "kB" if self.total < MEGABYTE else "MB"

    def _count(self, count: int) -> str:
        return f"{count / (1_000 if self._unit == 'kB' else MEGABYTE):,.1f}" if self.in_bytes else f"{count:,}"

    def _say(self, line: str, *, always: bool = False) -> None:
        now = time.monotonic()
        if line != self._said and (always or not self._said or now - self._said_at >= LINE_EVERY_S):
            print(line, file=sys.stderr, flush=True)
            self._said, self._said_at = line, now


class StoppedError(SystemExit):
    """The person pressed Ctrl-C; the sentence was said."""

    def __init__(self, sentence: str) -> None:
        super().__init__(INTERRUPTED)
        print(f"\n{sentence}", file=sys.stderr, flush=True)


def follow(batches: Sequence[IngestBatch], *, here: bool, quiet: bool) -> dict[str, Any]:
    """Until every job of the batches has ended, or nobody is left to do it.

    here: their jobs are done in this process, beside any worker. Returns `summarize`'s counts, with "waiting_for":
    "a worker" when it stopped because none is alive.
    """
    try:
        with Bar("documents", "documents", quiet=quiet) as bar, heard_interrupts() as interrupted:
            return _watch(batches, bar, interrupted, here=here)
    except KeyboardInterrupt:
        connection.close()  # it may be in the middle of a statement
        left = _give_back() if here else 0
        raise StoppedError(_say_stopped(batches, here=here, given_back=left)) from None


@contextmanager
def heard_interrupts() -> Iterator[threading.Event]:
    """Set once Ctrl-C was pressed, also when it was pressed while a destructor ran, which swallows what it raises."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def hear(*_: Any) -> None:
        pressed.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _watch(batches: Sequence[IngestBatch], bar: Bar, interrupted: threading.Event, *, here: bool) -> dict[str, Any]:
    last_maintenance = timezone.now()
    while True:
        if interrupted.is_set():
            raise KeyboardInterrupt
        progresses = batch_progress(list(IngestBatch.objects.filter(pk__in=[batch.pk for batch in batches])))
        totals = summarize(progresses)
        bar.show(totals["done"], totals["documents"], _note(totals))
        if not totals["queued"] and not totals["running"]:
            return totals
        if here:
            if timezone.now() - last_maintenance > MAINTAIN_EVERY and not has_worker():
                maintain()
                last_maintenance = timezone.now()
            if _run_next(batches):
                continue
        elif not has_worker():
            return totals | {"waiting_for": "a worker"}
        time.sleep(LOOK_EVERY_S)


def _run_next(batches: Sequence[IngestBatch]) -> bool:
    """Do the next job that is due; whether there was one."""
    due = IngestJob.objects.filter(batch__in=batches, state=State.QUEUED, sent_at__lte=timezone.now())
    job_id = due.order_by("created_at", "pk").values_list("pk", flat=True).first()
    return job_id is not None and run_job(job_id) is not None


def has_worker() -> bool:
    """Whether any worker has shown itself within the last minute."""
    return Status.objects.alive(ALIVE_WITHIN).exists()


def summarize(progresses: Sequence[BatchProgress]) -> dict[str, Any]:
    """The counts of several batches together, as integers."""
    names = ("documents", "done", "queued", "running", "succeeded", "unchanged", "failed", "cancelled", "quarantined")
    return {name: sum(int(getattr(progress, name)) for progress in progresses) for name in names}


def troubles(batches: Sequence[IngestBatch], most: int = 100) -> list[dict[str, Any]]:
    """The jobs of the batches that failed, at most so many, by doc_id."""
    failed = IngestJob.objects.filter(batch__in=batches, state__in=(State.FAILED, State.QUARANTINED))
    rows = failed.order_by("doc_id", "pk").values("pk", "doc_id", "stage", "state", "error_type", "error")[:most]
    return [{"job_id": str(row.pop("pk"))} | row for row in map(dict, rows)]


def _note(totals: dict[str, Any]) -> str:
    failed = totals["failed"] + totals["quarantined"]
    return f"{failed:,} failed" if failed else ""


def _give_back() -> int:
    """Put the job that this process was at back into the queue; how many these were."""
    mine = IngestJob.objects.filter(state=State.RUNNING, worker=worker_name())
    ids = list(mine.values_list("pk", flat=True))
    back = {"state": State.QUEUED, "stage": Stage.QUEUED, "lease_until": None, "worker": "", "sent_at": timezone.now()}
    returned = mine.filter(pk__in=ids).update(**back, attempts_forgiven=F("attempts"))
    send_jobs(ids)
    return returned


def _say_stopped(batches: Sequence[IngestBatch], *, here: bool, given_back: int) -> str:
    totals = summarize(batch_progress(list(IngestBatch.objects.filter(pk__in=[batch.pk for batch in batches]))))
    left = totals["queued"] + totals["running"]
    shown = " ".join(f"--batch {batch.pk}" for batch in batches)
    goes_on = f"{left:,} jobs are left"
    if has_worker():
        goes_on += " and go on in the worker"
    elif here:
        goes_on += "; the one that was under way is in the queue again" if given_back else ""
    else:
        goes_on += " and wait for a worker"
    return f"Stopped watching: {goes_on}. `python manage.py ragd jobs {shown} --watch` shows them."
