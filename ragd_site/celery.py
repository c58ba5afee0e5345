"""The Celery app: `celery -A ragd_site.celery worker`."""

from __future__ import annotations

import os

from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown

from ragd_site import queue_transport

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ragd_site.settings")

queue_transport.register()
app = Celery("ragd")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.set_default()


@worker_process_init.connect(weak=False)  # type: ignore[untyped-decorator]
def trace_process(**_: object) -> None:
    """Each process that runs tasks writes its own spans."""
    from ragd_site.observability import tracing

    tracing.set_up("worker")


@worker_process_shutdown.connect(weak=False)  # type: ignore[untyped-decorator]
def flush_spans(**_: object) -> None:
    from ragd_site.observability import tracing

    tracing.shut_down()
