"""A server on the loopback that answers in a thread of its own."""

from __future__ import annotations

import socketserver
import threading
from types import TracebackType
from typing import Any, Self


class Serving:
    """From `start`, or the beginning of a with statement, to `stop`, or its end."""

    def __init__(self, server: socketserver.BaseServer) -> None:
        self._server: Any = server
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()
