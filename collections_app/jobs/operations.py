"""Operations: what is done to whole collections and to the server, seen while it runs and kept when it has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, QuerySet
from django.utils import timezone

from collections_app.access.context import current_access, require
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.errors import ServiceError, describe
from collections_app.jobs import leases
from collections_app.jobs.operation_models import SILENT_AFTER
from collections_app.models import ApiKey, Collection, Operation, WorkPart
from ragd.errors import RagdError

log = logging.getLogger(__name__)

RUN_OPERATION = "collections.run_operation"  # the task of one operation, by its id
WAITING = "waits for a worker"
SHOWN_TRANSFERS = 3
KEPT_PER_KIND = 200
PAUSE_MAX = timedelta(hours=2)  # between two attempts
SCANS = (Operation.Kind.DUPLICATES, Operation.Kind.FINDINGS)  # the last report says what was looked at
ERROR_MAX_CHARS = 2000

OnProgress = Callable[[str, int, int], None]  # stage, done, total


class OperationProgress(leases.Progress[Operation]):
    """One operation while it runs: `tell` how far it is, then `succeed` or `fail`, once."""

    def __init__(self, lease: leases.Lease[Operation], *, listener: OnProgress | None = None) -> None:
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
        self._end(Operation.State.SUCCEEDED, report=dict(report), findings=findings, error="")
        return self.operation

    def fail(self, error: BaseException) -> Operation:
        """With the error in the words that every channel uses."""
        body = describe(error)[1]["error"]
        self._end(Operation.State.FAILED, error_type=body["type"], error=body["message"][:ERROR_MAX_CHARS])
        return self.operation

    def postpone(self, delay_s: float, **values: Any) -> None:
        """Give it back, to be tried again after so many seconds, at most PAUSE_MAX; this attempt does not count.

        values: columns to set.
        """
        values |= {"sent_at": timezone.now() + timedelta(seconds=delay_s) - leases.RESEND_AFTER, "stage": WAITING}
        self.lease.release(**values, attempts_forgiven=F("attempts"))

    def _end(self, state: str, **values: Any) -> None:
        values |= {"state": state, "finished_at": timezone.now(), "worker": self.operation.worker}
        if self.lease.release(**values):
            self.operation.refresh_from_db()


Handler = Callable[[OperationProgress], object]  # calls `succeed`, or raises
HANDLERS: dict[str, Handler] = {}
LOSSES: dict[str, Callable[[Operation], object]] = {}  # called for one that is given up
# that cancelling one of a kind needs, where not ADMINISTER
PERMISSIONS = {Operation.Kind.SYNC: Permission.WRITE, Operation.Kind.JUDGE_CHECK: Permission.EVALUATE}


def begin(kind: str, subject: str, *, actor: services.Actor = None) -> leases.Lease[Operation]:
    """A new operation that this process does itself; nobody takes it over when the process dies."""
    operation = Operation.objects.create(
        kind=kind,
        subject=subject,
        created_by=name_actor(actor),
        worker=leases.worker_name(),
        attempts=1,
        lease_until=timezone.now() + SILENT_AFTER,
    )
    return leases.Lease(operation, operation.attempts)


@contextmanager
def attempt(lease: leases.Lease[Operation], *, listener: OnProgress | None = None) -> Iterator[OperationProgress]:
    """An attempt of an operation around a block, which calls `succeed` at its end; an exception fails it and passes on.

    Where the process is ended instead, a worker tries again what was requested of it.
    """
    progress = OperationProgress(lease, listener=listener)
    try:
        yield progress
    except BaseException as error:
        if isinstance(error, Exception) or progress.operation.arguments is None:
            progress.fail(error)
        raise


def running(
    kind: str, subject: str, *, actor: services.Actor = None, listener: OnProgress | None = None
) -> AbstractContextManager[OperationProgress]:
    """`attempt` of a new operation that this process does itself."""
    return attempt(begin(kind, subject, actor=actor), listener=listener)


def request_operation(
    kind: str, subject: str, arguments: Mapping[str, Any], *, actor: services.Actor = None, **values: Any
) -> Operation:
    """A new operation that a worker does once the transaction has committed, whatever becomes of this process.

    values: further columns.
    """
    operation = _create(kind, subject, arguments, actor, **values)
    leases.enqueue(RUN_OPERATION, str(operation.pk))
    return operation


def perform_operation(
    kind: str, subject: str, arguments: Mapping[str, Any], *, actor: services.Actor = None
) -> Operation:
    """The same, done now by this process; a worker goes on with it where the process is ended."""
    operation = _create(kind, subject, arguments, actor)
    process_operation(str(operation.pk))
    operation.refresh_from_db()
    return operation


def _create(kind: str, subject: str, arguments: Mapping[str, Any], actor: services.Actor, **values: Any) -> Operation:
    return Operation.objects.create(
        kind=kind, subject=subject, stage=WAITING, arguments=dict(arguments), created_by=name_actor(actor), **values
    )


def requested_operations() -> QuerySet[Operation]:
    """Those of workers that have not ended."""
    return Operation.objects.filter(finished_at=None, arguments__isnull=False)


def handles(kind: str, *, lost: Callable[[Operation], object] | None = None) -> Callable[[Handler], Handler]:
    """Register what does an operation of this kind; the tasks of its app import its module. lost: see LOSSES."""

    def register(handler: Handler) -> Handler:
        HANDLERS[kind] = handler
        if lost is not None:
            LOSSES[kind] = lost
        return handler

    return register


def process_operation(operation_id: str) -> None:
    """The worker's side of `request_operation`. One that somebody has, or that has ended, is left alone."""
    lease = leases.claim(
        Operation, operation_id, leases.worker_name(), "finished_at IS NULL AND arguments IS NOT NULL", "stage = ''"
    )
    if lease is None:
        return
    try:
        with lease.hold(interrupts=True), attempt(lease) as progress:
            HANDLERS[lease.work.kind](progress)
    except leases.LeaseLostError:
        log.info("operation %s was cancelled, or went on elsewhere", operation_id)
    except (ServiceError, RagdError) as error:
        log.info("operation %s was refused: %s", operation_id, error)


