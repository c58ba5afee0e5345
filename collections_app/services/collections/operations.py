"""Operations: what is done to whole collections, seen while it runs and kept when it has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from collections_app.errors import ServiceError, describe
from collections_app.models import Operation, OperationFile
from collections_app.models.library import name_actor
from collections_app.models.operations import SILENT_AFTER
from collections_app.services.governance import audit
from collections_app.work.delivery import enqueue, job_retry_policy, sweep
from collections_app.work.leases import Lease, LeaseLostError, Progress, claim, worker_name
from ragd.errors import RagdError

log = logging.getLogger(__name__)

RUN_OPERATION = "collections.run_operation"  # the task of one operation, by its id
WAITING = "waits for a worker"
SHOWN_TRANSFERS = 3
KEPT_PER_KIND = 200
ERROR_MAX_CHARS = 2000

OnProgress = Callable[[str, int, int], None]  # stage, done, total
Handler = Callable[[Lease[Operation]], object]


class OperationProgress(Progress[Operation]):
    """One operation while it runs: `tell` how far it is, then `succeed` or `fail`, once."""

    def __init__(self, lease: Lease[Operation], *, listener: OnProgress | None = None) -> None:
        super().__init__(lease)
        self.operation, self.listener = lease.work, listener

    def tell(self, stage: str, done: int, total: int) -> bool:
        """Note how far it is, in rows of the stage; written every half second. Returns whether it was written.

        Raises LeaseLostError when another process has taken it over.
        """
        if self.listener is not None:
            self.listener(stage, done, total)
        if stage == self.operation.stage and not self.is_due:
            return False
        self.write(stage=stage, done=done, total=total)
        return True

    def write(self, **values: Any) -> None:
        if self.operation.arguments is None:  # no thread extends its lease
            values["lease_until"] = timezone.now() + SILENT_AFTER
        super().write(**values)

    def succeed(self, report: Mapping[str, Any], *, findings: int = 0) -> Operation:
        self._end(Operation.State.SUCCEEDED, report=dict(report), findings=findings)
        return self.operation

    def fail(self, error: BaseException) -> Operation:
        """With the error in the words that every channel uses."""
        body = describe(error)[1]["error"]
        self._end(Operation.State.FAILED, error_type=body["type"], error=body["message"][:ERROR_MAX_CHARS])
        return self.operation

    def _end(self, state: str, **values: Any) -> None:
        values |= {"state": state, "finished_at": timezone.now(), "worker": self.operation.worker}
        if self.lease.release(**values):
            self.operation.refresh_from_db()


def begin(kind: str, subject: str, *, actor: audit.Actor = None) -> Lease[Operation]:
    """A new operation that this process does itself; nobody takes it over when the process dies."""
    operation = Operation.objects.create(
        kind=kind,
        subject=subject,
        created_by=name_actor(actor),
        worker=worker_name(),
        attempts=1,
        lease_until=timezone.now() + SILENT_AFTER,
    )
    return Lease(operation, operation.attempts)


@contextmanager
def running(
    kind: str,
    subject: str,
    *,
    actor: audit.Actor = None,
    listener: OnProgress | None = None,
    lease: Lease[Operation] | None = None,
) -> Iterator[OperationProgress]:
    """An operation around a block, which calls `succeed` at its end; an exception is kept in it and passes on.

    lease: of one that was requested before and claimed, which is done again when its process is ended; None for a new
    one.
    """
    current = OperationProgress(lease or begin(kind, subject, actor=actor), listener=listener)
    try:
        yield current
    except BaseException as error:
        if isinstance(error, Exception) or current.operation.arguments is None:
            current.fail(error)
        raise


def request_operation(kind: str, subject: str, arguments: Mapping[str, Any], *, actor: audit.Actor = None) -> Operation:
    """A new operation that a worker does once the transaction has committed, whatever becomes of this process."""
    operation = Operation.objects.create(
        kind=kind, subject=subject, stage=WAITING, arguments=dict(arguments), created_by=name_actor(actor)
    )
    enqueue(RUN_OPERATION, str(operation.pk))
    return operation


def requested_operations() -> QuerySet[Operation]:
    """Those of workers that have not ended."""
    return Operation.objects.filter(finished_at=None, arguments__isnull=False)


def process_operation(operation_id: str, handlers: Mapping[str, Handler]) -> None:
    """The worker's side of `request_operation`. One that somebody has, or that has ended, is left alone.

    handlers: of each kind, what ends the operation that it is given, also by an exception (`running`).
    """
    lease = claim(Operation, operation_id, worker_name(), "finished_at IS NULL AND arguments IS NOT NULL", "stage = ''")
    if lease is None:
        return
    try:
        with lease.hold():
            handlers[lease.work.kind](lease)
    except LeaseLostError:
        log.info("operation %s went on elsewhere", operation_id)
    except (ServiceError, RagdError) as error:
        log.info("operation %s was refused: %s", operation_id, error)


def sweep_operations(now: datetime) -> int:
    """Send again what lost its worker or its message, and drop the files of what has ended; returns how many sent."""
    OperationFile.objects.filter(operation__finished_at__isnull=False).delete()
    return sweep(requested_operations(), RUN_OPERATION, job_retry_policy(), _give_up, now, stage=WAITING)


def _give_up(operation: Operation) -> None:
    Operation.objects.filter(pk=operation.pk).update(
        state=Operation.State.FAILED,
        finished_at=timezone.now(),
        lease_until=None,
        error_type="worker_lost",
        error=f"given up after {operation.tries} attempts: its worker ended during the stage {operation.stage!r}; "
        "look at the worker's log",
    )


def count_running(kind: str) -> int:
    """Operations of this kind that run now; one whose process died does not count."""
    return sum(each.is_running for each in Operation.objects.filter(kind=kind, state=Operation.State.RUNNING))


def arriving_collection() -> Operation | None:
    """The newest import that runs now; None when there is none."""
    imports = Operation.objects.filter(kind=Operation.Kind.IMPORT, state=Operation.State.RUNNING)
    return next((each for each in imports if each.is_running), None)


def last_operation(kind: str, subject: str | None = None) -> Operation | None:
    """The newest of a kind, of one collection when it is named; None when there is none."""
    rows = Operation.objects.filter(kind=kind)
    return (rows if subject is None else rows.filter(subject=subject)).first()


def forget_operations() -> int:
    """Keep the newest 200 of each kind; returns how many went."""
    gone = 0
    for kind in Operation.Kind.values:
        stored = list(Operation.objects.filter(kind=kind).values_list("pk", flat=True)[:KEPT_PER_KIND])
        if len(stored) == KEPT_PER_KIND:
            gone += Operation.objects.filter(kind=kind).exclude(pk__in=stored).delete()[0]
    return gone


def recent_transfers(name: str) -> dict[str, Any]:
    """What a collection's page tells of its exports and imports: {"transfers": the newest three, "transferring"}."""
    rows = Operation.objects.filter(subject=name, kind__in=(Operation.Kind.EXPORT, Operation.Kind.IMPORT))
    transfers = list(rows[:SHOWN_TRANSFERS])
    return {"transfers": transfers, "transferring": any(row.is_running for row in transfers)}
