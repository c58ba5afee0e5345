"""Messages to workers by the registered name of a task, how often work is tried, and what is sent again.

A broker that is down only delays the work, and so does a process that dies with it: maintenance sends it again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic

from celery import Task, current_app
from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from collections_app.jobs.leases import W, lease_length

log = logging.getLogger(__name__)

RESEND_AFTER = timedelta(minutes=1)
SENT_AT_ONCE = 1000
AHEAD = timedelta(minutes=5)  # beyond the longest lease and the longest pause before another try


def enqueue(task_name: str, *args: str, queue: str | None = None, delay_s: float = 0) -> None:
    """Send one message once the transaction has committed. queue: None for the default one."""
    enqueue_each(task_name, [args], queue=queue, delay_s=delay_s)


def enqueue_each(
    task_name: str, calls: Iterable[Sequence[str]], *, queue: str | None = None, delay_s: float = 0
) -> None:
    """Send one message per list of arguments once the transaction has committed."""
    messages = list(calls)
    transaction.on_commit(lambda: send(task_name, messages, queue=queue, delay_s=delay_s))


def send(task_name: str, calls: Sequence[Sequence[str]], *, queue: str | None = None, delay_s: float = 0) -> None:
    """Send them now; what the broker does not take is logged. Raises KeyError for a task that is not registered."""
    task, sent = _find_task(task_name), 0
    try:
        with current_app.producer_or_acquire() as producer:  # one for all: whether the broker is there is asked once
            for args in calls:
                task.apply_async(args, countdown=delay_s or None, queue=queue, producer=producer)
                sent += 1
    except Exception:  # every transport has errors of its own
        left = len(calls) - sent
        log.exception("%d of %d messages of %s were not sent; maintenance sends them", left, len(calls), task_name)


def _find_task(task_name: str) -> Task:
    if task_name not in current_app.tasks:  # a process that is no worker loads them with the first message
        current_app.loader.import_default_modules()
    return current_app.tasks[task_name]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off: first_delay_s after the first try, doubled after each further one up to max_delay_s.

    jitter: the greatest share of the delay that is added by chance, so that many do not come back at one moment.
    """

    max_attempts: int
    first_delay_s: float = 5.0
    max_delay_s: float = 60.0
    jitter: float = 0.25

    def allows(self, tries: int) -> bool:
        """Whether there may be another try after so many."""
        return tries < self.max_attempts

    def delay_s(self, tries: int, requested_s: float | None = None) -> float:
        """Seconds to wait after so many tries, 1 or more.

        requested_s: the least that the other side asked for; it counts up to twice max_delay_s.
        """
        delay_s: float = max(min(self.first_delay_s * 2 ** (tries - 1), self.max_delay_s), requested_s or 0)
        return min(delay_s, 2 * self.max_delay_s) * (1 + random.uniform(0, self.jitter))  # noqa: S311


def job_retry_policy() -> RetryPolicy:
    """The one of RAGD_JOB_MAX_ATTEMPTS."""
    return RetryPolicy(settings.RAGD_JOB_MAX_ATTEMPTS)


@dataclass(frozen=True)
class Recovered(Generic[W]):
    """expired: held by a process that is gone. unsent: their message was lost. given_up: tried too often."""

    expired: list[W]
    unsent: list[W]
    given_up: list[W]


def overdue(now: datetime, unsent_before: datetime, *, ahead: timedelta = AHEAD) -> Q:
    """With an expired lease, or held by nobody and last sent before `unsent_before`.

    So is what was written by a clock that was ahead, by more than `ahead`, and is right again.
    """
    expired = Q(lease_until__lt=now) | Q(lease_until__gt=now + lease_length() + AHEAD)
    return expired | Q(lease_until=None) & (Q(sent_at__lt=unsent_before) | Q(sent_at__gt=now + ahead))


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


def requeue(
    rows: QuerySet[W],
    task_name: str,
    policy: RetryPolicy,
    give_up: Callable[[W], object],
    now: datetime,
    *,
    ahead: timedelta = AHEAD,
    **values: Any,
) -> int:
    """Send what is overdue of these rows, which have not ended; returns how many were sent."""
    with transaction.atomic():
        recovered = recover(rows.filter(overdue(now, now - RESEND_AFTER, ahead=ahead)), policy, give_up, now, **values)
        again = [*recovered.expired, *recovered.unsent]
        if again:
            enqueue_each(task_name, [(str(work.pk),) for work in again])
    return len(again)
