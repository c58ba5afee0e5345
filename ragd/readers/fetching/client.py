"""One request to one machine that was checked: pinned to its address, under limits on time and size."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import certifi
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, NewConnectionError, ReadTimeoutError

from ragd.readers.fetching.addresses import Address, FetchError, Guard, too_large

READ_AT_ONCE = 65_536
CONNECT_MAX_S = 10.0
GZIP_OR_ZLIB = 47  # zlib's window bits that tell the two by their header
RAW_DEFLATE = -15
WITH_BODY = (200, 207)
REDIRECTS = (301, 302, 303, 307, 308)
ACCEPT = "text/html,application/xhtml+xml,application/pdf;q=0.9,*/*;q=0.8"

OnBytes = Callable[[int, int], None]
Waiting = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said. headers: names in lower case. body: unpacked, and empty unless the status is 200 or 207.

    at: the machine that answered.
    """

    address: Address
    status: int
    reason: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    at: str = ""

    @property
    def location(self) -> str:
        """Where a redirect leads to; "" for any other answer."""
        return self.headers.get("location", "") if self.status in REDIRECTS else ""

    @property
    def retry_after_s(self) -> float | None:
        """Seconds that the server asks to be left alone for; None when it does not say."""
        return read_retry_after(self.headers.get("retry-after", ""), time.time())


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The bytes under a file's name, and what the server said of their state.

    content None: nothing changed since the bytes with that sha256 (hex) came; else sha256 is "". final_address: where
    redirects led to.
    """

    name: str
    content: bytes | None
    sha256: str = ""
    etag: str = ""
    last_modified: str = ""
    final_address: str = ""


def read_retry_after(text: str, now: float) -> float | None:
    """A Retry-After header, seconds or a date, as seconds from `now` (a time stamp), never below 0."""
    if text.strip().isdecimal() and len(text) < 12:
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


class Deadline:
    """The moment at which a fetch must have ended, whatever it waits for.

    While it is entered it ends the watched connection then, also one that sends a byte now and then. machine: what the
    connection leads to.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.has_passed = False
        self.machine = ""
        self._ends_at = time.monotonic() + seconds
        self._twin: socket.socket | None = None

    def left_s(self) -> float:
        """Seconds that are left. Raises FetchError "timeout" when none are."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise self.error()
        return left

    def error(self) -> FetchError:
        return FetchError(
            "timeout", f"it did not come whole within {self.seconds:g} s (RAGD_FETCH_TIMEOUT_S)", retryable=True
        )

    def watch(self, machine: str, sock: socket.socket) -> None:
        self.machine = machine
        self._twin = socket.socket(fileno=os.dup(sock.fileno()))  # TLS takes the socket itself away
        sock.settimeout(self.left_s())

    def __enter__(self) -> None:
        self._timer = threading.Timer(self.left_s(), self._end)
        self._timer.daemon = True
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._twin is not None:
            self._twin.close()

    def _end(self) -> None:
        self.has_passed = True
        if self._twin is not None:
            with suppress(OSError):  # it has ended by itself
                self._twin.shutdown(socket.SHUT_RDWR)


class PinnedHTTP(HTTPConnection):
    """A connection to an address that was checked; the server's name stays what TLS and the Host header are about.

    The name is looked up once, when the connection is made; its addresses are tried in order.
    """

    def __init__(self, *args: Any, guard: Guard, deadline: Deadline | None = None, **values: Any) -> None:
        super().__init__(*args, **values)
        self.guard = guard
        self.deadline = deadline

    def _new_conn(self) -> socket.socket:
        problem: OSError | None = None
        for machine in self.guard.resolve(self.host, self.port):
            timeout_s = min(CONNECT_MAX_S, self.deadline.left_s() if self.deadline else CONNECT_MAX_S)
            try:
                sock = socket.create_connection((machine, self.port), timeout=timeout_s)
            except OSError as error:
                problem = error
                continue
            if self.deadline:
                self.deadline.watch(machine, sock)
            return sock
        raise NewConnectionError(self, str(problem)) from problem


class PinnedHTTPS(PinnedHTTP, HTTPSConnection):
    pass


class PinnedPool(urllib3.PoolManager):
    """Pools of pinned connections; of ordinary ones without a guard."""

    def __init__(self, guard: Guard | None, **values: Any) -> None:
        super().__init__(**values)
        self.guard = guard

    def _new_pool(self, scheme: str, *args: Any, **values: Any) -> urllib3.HTTPConnectionPool:
        pool = super()._new_pool(scheme, *args, **values)
        if self.guard is not None:
            pool.ConnectionCls = PinnedHTTPS if scheme == "https" else PinnedHTTP
            pool.conn_kw["guard"] = self.guard
        return pool


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request is held to.

    on_bytes: told (bytes so far, bytes announced or 0) after each part; it may raise to stop. waiting: entered around
    whatever waits for the net, and left in between.
    """

    guard: Guard
    deadline: Deadline
    max_bytes: int
    on_bytes: OnBytes | None = None
    waiting: Waiting = nullcontext


