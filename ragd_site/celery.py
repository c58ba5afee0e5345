"""The Celery app that tasks are sent through; `ragd_site.worker` runs them."""

from __future__ import annotations

import os

from celery import Celery

from ragd_site import queue_transport

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ragd_site.settings")

queue_transport.register()
app = Celery("ragd")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.set_default()
