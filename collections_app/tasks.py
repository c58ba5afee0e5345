"""Celery's side: a task carries an id, a service does the work. Delivery may repeat; running twice changes nothing."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_process_init, worker_process_shutdown

from collections_app.collections import (
    import_stage,  # noqa: F401  (a handler of operations)
    invariants,  # noqa: F401  (a handler of operations)
)
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.operations import RUN_OPERATION, process_operation
from collections_app.jobs.queue import RUN_JOB
from collections_app.jobs.workers import end_pulse, start_pulse
from collections_app.sources import sync  # noqa: F401  (a handler of operations)

run_ingest_job = shared_task(name=RUN_JOB, ignore_result=True, acks_late=True)(run_job)

run_operation = shared_task(name=RUN_OPERATION, ignore_result=True, acks_late=True)(process_operation)


@worker_process_init.connect  # type: ignore[untyped-decorator]
def show_life(**_: Any) -> None:
    start_pulse()


@worker_process_shutdown.connect  # type: ignore[untyped-decorator]
def end_life(**_: Any) -> None:
    end_pulse()
