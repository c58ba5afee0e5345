"""One request to one machine that was checked: pinned to its address, under limits on time and size."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import certifi

from collections_app.fetching.addresses import Address, Guard
from collections_app.fetching.decompression import Inflater, too_large
from collections_app.fetching.errors import FetchError

READ_AT_ONCE = 65_536
CONNECT_MAX_S = 10.0
REDIRECTS = (301, 302, 303, 307, 308)
ACCEPT = "text/html,application/xhtml+xml,application/pdf;q=0.9,*/*;q=0.8"

OnBytes = Callable[[int, int], None]
Waiting = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said. headers: names in lower case. body: unpacked, and empty unless the status is 200.

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


def read_retry_after(text: str, now: float) -> float | None:
    """A Retry-After header, seconds or a date, as seconds from `now` (a time stamp), never below 0."""
    if text.strip().isdecimal() and len(text) < 12:
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


class Deadline:
    """The moment at which a fetch must have ended, whatever it waits for."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends_at = time.monotonic() + seconds

    def left_s(self) -> float:
        """Seconds that are left. Raises FetchError "timeout" when none are."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise self.passed()
        return left

    def passed(self) -> FetchError:
        return FetchError(
            "timeout", f"it did not come whole within {self.seconds:g} s (RAGD_FETCH_TIMEOUT_S)", retryable=True
        )


def request(
    address: Address,
    *,
    guard: Guard,
    deadline: Deadline,
    max_bytes: int,
    headers: Mapping[str, str],
    on_bytes: OnBytes | None = None,
    waiting: Waiting = nullcontext,
) -> Answer:
    """GET one address, without following anything.

    The name is looked up once, every address that it has is checked, and the connection goes to one of them. on_bytes:
    told (bytes so far, bytes announced or 0) after each part; it may raise to stop. waiting: entered around whatever
    waits for the net, and left in between. Raises FetchError.
    """
    with waiting():
        machines = guard.resolve(address.host, address.port)
        connection, at = _connect(address, machines, deadline)
    watchdog = _Watchdog(connection.sock, deadline)
    try:
        with watchdog:
            asked = {"Host": address.authority, "Accept": ACCEPT, **headers}
            with waiting():
                connection.request("GET", address.target, headers=asked)
                response = connection.getresponse()
            answer = _read(response, address, at, max_bytes, on_bytes, waiting)
        if watchdog.bit:  # what was cut off can look like an end
            raise deadline.passed()
        return answer
    except (OSError, http.client.HTTPException, ValueError) as error:
        if watchdog.bit or isinstance(error, TimeoutError):
            raise deadline.passed() from None
        raise FetchError(
            "connection_lost",
            f"{address.host} broke the connection off or sent no valid answer ({type(error).__name__}); "
            "it may work later",
            retryable=True,
        ) from None
    finally:
        connection.close()


def _connect(address: Address, machines: list[str], deadline: Deadline) -> tuple[http.client.HTTPConnection, str]:
    """To the first machine that answers. Raises FetchError when none does."""
    why = ""
    for machine in machines:
        timeout_s = min(CONNECT_MAX_S, deadline.left_s())
        try:
            sock = socket.create_connection((machine, address.port), timeout=timeout_s)
        except OSError as error:
            why = error.strerror or str(error)
            continue
        sock.settimeout(deadline.left_s())
        connection = http.client.HTTPConnection(address.host, address.port)
        connection.sock = _wrap(sock, address, deadline) if address.scheme == "https" else sock
        return connection, machine
    raise FetchError(
        "unreachable",
        f"{address.host} does not answer on port {address.port}: {why}; it may work later",
        retryable=True,
    )


def _wrap(sock: socket.socket, address: Address, deadline: Deadline) -> ssl.SSLSocket:
    """TLS with the name that was asked for, not with the number that is connected to."""
    watchdog = _Watchdog(sock, deadline)
    try:
        with watchdog:
            return _tls_context().wrap_socket(sock, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        raise FetchError(
            "bad_certificate",
            f"the certificate of {address.host} is not valid ({error.verify_message}), so nothing of it was read",
        ) from None
    except OSError as error:
        if watchdog.bit or isinstance(error, TimeoutError):
            raise deadline.passed() from None
        why = getattr(error, "reason", None) or error.strerror or type(error).__name__
        raise FetchError(
            "tls_failed", f"no safe connection to {address.host} came about: {why}; it may work later", retryable=True
        ) from None


def _tls_context() -> ssl.SSLContext:
    """The machine's own authorities (SSL_CERT_FILE too), and those that browsers trust."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


class _Watchdog:
    """Ends a connection at the deadline, also one that sends a byte now and then."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self.bit = False
        self._twin = socket.socket(fileno=os.dup(sock.fileno()))  # TLS takes the socket itself away
        self._timer = threading.Timer(deadline.left_s(), self._bite)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        self._twin.close()

    def _bite(self) -> None:
        self.bit = True
        try:
            self._twin.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended by itself


def _read(
    response: http.client.HTTPResponse,
    address: Address,
    at: str,
    max_bytes: int,
    on_bytes: OnBytes | None,
    waiting: Waiting,
) -> Answer:
    headers = {name.lower(): value for name, value in response.getheaders()}
    body = b""
    if response.status == 200:
        coding = headers.get("content-encoding", "")
        body = _read_body(response, coding, max_bytes, on_bytes, waiting)
    return Answer(address, response.status, response.reason or "", headers, body, at)


def _read_body(
    response: http.client.HTTPResponse, coding: str, max_bytes: int, on_bytes: OnBytes | None, waiting: Waiting
) -> bytes:
    announced = response.length or 0
    if announced > max_bytes:
        raise too_large(max_bytes)
    inflater = Inflater(coding, max_bytes)
    body, came = bytearray(), 0
    while True:
        with waiting():
            part = response.read1(READ_AT_ONCE)
        if not part:
            break
        came += len(part)
        if came > max_bytes:
            raise too_large(max_bytes)
        body += inflater.feed(part)
        if on_bytes is not None:
            on_bytes(came, announced)
    if announced and came < announced:
        raise http.client.IncompleteRead(b"", announced - came)
    inflater.finish()
    return bytes(body)
