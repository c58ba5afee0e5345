"""Work that a dead process held or the broker lost is sent again, and given up when it was tried too often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from django.db import transaction
from django.db.models import Q, QuerySet

from collections_app.work.leased_work import LeasedWork
from collections_app.work.retry_policy import RetryPolicy
from collections_app.work.sending import enqueue_each

W = TypeVar("W", bound=LeasedWork)

RESEND_AFTER = timedelta(minutes=1)
SENT_AT_ONCE = 1000


@dataclass(frozen=True)
class Recovered(Generic[W]):
    """expired: held by a process that is gone. unsent: their message was lost. given_up: tried too often."""

    expired: list[W]
    unsent: list[W]
    given_up: list[W]


def overdue(now: datetime, unsent_before: datetime) -> Q:
    """With an expired lease, or held by nobody and last sent before `unsent_before`."""
    return Q(lease_until__lt=now) | Q(lease_until=None, sent_at__lt=unsent_before)


def recover(
    rows: QuerySet[W], policy: RetryPolicy, give_up: Callable[[W], object], now: datetime, **values: Any
) -> Recovered[W]:
    """Take back these overdue rows, those that were sent first before others, at most 1,000.

    In the caller's transaction, which sends what is expired or unsent. Rows that somebody works on are passed over.
    values: columns to set on what is sent again. give_up: ends a row that was tried as often as it may be.
    """
    recovered = Recovered[W]([], [], [])
    for work in rows.select_for_update(skip_locked=True, of=("self",)).order_by("sent_at")[:SENT_AT_ONCE]:
        if not policy.allows(work.tries):
            give_up(work)
            recovered.given_up.append(work)
        else:
            (recovered.unsent if work.lease_until is None else recovered.expired).append(work)
    again = [work.pk for work in (*recovered.expired, *recovered.unsent)]
    rows.model._default_manager.filter(pk__in=again).update(sent_at=now, lease_until=None, worker="", **values)
    return recovered


def sweep(
    rows: QuerySet[W], task_name: str, policy: RetryPolicy, give_up: Callable[[W], object], now: datetime, **values: Any
) -> int:
    """Send what is overdue of these rows, which have not ended; returns how many were sent."""
    with transaction.atomic():
        recovered = recover(rows.filter(overdue(now, now - RESEND_AFTER)), policy, give_up, now, **values)
        again = [*recovered.expired, *recovered.unsent]
        if again:
            enqueue_each(task_name, [(str(work.pk),) for work in again])
    return len(again)
