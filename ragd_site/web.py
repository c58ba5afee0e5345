"""Settings of the web server: `gunicorn -c python:ragd_site.web ragd_site.wsgi`."""

from __future__ import annotations

import os
import re
import resource
import socket
import sys
import time
from collections import deque
from functools import partial
from importlib import import_module
from selectors import EVENT_READ
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

from ragd_site.environment import read_environment
from ragd_site.observability import tracing
from ragd_site.runtime.accounts import start_warnings
from ragd_site.runtime.processes import SHARED_MEMORY, leave

HEAD_S = 10.0  # a request has come as far as `missing_bytes` wants it by then, or its connection is closed
STALL_S = 60.0  # for the next bytes of a large body, and for a client to take some of an answer
AWAITED_BYTES = 64 * 1024
LINGER_S = 2.0  # for a client to close a connection behind its last answer
CONNECTIONS = 4000  # of one process; those without a whole request cost a file handle each, and no thread
LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
STARTS_AT_ONCE = re.compile(rb"\r\n(expect|transfer-encoding|upgrade):", re.IGNORECASE)


def missing_bytes(begun: bytes) -> int:
    """How many bytes of a request must come at least before a thread takes it: its head, and a body that fits into
    AWAITED_BYTES with it. 0: none. A head that is too long is for the parser to refuse."""
    head, end, body = begun.partition(b"\r\n\r\n")
    if not end:
        return int(len(begun) < AWAITED_BYTES)
    length = LENGTH.search(head + b"\r\n")
    if length is None or STARTS_AT_ONCE.search(head):
        return 0
    wanted = int(length[1][:9])
    return max(0, wanted - len(body)) if len(head) + len(end) + wanted < AWAITED_BYTES else 0


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's worker with threads, which takes none for a request that is still coming.

    The kernel keeps what has come, and tells when there is as much as is waited for (SO_RCVLOWAT). Nor does it wait for
    a client to close a connection: gunicorn does, up to two seconds, in the thread that takes all connections."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lingering: deque[TConn] = deque()

    def init_process(self) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        handles = CONNECTIONS + 512 if most == resource.RLIM_INFINITY else min(CONNECTIONS + 512, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (handles, most))
        super().init_process()

    def enqueue_req(self, conn: TConn) -> None:
        now = time.monotonic()
        until: float | None = getattr(conn, "whole_until", None)
        begun = conn.parser.unreader.buf.getvalue() if conn.parser else b""
        try:
            come = conn.sock.recv(AWAITED_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            missing = missing_bytes(begun + come) if come else 0  # the client has gone
        except BlockingIOError:
            come, missing = b"", max(1, missing_bytes(begun))
        except OSError:
            come, missing = b"", 0
        if missing and (until is None or now < until):
            conn.whole_until = conn.timeout = until or now + HEAD_S
            self._set_least(conn, len(come) + missing)
            conn.sock.setblocking(False)
            self.pending_conns.append(conn)
            self.poller.register(conn.sock, EVENT_READ, partial(self.on_pending_socket_readable, conn))
        elif missing:
            self.nr_conns -= 1
            conn.close()
        else:
            self._set_least(conn, 1)
            conn.whole_until, conn.data_ready = None, True
            super().enqueue_req(conn)

    def _set_least(self, conn: TConn, count: int) -> None:
        try:
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
        except OSError:  # the client has gone
            pass

    def finish_request(self, conn: TConn, fs: Any) -> None:
        conn.close = partial(self._close, conn)
        try:
            super().finish_request(conn, fs)
        finally:
            del conn.close  # the class has its own; and a connection that refers to itself would wait for the collector

    def _close(self, conn: TConn, graceful: bool = False) -> None:
        """graceful: once the client has closed too, or LINGER_S later: what it still sends would else be answered by a
        reset, which takes the end of the answer from it."""
        if not (graceful and self._lingers(conn)):
            TConn.close(conn)

    def _lingers(self, conn: TConn) -> bool:
        """False where the client has gone."""
        try:
            conn.sock.shutdown(socket.SHUT_WR)
            conn.sock.setblocking(False)
            self.poller.register(conn.sock, EVENT_READ, partial(self._drain, conn))
        except OSError:
            return False
        self.nr_conns += 1  # it still holds a file handle
        conn.timeout, conn.drained = time.monotonic() + LINGER_S, 0
        self.lingering.append(conn)
        return True

    def _drain(self, conn: TConn, sock: socket.socket) -> None:
        try:
            sent = sock.recv(AWAITED_BYTES)
        except BlockingIOError:
            return
        except OSError:
            sent = b""
        conn.drained += len(sent)
        if not sent or conn.drained > AWAITED_BYTES:
            self.lingering.remove(conn)
            self._end(conn)

    def _end(self, conn: TConn) -> None:
        self.poller.unregister(conn.sock)
        self.nr_conns -= 1
        conn.close()

    def murder_pending(self) -> None:
        super().murder_pending()
        now = time.monotonic()
        while self.lingering and self.lingering[0].timeout <= now:
            self._end(self.lingering.popleft())

    def _cap_keepalive(self, deadline: float) -> None:
        super()._cap_keepalive(deadline)
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)


def pre_request(worker: Any, request: Any) -> None:
    request.unreader.sock.settimeout(STALL_S)


environment = read_environment()
is_supervised = "RAGD_PROCESS" in os.environ
bind = f"{environment.RAGD_HOST}:{environment.PORT}"
worker_class = Worker
worker_connections = CONNECTIONS
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
