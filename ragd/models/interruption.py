"""A request that another thread may end while it waits for the server: the connection is closed within POLL_S."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from ssl import SSLContext
from typing import Any

import httpcore2

POLL_S = 0.1
_stop: ContextVar[threading.Event | None] = ContextVar("ragd_stop", default=None)


class ReadStoppedError(BaseException):
    """The event of `stopped_by` was set while an answer was awaited. No Exception: a client would take it for a fault
    of the network, and ask again."""


@contextmanager
def stopped_by(event: threading.Event | None) -> Iterator[None]:
    """Requests of this thread in the block end with ReadStoppedError once the event is set. None: none of them do."""
    token = _stop.set(event)
    try:
        yield
    finally:
        _stop.reset(token)


class InterruptibleStream(httpcore2.NetworkStream):
    """A connection whose reads look every POLL_S whether they are to stop."""

    def __init__(self, inner: httpcore2.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        stop = _stop.get()
        if stop is None:
            return self._inner.read(max_bytes, timeout)
        ends = math.inf if timeout is None else time.monotonic() + timeout
        while not stop.is_set():
            try:
                return self._inner.read(max_bytes, min(POLL_S, max(ends - time.monotonic(), 1e-3)))
            except httpcore2.ReadTimeout:
                if time.monotonic() >= ends:
                    raise
        raise ReadStoppedError

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return InterruptibleStream(self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class InterruptibleBackend(httpcore2.SyncBackend):
    """Opens such connections."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        return InterruptibleStream(super().connect_tcp(host, port, timeout, local_address, socket_options))
