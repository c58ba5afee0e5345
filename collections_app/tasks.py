"""Celery's side: a task carries an id, a service does the work. Delivery may repeat; running twice changes nothing."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_process_init, worker_process_shutdown

from collections_app.models import Operation
from collections_app.services.collections.invariant_check import run_check
from collections_app.services.collections.operations import RUN_OPERATION, Handler, process_operation
from collections_app.services.connectors.runs import RUN_CONNECTOR
from collections_app.services.connectors.sync import process_run
from collections_app.services.jobs.queue import RUN_JOB
from collections_app.services.jobs.workers import end_pulse, start_pulse
from collections_app.services.transfer.import_stage import run_import
from collections_app.services.worker.dispatch import run_job

run_connector = shared_task(name=RUN_CONNECTOR, ignore_result=True, acks_late=True)(process_run)
run_ingest_job = shared_task(name=RUN_JOB, ignore_result=True, acks_late=True)(run_job)


@shared_task(name=RUN_OPERATION, ignore_result=True, acks_late=True)  # type: ignore[untyped-decorator]
def run_operation(operation_id: str) -> None:
    kinds = Operation.Kind
    handlers: dict[str, Handler] = {kinds.CHECK: run_check, kinds.IMPORT: run_import}
    process_operation(operation_id, handlers)


@worker_process_init.connect  # type: ignore[untyped-decorator]
def show_life(**_: Any) -> None:
    start_pulse()


@worker_process_shutdown.connect  # type: ignore[untyped-decorator]
def end_life(**_: Any) -> None:
    end_pulse()
