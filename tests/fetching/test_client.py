"""One request: pinned to what was checked, under limits."""

from __future__ import annotations

import gzip
import socket
import ssl
import subprocess
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragd.readers.fetching import Answer, Deadline, FetchError, Guard, Limits, read_address, request
from ragd.readers.fetching import client as client_module
from ragd.readers.fetching.client import read_retry_after
from tests.fakes.web_server import Page, WebServer
from tests.fetching.conftest import LOOPBACK
from tests.server import free_port

LIMIT = 100_000


def ask(url: str, **values: Any) -> Answer:
    headers = values.pop("headers", {})
    limits = Limits(**{"guard": Guard(LOOPBACK), "deadline": Deadline(5), "max_bytes": LIMIT, **values})
    return request(read_address(url), limits, headers=headers)


def refusal(url: str, **values: Any) -> FetchError:
    with pytest.raises(FetchError) as caught:
        ask(url, **values)
    return caught.value


def test_an_answer_comes_with_its_headers(web_server: WebServer) -> None:
    web_server.pages["/a?b=c"] = Page(b"text", headers={"ETag": '"1"'})
    counted: list[tuple[int, int]] = []
    answer = ask(
        web_server.url("/a?b=c", "localhost"), headers={"User-Agent": "me"}, on_bytes=lambda *n: counted.append(n)
    )
    assert (answer.status, answer.body, answer.headers["etag"]) == (200, b"text", '"1"')
    assert counted == [(4, 4)]
    (asked,) = web_server.asked
    assert (asked.headers["host"], asked.headers["user-agent"]) == (f"localhost:{web_server.port}", "me")


