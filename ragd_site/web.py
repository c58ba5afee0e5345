"""Settings of the web server: `gunicorn -c python:ragd_site.web ragd_site.wsgi`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from ragd_site.environment import read_environment
from ragd_site.observability import tracing
from ragd_site.runtime.accounts import start_warnings
from ragd_site.runtime.machine import SHARED_MEMORY
from ragd_site.runtime.supervisor import leave

environment = read_environment()
is_supervised = "RAGD_PROCESS" in os.environ
bind = f"{environment.RAGD_HOST}:{environment.PORT}"
worker_class = "gthread"
preload_app = True  # imports take most of a start: they are done once, and their memory is shared
workers = environment.RAGD_WEB_WORKERS
threads = environment.RAGD_WEB_THREADS
timeout = 120
graceful_timeout = 10
keepalive = 5
# the longest name and doc_id, each character four bytes and percent-encoded, still make an address
limit_request_line = 8190
control_socket_disable = True
# a large document arrives as one request; the heartbeat file must not wait for the disk
worker_tmp_dir = str(SHARED_MEMORY) if SHARED_MEMORY.exists() else None
proc_name = "ragd-web"
loglevel = environment.RAGD_LOG_LEVEL.lower()


def on_starting(server: Any) -> None:
    """Under `make run` the supervisor has said it."""
    if not is_supervised:
        origins, proxies = environment.RAGD_CSRF_TRUSTED_ORIGINS, environment.RAGD_TRUSTED_PROXIES
        for sentence in start_warnings(environment.RAGD_HOST, origins, proxies):
            server.log.warning(sentence)


def post_worker_init(worker: Any) -> None:
    """Imported here, once the application is loaded, which the settings need."""
    import_module("ragd_site.access.middleware").stamp(worker.tpool)


def worker_exit(server: Any, worker: Any) -> None:
    tracing.shut_down()
    if worker.booted:  # else the status tells the server that it cannot start
        leave()


def on_exit(server: Any) -> None:
    if isinstance(sys.exception(), StopIteration):  # how the server ends when it is told to
        leave()
