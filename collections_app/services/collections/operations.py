"""Operations: what is done to whole collections, seen while it runs and kept when it has ended."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.utils import timezone

from collections_app.errors import ServiceError, describe
from collections_app.models import Operation
from collections_app.services.governance import audit
from ragd.errors import RagdError

log = logging.getLogger(__name__)

TELL_EVERY_S = 0.5
SHOWN_TRANSFERS = 3
KEPT_PER_KIND = 200
ERROR_MAX_CHARS = 2000

Tell = Callable[[str, int, int], None]  # stage, done, total


class Running:
    """One operation while it runs: `tell` how far it is, then `succeed` or `fail`, once.

    operation: one that was made before, to be gone on with; else a new one.
    """

    def __init__(
        self,
        kind: str,
        subject: str,
        *,
        actor: audit.Actor = None,
        listener: Tell | None = None,
        operation: Operation | None = None,
    ) -> None:
        self.operation = operation or Operation.objects.create(
            kind=kind, subject=subject, created_by=audit.name_actor(actor)
        )
        self.listener = listener
        self.told_at = time.monotonic()

    def tell(self, stage: str, done: int, total: int) -> bool:
        """Note how far it is, in rows of the stage; written every half second. Returns whether it was written."""
        if self.listener is not None:
            self.listener(stage, done, total)
        now = time.monotonic()
        if stage == self.operation.stage and now - self.told_at < TELL_EVERY_S:
            return False
        self.told_at = now
        self._save(stage=stage, done=done, total=total, beat_at=timezone.now())
        return True

    def succeed(self, report: Mapping[str, Any], *, findings: int = 0) -> Operation:
        self._end(Operation.State.SUCCEEDED, report=dict(report), findings=findings)
        return self.operation

    def fail(self, error: BaseException) -> Operation:
        """With the error in the words that every door uses."""
        body = describe(error)[1]["error"]
        self._end(Operation.State.FAILED, error_type=body["type"], error=body["message"][:ERROR_MAX_CHARS])
        return self.operation

    def _end(self, state: str, **values: Any) -> None:
        now = timezone.now()
        self._save(state=state, finished_at=now, beat_at=now, **values)

    def _save(self, **values: Any) -> None:
        Operation.objects.filter(pk=self.operation.pk).update(**values)
        for name, value in values.items():
            setattr(self.operation, name, value)


@contextmanager
def running(
    kind: str,
    subject: str,
    *,
    actor: audit.Actor = None,
    listener: Tell | None = None,
    operation: Operation | None = None,
) -> Iterator[Running]:
    """An operation around a block, which calls `succeed` at its end; an exception is kept in it and passes on.

    operation: one that was made before, to be gone on with.
    """
    current = Running(kind, subject, actor=actor, listener=listener, operation=operation)
    try:
        yield current
    except BaseException as error:
        current.fail(error)
        raise


def count_running(kind: str) -> int:
    """Operations of this kind that run now; one whose process died does not count."""
    return sum(each.is_running for each in Operation.objects.filter(kind=kind, state=Operation.State.RUNNING))


def last_operation(kind: str, subject: str | None = None) -> Operation | None:
    """The newest of a kind, of one collection when it is named; None when there is none."""
    rows = Operation.objects.filter(kind=kind)
    return (rows if subject is None else rows.filter(subject=subject)).first()


def forget_operations() -> int:
    """Keep the newest 200 of each kind; returns how many went."""
    gone = 0
    for kind in Operation.Kind.values:
        kept = list(Operation.objects.filter(kind=kind).values_list("pk", flat=True)[:KEPT_PER_KIND])
        if len(kept) == KEPT_PER_KIND:
            gone += Operation.objects.filter(kind=kind).exclude(pk__in=kept).delete()[0]
    return gone


def recent_transfers(name: str) -> dict[str, Any]:
    """What a collection's page tells of its exports and imports: {"transfers": the newest three, "transferring"}."""
    rows = Operation.objects.filter(subject=name, kind__in=(Operation.Kind.EXPORT, Operation.Kind.IMPORT))
    transfers = list(rows[:SHOWN_TRANSFERS])
    return {"transfers": transfers, "transferring": any(row.is_running for row in transfers)}


def run_beside(work: Callable[[], object]) -> None:
    """Do the work in a thread of this process, so that a page need not wait; what it raises is logged.

    When the process ends before it, the work is lost: the operation then counts as interrupted.
    """

    def run() -> None:
        try:
            work()
        except (ServiceError, RagdError) as error:
            log.info("an operation that a page began was refused: %s", error)
        except Exception:
            log.exception("an operation that a page began failed")
        finally:
            connections.close_all()

    threading.Thread(target=run, name="ragd-operation", daemon=True).start()
