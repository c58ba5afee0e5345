"""Who may work on a run: one process at a time, and no more runs at once than the server's number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from collections_app.advisory_locks import LockSpace, lock, whole
from collections_app.work.delivery import RESEND_AFTER
from collections_app.work.leases import Lease, claim, held_by_host
from evaluation_app.models import EvaluationRun

State = EvaluationRun.State

BEGIN = "state = 'running', started_at = coalesce(started_at, statement_timestamp())"


def active_runs() -> QuerySet[EvaluationRun]:
    return EvaluationRun.objects.filter(state__in=(State.QUEUED, State.RUNNING))


def held_runs() -> QuerySet[EvaluationRun]:
    """Those that a living process works on."""
    return active_runs().filter(lease_until__gte=Now())


def claim_run(run_id: UUID | str, worker: str, *, most: int | None) -> Lease[EvaluationRun] | None:
    """Take a run that waits, or one whose lease has expired. None: somebody has it, it has ended, or `most` are held.

    most: None for however many.
    """
    with transaction.atomic():
        if most is not None:
            lock(whole(LockSpace.EVALUATION_CLAIM))
            if held_runs().exclude(pk=run_id).count() >= most:
                return None
        return claim(EvaluationRun, run_id, worker, "state IN ('queued', 'running')", BEGIN)


def release_run(lease: Lease[EvaluationRun], *, is_blamed: bool = False, **values: Any) -> bool:
    """Put the run back in the queue, for whoever comes next; False when it was lost before. values: to be stored.

    is_blamed: the question that it was at ended the attempt, which counts against LOSSES_MAX.
    """
    values |= {"state": State.QUEUED, "error": "", "error_type": "", "sent_at": timezone.now()}
    return lease.release(**values, attempts_forgiven=F("attempts_forgiven") + int(not is_blamed))


def release_host(host: str, *, but: Iterable[int] = ()) -> int:
    """The workers of a host are to stop: their runs wait for the next ones. Returns how many.

    but: processes that died by themselves; a question of their runs may be to blame.
    """
    return held_by_host(active_runs(), host, but=but).update(
        state=State.QUEUED,
        worker="",
        lease_until=None,
        sent_at=timezone.now() - RESEND_AFTER,
        attempts_forgiven=F("attempts_forgiven") + 1,
    )
