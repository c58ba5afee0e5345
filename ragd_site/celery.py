"""The Celery app that tasks are sent through, and its transport over PostgreSQL; `ragd_site.worker` runs the tasks."""

from __future__ import annotations

import logging
import os
from typing import Any

from celery import Celery, Task
from kombu.transport import TRANSPORT_ALIASES, pgmq

from collections_app.access.context import system_access

log = logging.getLogger(__name__)

ACKNOWLEDGE_S = 0.1


class Channel(pgmq.Channel):
    """Leaves out messages that no sender of ragd wrote.

    Kombu takes every row of a queue for an envelope of its own. One that is none ends the worker, which then meets it
    again after its restart.
    """

    def is_envelope(self, message: Any) -> bool:
        """Whether kombu can read it: a body that can be decoded, headers, and properties with a delivery tag."""
        try:
            properties = message["properties"]
            self.decode_body(message["body"], properties.get("body_encoding"))  # type: ignore[no-untyped-call]
            parts = (message["headers"], properties["delivery_info"])
            return isinstance(properties["delivery_tag"], str) and all(isinstance(part, dict) for part in parts)
        except (AttributeError, KeyError, TypeError, ValueError):
            return False

    def _receive_messages(self, queue: str, *args: Any, **kwargs: Any) -> list[Any]:
        rows = super()._receive_messages(queue, *args, **kwargs)
        tasks = [row for row in rows if self.is_envelope(row.message)]
        for row in rows:
            if row not in tasks:
                log.error("a message in queue %s is no task and is dropped: %.200r", queue, row.message)
                self.pgmq.delete(self._queue_name(queue), row.msg_id)
        return tasks


class Transport(pgmq.Transport):
    """Looks for messages as often as there are tasks whose end it has not told yet: Celery acknowledges between two
    looks, and takes no more messages before. Without such tasks it sleeps until a message comes."""

    Channel = Channel

    # kombu brings no types: of its methods mypy guesses signatures that differ from class to class

    def drain_events(self, connection: Any, timeout: Any = None) -> None:  # type: ignore[override]
        if any(len(channel.qos._delivered) > len(channel.qos._dirty) for channel in self.channels):
            timeout = ACKNOWLEDGE_S
        super().drain_events(connection, timeout)  # type: ignore[no-untyped-call]


class SystemTask(Task):  # type: ignore[misc]  # celery has no types
    """A task is the server's own work, wherever it runs: what it was asked for was checked when it was sent."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with system_access():
            return super().__call__(*args, **kwargs)


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ragd_site.settings")

TRANSPORT_ALIASES["pgmq"] = f"{__name__}:Transport"  # of every later connection to a `pgmq://` address
app = Celery("ragd", task_cls=SystemTask)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.set_default()