def test_the_connection_goes_to_the_address_that_was_checked(
    web_server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name leads somewhere else at the second look; nobody looks a second time."""
    web_server.pages["/"] = Page(b"text")
    looked: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: Any, port: Any, *rest: Any, **values: Any) -> Any:
        if host != "rebound.example":
            return real(host, port, *rest, **values)
        looked.append(host)
        machine = "127.0.0.1" if len(looked) == 1 else "127.0.0.99"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (machine, port))]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    answer = ask(f"http://rebound.example:{web_server.port}/", guard=Guard(["127.0.0.1/32"]))
    assert (answer.at, looked) == ("127.0.0.1", ["rebound.example"])
    assert web_server.asked[0].headers["host"] == f"rebound.example:{web_server.port}"


def test_the_next_address_is_tried_when_one_does_not_answer(
    web_server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    web_server.pages["/"] = Page(b"text")
    machines = [("127.0.0.99", web_server.port), ("127.0.0.1", web_server.port)]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", machine) for machine in machines]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    real = socket.create_connection

    def connect(address: tuple[str, int], **values: Any) -> socket.socket:
        if address[0] == "127.0.0.99":
            raise ConnectionRefusedError(111, "Connection refused")
        return real(address, **values)

    monkeypatch.setattr(socket, "create_connection", connect)
    assert ask(f"http://two.example:{web_server.port}/").at == "127.0.0.1"


def test_nothing_is_sent_to_a_private_address(web_server: WebServer) -> None:
    assert refusal(web_server.url("/"), guard=Guard()).kind == "address_refused"
    assert web_server.asked == []


@pytest.mark.parametrize("announced", [None, "", 1_000_000])
def test_a_body_over_the_limit_is_not_taken(web_server: WebServer, announced: Any) -> None:
    web_server.pages["/"] = Page(b"x" * (LIMIT + 1), announced=announced)
    error = refusal(web_server.url("/"))
    assert (error.kind, error.retryable) == ("too_large", False)
    assert "RAGD_MAX_DOCUMENT_MB" in error.message


def test_a_body_of_just_the_limit_is_taken(web_server: WebServer) -> None:
    web_server.pages["/"] = Page(b"x" * LIMIT, announced="")
    assert len(ask(web_server.url("/")).body) == LIMIT


@pytest.mark.parametrize("layers", [1, 2])
def test_a_bomb_is_stopped_at_the_limit(web_server: WebServer, layers: int) -> None:
    body = gzip.compress(b"0" * 50_000_000)
    if layers == 2:
        body += gzip.compress(b"1" * 50_000_000)
    assert len(body) < LIMIT
    web_server.pages["/"] = Page(body, headers={"Content-Encoding": "gzip"})
    assert refusal(web_server.url("/")).kind == "too_large"


RAW_DEFLATE = zlib.compressobj(wbits=-15)
PACKED = {
    "gzip": gzip.compress(b"some text", mtime=0),
    "x-gzip": gzip.compress(b"some ", mtime=0) + gzip.compress(b"text", mtime=0),
    "deflate": zlib.compress(b"some text"),
    "Deflate": RAW_DEFLATE.compress(b"some text") + RAW_DEFLATE.flush(),
    "identity": b"some text",
}


@pytest.mark.parametrize("coding", PACKED)
def test_a_packed_body_is_unpacked(web_server: WebServer, coding: str) -> None:
    web_server.pages["/"] = Page(PACKED[coding], headers={"Content-Encoding": coding})
    assert ask(web_server.url("/")).body == b"some text"


@pytest.mark.parametrize(
    ("coding", "body", "kind"),
    [
        ("br", b"xx", "unknown_encoding"),
        ("gzip", b"no gzip", "broken_body"),
        ("gzip", PACKED["gzip"][:-9], "broken_body"),
    ],
)
def test_a_body_that_cannot_be_unpacked(web_server: WebServer, coding: str, body: bytes, kind: str) -> None:
    web_server.pages["/"] = Page(body, headers={"Content-Encoding": coding})
    assert refusal(web_server.url("/")).kind == kind


@pytest.mark.parametrize("announced", [None, ""])
def test_a_dripping_body_ends_at_the_deadline(web_server: WebServer, announced: Any) -> None:
    web_server.pages["/"] = Page(b"x" * 1000, drip_s=0.02, announced=announced)
    error = refusal(web_server.url("/"), deadline=Deadline(0.3))
    assert (error.kind, error.retryable) == ("timeout", True)


def test_a_server_that_says_nothing_ends_at_the_deadline(web_server: WebServer) -> None:
    web_server.pages["/"] = Page(before=lambda: web_server.stopping.wait(5) and None)
    assert refusal(web_server.url("/"), deadline=Deadline(0.3)).kind == "timeout"


def test_a_body_that_breaks_off_is_not_taken_for_whole(web_server: WebServer) -> None:
    web_server.pages["/"] = Page(b"half", announced=1000, headers={"Connection": "close"})
    error = refusal(web_server.url("/"), deadline=Deadline(1))
    assert error.retryable
    assert error.kind in ("connection_lost", "timeout")


def test_a_closed_port_and_an_unknown_host_say_so() -> None:
    port = free_port()
    assert (refusal(f"http://127.0.0.1:{port}/").kind, refusal("http://nowhere.invalid/").retryable) == (
        "unreachable",
        refusal("http://nowhere.invalid/").kind == "name_server_failed",
    )


def test_an_answer_that_is_no_http(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def speak() -> None:
        there, _ = listener.accept()
        with there:
            there.recv(1000)
            there.sendall(b"220 mail ready\r\n")

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    with listener:
        assert refusal(f"http://127.0.0.1:{listener.getsockname()[1]}/").kind == "connection_lost"
    thread.join()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("120", 120.0), ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0), ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0), ("soon", None),
     ("", None), ("-5", None), ("9" * 400, None)],
)  # fmt: skip
def test_retry_after_is_read(header: str, seconds: float | None) -> None:
    assert read_retry_after(header, now=10.0) == seconds


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a certificate of safe.example in one file, signed by itself."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=safe.example"]
    command += ["-addext", "subjectAltName=DNS:safe.example", "-keyout", str(tmp_path / "key.pem")]
    command += ["-out", str(tmp_path / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
    return tmp_path


@pytest.fixture
def safe_server(certificate: Path) -> Iterator[WebServer]:
    server = WebServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    names: list[str | None] = []
    context.sni_callback = lambda _, name, __: names.append(name)
    server.names = names  # type: ignore[attr-defined]
    server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
    server._server.handle_error = lambda *_: None
    yield server.start()
    server.stop()


def point_there(monkeypatch: pytest.MonkeyPatch, certificate: Path | None) -> None:
    found = lambda host, port, *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]  # noqa: E731
    monkeypatch.setattr(socket, "getaddrinfo", found)
    if certificate is not None:
        monkeypatch.setattr(client_module.certifi, "where", lambda: str(certificate / "cert.pem"))


def test_tls_is_about_the_name_not_the_number(
    safe_server: WebServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    safe_server.pages["/"] = Page(b"text")
    point_there(monkeypatch, certificate)
    assert ask(f"https://safe.example:{safe_server.port}/").body == b"text"
    assert safe_server.names == ["safe.example"]  # type: ignore[attr-defined]
    assert safe_server.asked[0].headers["host"] == f"safe.example:{safe_server.port}"
    other = refusal(f"https://other.example:{safe_server.port}/")
    assert (other.kind, other.retryable) == ("bad_certificate", False)
    assert len(safe_server.asked) == 1


def test_an_unknown_authority_is_refused(
    safe_server: WebServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_there(monkeypatch, None)
    assert refusal(f"https://safe.example:{safe_server.port}/").kind == "bad_certificate"
    assert safe_server.asked == []


def test_a_handshake_that_never_ends_ends_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = refusal(f"https://127.0.0.1:{silent.getsockname()[1]}/", deadline=Deadline(0.3))
    assert error.kind == "timeout"