def cancel_operation(operation: Operation, *, actor: services.Actor) -> Operation:
    """End one that waits or runs; its worker notices within seconds, and keeps nothing of an attempt.

    For the person who began it, and for administrators of its collection, else of all; a sync also for whoever may
    write there. Raises Forbidden, and ServiceError 409.
    """
    if not _began(operation, actor):
        require(_permission(operation), _collection_id(operation))
    if not leases.cancel(requested_operations().filter(pk=operation.pk), f"cancelled by {name_actor(actor)}"):
        raise ServiceError(f"operation {operation.pk} has ended, or runs in the process that began it")
    operation.refresh_from_db()
    return operation


def retry_operation(operation: Operation) -> None:
    """Have a worker do one again that failed. Raises ServiceError 409 for another."""
    failed = Operation.objects.filter(pk=operation.pk, state=Operation.State.FAILED, arguments__isnull=False)
    again: dict[str, Any] = {"state": Operation.State.RUNNING, "finished_at": None, "error_type": "", "error": ""}
    again |= {"stage": WAITING, "report": {}, "sent_at": timezone.now(), "attempts_forgiven": F("attempts")}
    if not failed.update(**again):
        raise ServiceError(f"only a failed operation is tried again, and this one is {operation.state}")
    leases.enqueue(RUN_OPERATION, str(operation.pk))


def may_cancel(operation: Operation, *, actor: services.Actor) -> bool:
    """Return True if `cancel_operation` would end it for whoever asks."""
    return operation.can_cancel and (
        _began(operation, actor) or current_access().may(_permission(operation), _collection_id(operation))
    )


def _permission(operation: Operation) -> Permission:
    return PERMISSIONS.get(Operation.Kind(operation.kind), Permission.ADMINISTER)


def _began(operation: Operation, actor: services.Actor) -> bool:
    """Names of keys are chosen freely, so only the name of a person says who began it."""
    return not isinstance(actor, ApiKey) and operation.created_by == name_actor(actor)


def _collection_id(operation: Operation) -> int | None:
    named = Collection.objects.live().filter(name=operation.subject) if operation.subject else Collection.objects.none()
    return named.values_list("pk", flat=True).first()


def requeue_operations(now: datetime) -> int:
    """Send again what lost its worker or its message, and drop the files of what has ended; returns how many sent."""
    files = WorkPart.objects.filter(kind=WorkPart.Kind.FILE)
    keys = set(files.values_list("key", flat=True).distinct())
    needed = Operation.objects.filter(pk__in=keys, finished_at=None).values_list("pk", flat=True)
    files.filter(key__in=keys - set(map(str, needed))).delete()
    return leases.requeue(
        requested_operations(), RUN_OPERATION, leases.job_retry_policy(), _give_up, now, ahead=PAUSE_MAX, stage=WAITING
    )


def _give_up(operation: Operation) -> None:
    operation.state, operation.finished_at, operation.lease_until = Operation.State.FAILED, timezone.now(), None
    operation.error_type = "worker_lost"
    operation.error = (
        f"given up after {operation.tries} attempts: its worker ended during the stage {operation.stage!r}; "
        "look at the worker's log"
    )
    operation.save(update_fields=["state", "finished_at", "lease_until", "error_type", "error"])
    if operation.kind in LOSSES:
        LOSSES[operation.kind](operation)


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


def last_report(kind: str, collection: Collection) -> Operation | None:
    """The newest of a kind that has a report and is of this collection, and not of an earlier one of its name."""
    rows = Operation.objects.filter(kind=kind, subject=collection.name, created_at__gte=collection.created_at)
    return rows.exclude(report={}).first()


def forget_operations() -> int:
    """Keep the newest 200 of each kind, the last report of each collection's scans, and what has not ended; returns
    how many went. A bisection stays as long as its runs (`forget_bisections`), a sync with the newest of its source."""
    gone = 0
    for kind in sorted({*Operation.Kind.values} - {Operation.Kind.BISECTION, Operation.Kind.SYNC}):
        rows = Operation.objects.filter(kind=kind)
        newest = list(rows.values_list("pk", flat=True)[:KEPT_PER_KIND])
        if len(newest) == KEPT_PER_KIND:
            last = rows.exclude(report={}).order_by("subject", "-created_at").distinct("subject")
            scans = list(last.values_list("pk", flat=True)) if kind in SCANS else []
            gone += rows.exclude(pk__in=[*newest, *scans]).filter(finished_at__isnull=False).delete()[0]
    return gone


def recent_transfers(name: str) -> dict[str, Any]:
    """What a collection's page tells of its exports and imports: {"transfers": the newest three, "transferring"}."""
    rows = Operation.objects.filter(subject=name, kind__in=(Operation.Kind.EXPORT, Operation.Kind.IMPORT))
    transfers = list(rows[:SHOWN_TRANSFERS])
    return {"transfers": transfers, "transferring": any(row.is_running for row in transfers)}
