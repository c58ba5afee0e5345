"""A web server on the loopback whose pages a test states, and which notes what it was asked.

def test_page(web_server):
    web_server.pages["/a"] = Page(b"<p>text</p>", headers={"ETag": '"1"'})
    ... fetch(web_server.url("/a")) ...
    assert [asked.path for asked in web_server.asked] == ["/robots.txt", "/a"]
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.fakes.serving import Serving


@dataclass
class Page:
    """body: sent at once; with drip_s in pieces of one byte with so many seconds between. before: called first.

    announced: the Content-Length that is claimed, None: the true one, "": none.
    """

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drip_s: float = 0.0
    announced: int | str | None = None
    before: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Asked:
    path: str
    headers: dict[str, str]  # names in lower case
    at_s: float  # time.monotonic()
    body: bytes = b""


class WebServer(Serving):
    """pages: path with query -> Page; any other is 404. busiest: the most requests that were answered at one moment."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.asked: list[Asked] = []
        self.busiest = self._busy = 0
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"site": self})))
        self._server.handle_error = lambda *_: None  # a client may break off

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    def stop(self) -> None:
        self.stopping.set()
        super().stop()

    def enter(self, asked: Asked) -> Page:
        with self._lock:
            self.asked.append(asked)
            self._busy += 1
            self.busiest = max(self.busiest, self._busy)
        return self.pages.get(asked.path, Page(b"nothing here", 404))

    def leave(self) -> None:
        with self._lock:
            self._busy -= 1


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    site: WebServer

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        page = self.site.enter(Asked(self.path, headers, time.monotonic(), body))
        try:
            page.before()
            with suppress(OSError):  # the client may have had enough
                self._send(page, headers)
        finally:
            self.site.leave()

    do_POST = do_GET

    def _send(self, page: Page, headers: dict[str, str]) -> None:
        etag = page.headers.get("ETag", "")
        if page.status == 200 and etag and headers.get("if-none-match") == etag:
            page = Page(status=304, headers=page.headers)
        self.send_response(page.status)
        for name, value in page.headers.items():
            self.send_header(name, value)
        if page.announced != "":
            self.send_header("Content-Length", str(len(page.body) if page.announced is None else page.announced))
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if not page.drip_s:
            self.wfile.write(page.body)
            return
        for byte in page.body:
            self.wfile.write(bytes([byte]))
            if self.site.stopping.wait(page.drip_s):
                return

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def web_server() -> Iterator[WebServer]:
    server = WebServer().start()
    yield server
    server.stop()


__all__ = ["Asked", "Page", "WebServer", "web_server"]
