"""Settings of the web server: `gunicorn -c python:ragd_site.web ragd_site.wsgi`."""

from __future__ import annotations

from typing import Any

from ragd_site.environment import read_environment
from ragd_site.observability import tracing
from ragd_site.runtime.machine import SHARED_MEMORY

environment = read_environment()
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


def worker_exit(server: Any, worker: Any) -> None:
    tracing.shut_down()
