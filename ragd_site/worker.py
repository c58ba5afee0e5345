"""The worker: `celery -A ragd_site.worker worker`. Its main process also sends lost jobs again and deletes old rows."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

gc.disable()  # as in ragd_site.wsgi
IS_SUPERVISED = "RAGD_PROCESS" in os.environ
os.environ.setdefault("RAGD_PROCESS", "worker")

import django
from celery.platforms import SecurityWarning
from celery.signals import (
    task_prerun,
    worker_init,
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)
from django.apps import apps
from django.conf import settings
from django.db import close_old_connections, connection, connections

from ragd_site.celery import app

django.setup()  # before the models are imported

from collections_app.endpoints.server_settings import stored
from collections_app.jobs.leases import LeasedWork, forgive_host, release_dead
from collections_app.jobs.maintenance import maintain
from collections_app.jobs.recovery import resend_taken
from collections_app.models import IngestJob, Operation, Status
from evaluation_app.failures.bisection import forget_bisections
from evaluation_app.runs import lifecycle
from evaluation_app.runs.lifecycle import send_waiting
from evaluation_app.runs.runner import release_host
from evaluation_app.scoring.sampling import send_samples
from evaluation_app.telemetry.alerts.rules import evaluate_alerts
from evaluation_app.telemetry.evidence.report import refresh_usual
from evaluation_app.telemetry.overview import figures
from ragd_site.backup.operations import back_up_on_schedule
from ragd_site.checks import stop_unless_supported
from ragd_site.observability import tracing
from ragd_site.operations.erasure.documents import erase_files_of_threads
from ragd_site.runtime.accounts import start_warnings
from ragd_site.runtime.processes import leave

gc.enable()
gc.freeze()
__all__ = ["app"]

logger = logging.getLogger(__name__)
# it warns of pickled messages to a worker of root; only JSON is accepted here
warnings.simplefilter("ignore", SecurityWarning)

MAINTAIN_EVERY_S = 15.0  # at most; never longer than a lease
RETAIN_EVERY_S = 3600.0
ROLL_UP_EVERY_S = 300.0
ALERT_EVERY_S = 60.0
ALIVE_WITHIN_S = 60
WATCH_EVERY_S = 1.0
POOL_LOST = 71  # the exit status of a worker that lost a process
stopping = threading.Event()


@worker_init.connect(weak=False)  # type: ignore[untyped-decorator]
def look_at_database(**_: Any) -> None:
    stop_unless_supported()
    if not IS_SUPERVISED:  # else the supervisor has said it
        for sentence in start_warnings("localhost", [], []):
            logger.warning(sentence)


@task_prerun.connect(weak=False)  # type: ignore[untyped-decorator]
def follow_pages(task: Any, **_: object) -> None:
    if not task.request.is_eager:  # else it is in the middle of somebody's work
        close_old_connections()
    stored.refresh()


@worker_process_init.connect(weak=False)  # type: ignore[untyped-decorator]
def trace_process(**_: object) -> None:
    """Each process that runs tasks writes its own spans."""
    tracing.set_up("worker")


@worker_process_shutdown.connect(weak=False)  # type: ignore[untyped-decorator]
def flush_spans(**_: object) -> None:
    tracing.shut_down()


@worker_ready.connect(weak=False)  # type: ignore[untyped-decorator]
def begin_maintenance(sender: Any, **_: Any) -> None:
    stopping.clear()
    threading.Thread(target=maintain_until_stopped, name="ragd-maintenance", daemon=True).start()
    if (pool := getattr(sender.pool, "_pool", None)) is not None and hasattr(pool, "_pool"):
        threading.Thread(target=watch_pool, args=(pool,), name="ragd-pool-watch", daemon=True).start()


def watch_pool(pool: Any) -> None:
    """Start the whole worker again when one of its processes was killed.

    The processes of a pool take their tasks from one pipe under one lock. One that is killed while it waits there never
    gives the lock back, and all the others, also those that take its place, wait for ever, though they live.
    """
    known = processes_of(pool)  # at once: one may be killed before the first wait is over
    while not stopping.wait(WATCH_EVERY_S):
        present = processes_of(pool)
        killed = [pid for pid, process in known.items() if pid not in present and (process.exitcode or 0) < 0]
        known = present
        if killed and not stopping.is_set():
            begin_again(killed, pool)


def processes_of(pool: Any) -> dict[int, Any]:
    """Those that run, by pid. The pool also lists the one that it is just about to start, which has none yet."""
    return {process.pid: process for process in list(pool._pool) if process.pid is not None}


def begin_again(killed: Sequence[int], pool: Any) -> None:
    """End this worker at once; its supervisor starts it again. The jobs of the other processes lose no attempt."""
    try:
        logger.error("Worker process %s was killed; the worker starts again.", ", ".join(map(str, killed)))
        try:
            forgive_jobs(but=killed)
        except Exception:
            logger.exception("The jobs that are cut off now lose an attempt.")
        for pid in processes_of(pool):  # read late: the pool goes on replacing what was killed
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    finally:
        os._exit(POOL_LOST)  # whatever went wrong: a pool whose lock is lost does no work any more


@worker_shutting_down.connect(weak=False)  # type: ignore[untyped-decorator]
def end_maintenance(**_: Any) -> None:
    stopping.set()
    try:
        forgive_jobs()
    except Exception:
        logger.exception("The jobs that are cut off now lose an attempt.")


@worker_shutdown.connect(weak=False)  # type: ignore[untyped-decorator]
def end_quickly(sender: Any, **_: Any) -> None:
    leave(sender.exitcode or 0)


def forgive_jobs(*, but: Sequence[int] = ()) -> None:
    try:
        for model in (IngestJob, Operation):
            forgive_host(model.objects.all(), socket.gethostname(), but=but)
        release_host(socket.gethostname(), but=but)
    finally:
        connection.close()


def maintain_until_stopped() -> None:
    """Every 15 s (or lease, where that is shorter) send lost jobs again, every minute measure the alert rules,
    every 5 minutes add spans up, every hour delete what is past its retention. A fault is tried again.

    Before the first time the leases of processes that are gone are ended.
    """
    maintain_every_s = min(MAINTAIN_EVERY_S, settings.RAGD_JOB_LEASE_S)
    retain_at = roll_up_at = alert_at = time.monotonic()
    is_first = True
    while not stopping.is_set():
        try:
            if is_first:
                release_the_dead()
                is_first = False
            stored.refresh()
            maintain_jobs()
            if time.monotonic() >= alert_at:
                alert_at = time.monotonic() + ALERT_EVERY_S
                evaluate_alerts()
            if time.monotonic() >= retain_at:
                retain_at = time.monotonic() + RETAIN_EVERY_S
                apply_retention()
                roll_up_spans(everything=True)
            elif time.monotonic() >= roll_up_at:
                roll_up_spans()
                roll_up_at = time.monotonic() + ROLL_UP_EVERY_S
        except Exception:
            logger.exception("Maintenance failed; it is tried again in %.0f s.", maintain_every_s)
        finally:
            connections.close_all()  # the pool forks from this process: no connection may be open then
        stopping.wait(maintain_every_s)


def release_the_dead() -> None:
    """What the worker before this one held or had taken when it was killed runs again at once, and not when its lease
    is over."""
    for model in apps.get_models():
        if issubclass(model, LeasedWork):
            count = release_dead(model._default_manager.all(), socket.gethostname())
            if count and model is IngestJob:
                resend_taken(settings.CELERY_WORKER_PREFETCH_MULTIPLIER * settings.CELERY_WORKER_CONCURRENCY)


def maintain_jobs() -> None:
    """Send jobs that were lost, evaluations that wait, live traffic to score, and the backup that is due."""
    maintain()
    erase_files_of_threads()
    send_waiting()
    send_samples()
    back_up_on_schedule()


def apply_retention() -> None:
    """Delete what is past its retention, and once a day have what is stored checked by a worker process."""
    lifecycle.apply_retention()
    lifecycle.check_daily()
    forget_bisections()


def roll_up_spans(*, everything: bool = False) -> None:
    """For the overview and the field coverage; everything: also what came late, and what is too old goes."""
    figures.roll_up(everything=everything)
    if everything:
        figures.forget_old_rollups()
    refresh_usual()  # the last, so that its fault holds up nothing


def is_alive() -> bool:
    """Whether a worker process of this host gave a sign of life within the last minute."""
    workers = Status.objects.alive(timedelta(seconds=ALIVE_WITHIN_S))
    return workers.filter(values__host=socket.gethostname()).exists()


if __name__ == "__main__":
    # the health check of a worker's container: `python -m ragd_site.worker`
    sys.exit(0 if is_alive() else "No worker of this host gave a sign of life within the last minute.")
