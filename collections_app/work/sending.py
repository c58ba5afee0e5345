"""Messages to workers, by the registered name of a task. A broker that is down only delays the work: it is swept."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from celery import Task, current_app
from django.db import transaction

log = logging.getLogger(__name__)


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
    task = _find_task(task_name)
    for number, args in enumerate(calls):
        try:
            task.apply_async(args, countdown=delay_s or None, queue=queue)
        except Exception:  # every transport has errors of its own
            left = len(calls) - number
            log.exception("%d of %d messages of %s were not sent; the sweeper sends them", left, len(calls), task_name)
            return


def _find_task(task_name: str) -> Task:
    if task_name not in current_app.tasks:  # a process that is no worker loads them with the first message
        current_app.loader.import_default_modules()
    return current_app.tasks[task_name]