def request(
    address: Address, limits: Limits, *, headers: Mapping[str, str], method: str = "GET", body: bytes | None = None
) -> Answer:
    """Ask one address over a pinned connection, without following anything. body: what is sent. Raises FetchError."""
    guard, deadline, max_bytes = limits.guard, limits.deadline, limits.max_bytes
    connection = _pinned(address, guard, deadline)
    is_connected = False
    try:
        with deadline:
            with limits.waiting():
                connection.connect()
                is_connected = True
                connection.timeout = deadline.left_s()
                asked = {"Host": address.authority, "Accept": ACCEPT, **headers}
                connection.request(method, address.target, body=body, headers=asked, preload_content=False)
                response = connection.getresponse()
            named = {name.lower(): value for name, value in response.headers.iteritems()}
            content = b""
            if response.status in WITH_BODY:
                parts = _read_parts(response, limits)
                content = b"".join(inflate(parts, named.get("content-encoding", ""), max_bytes))
        if deadline.has_passed:  # what was cut off can look like an end
            raise deadline.error()
        return Answer(address, response.status, response.reason or "", named, content, deadline.machine)
    except (OSError, http.client.HTTPException, HTTPError, ValueError) as error:
        raise _explain(error, address.host, deadline, is_connected=is_connected) from None
    finally:
        connection.close()


def _pinned(address: Address, guard: Guard, deadline: Deadline) -> PinnedHTTP:
    if address.scheme == "http":
        return PinnedHTTP(address.host, address.port, guard=guard, deadline=deadline)
    return PinnedHTTPS(address.host, address.port, guard=guard, deadline=deadline, ssl_context=_tls_context())


def _explain(error: Exception, host: str, deadline: Deadline, *, is_connected: bool) -> FetchError:
    if deadline.has_passed or isinstance(error, TimeoutError | ReadTimeoutError):
        return deadline.error()
    if isinstance(error, ssl.SSLCertVerificationError):
        return FetchError(
            "bad_certificate",
            f"the certificate of {host} is not valid ({error.verify_message}), so nothing of it was read",
        )
    if isinstance(error, NewConnectionError):
        reason = getattr(error.__cause__, "strerror", None) or error.__cause__
        kind, why = "unreachable", f"{host} does not answer on port {error.conn.port}: {reason}"
    elif is_connected:
        kind = "connection_lost"
        why = f"{host} broke the connection off or sent no valid answer ({type(error).__name__})"
    else:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        kind, why = "tls_failed", f"no safe connection to {host} came about: {reason}"
    return FetchError(kind, f"{why}; it may work later", retryable=True)


def _tls_context() -> ssl.SSLContext:
    """The machine's own authorities (SSL_CERT_FILE too), and those that browsers trust."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def _read_parts(response: urllib3.HTTPResponse, limits: Limits) -> Iterator[bytes]:
    """As they come, still packed. A body that is shorter than announced raises urllib3's IncompleteRead."""
    max_bytes = limits.max_bytes
    announced = response.length_remaining or 0
    if announced > max_bytes:
        raise too_large(max_bytes)
    came = 0
    while True:
        with limits.waiting():
            part = response.read1(READ_AT_ONCE, decode_content=False)
        if not part:
            return
        came += len(part)
        if came > max_bytes:
            raise too_large(max_bytes)
        yield part
        if limits.on_bytes is not None:
            limits.on_bytes(came, announced)


def inflate(parts: Iterable[bytes], coding: str, limit: int) -> Iterator[bytes]:
    """The unpacked bytes of the parts of a body, `limit` bytes at most, whatever they would unpack to.

    coding: the Content-Encoding header. Raises FetchError "unknown_encoding", "too_large" or "broken_body".
    """
    name = coding.strip().lower()
    if name in ("", "identity"):
        yield from parts
        return
    if name not in ("gzip", "x-gzip", "deflate"):
        raise FetchError(
            "unknown_encoding",
            f"the server packed the body as {name[:60]!r} although only gzip was asked for; download it yourself "
            "and upload the file",
        )
    stream, size, has_begun = zlib.decompressobj(GZIP_OR_ZLIB), 0, False
    broken = FetchError("broken_body", "the packed body broke off or is damaged; it may work later", retryable=True)
    for part in parts:
        rest = part
        while rest:
            try:
                out = stream.decompress(rest, limit - size + 1)
            except zlib.error:
                if name != "deflate" or has_begun:
                    raise broken from None
                stream, has_begun = zlib.decompressobj(RAW_DEFLATE), True  # some servers leave the header out
                continue
            has_begun = True
            size += len(out)
            if size > limit:
                raise too_large(limit)
            yield out
            rest = stream.unconsumed_tail
            if stream.eof and (rest := stream.unused_data.lstrip(b"\0")):
                stream = zlib.decompressobj(GZIP_OR_ZLIB)  # what follows the end of one gzip stream is another
    if has_begun and not stream.eof:
        raise broken
