"""Requests that waited for a thread too long are refused, those of programs alone."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.test import Client

from ragd_site.access import middleware
from ragd_site.access.middleware import stamp, take_wait_s
from ragd_site.web import AWAITED_BYTES, LINGER_S, missing_bytes
from tests.server import ROOT, free_port


def test_a_task_knows_how_long_it_waited() -> None:
    with ThreadPoolExecutor(1) as pool:
        stamp(pool)
        first = pool.submit(time.sleep, 0.2)
        second = pool.submit(lambda: (take_wait_s(), take_wait_s()))
        third = pool.submit(lambda number, *, more: number + more, 1, more=2)
    waited, again = second.result()
    assert first.result() is None and 0.15 < waited < 30 and again == 0.0 and third.result() == 3
    assert take_wait_s() == 0.0, "this thread is of no pool"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "waited_s", "limit_s", "is_refused"),
    [
        ("/v1/collections", 1.6, 1.0, True), ("/v1/collections", 0.9, 1.0, False),
        ("/v1/collections", 60.0, 0.0, False),
        ("/v1/health", 60.0, 1.0, False), ("/accounts/login/", 60.0, 1.0, False), ("/a/guide/", 60.0, 1.0, True),
    ],
)  # fmt: skip
def test_what_waited_too_long_is_told_when_to_ask_again(
    client: Client, settings: Any, path: str, waited_s: float, limit_s: float, is_refused: bool
) -> None:
    settings.RAGD_QUEUE_MAX_S = limit_s
    middleware._waited.seconds = waited_s
    answer = client.get(path)
    assert (answer.status_code == 503) is is_refused
    if is_refused:
        assert answer.json()["error"]["type"] == "overloaded" and int(answer["Retry-After"]) > waited_s
        assert client.get("/v1/health").status_code == 200, "only this one"


HEAD_S = 3.0  # instead of the 10 of ragd_site/web.py
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\ncontent-length: 10\r\n"


@pytest.mark.parametrize(
    ("begun", "missing"),
    [
        (b"", 1), (HEAD, 1), (HEAD + b"\r\n", 10), (HEAD + b"\r\n123", 7), (HEAD + b"\r\n1234567890GET", 0),
        (b"GET / HTTP/1.1\r\n\r\n", 0), (HEAD + b"Expect: 100-continue\r\n\r\n", 0),
        (HEAD.replace(b"10", b"9999999999999") + b"\r\n", 0), (b"GET /" + b"a" * AWAITED_BYTES, 0),
    ],
)  # fmt: skip
def test_what_is_missing_of_a_request(begun: bytes, missing: int) -> None:
    assert missing_bytes(begun) == missing


@contextmanager
def small_server() -> Iterator[int]:
    """Its port. Two threads, in one process."""
    port = free_port()
    start = f"from ragd_site import web; web.HEAD_S = {HEAD_S}; from gunicorn.app.wsgiapp import run; run()"
    command = [sys.executable, "-c", start, "-k", "ragd_site.web.Worker", "--threads", "2", "-b"]
    server = subprocess.Popen([*command, f"127.0.0.1:{port}", "wsgiref.simple_server:demo_app"], cwd=ROOT)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield port
    finally:
        server.terminate()
        assert server.wait(timeout=60) == 0


def is_answered_soon(port: int) -> bool:
    began = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
        return bool(answer.status == 200 and time.monotonic() - began < HEAD_S / 2)


def test_requests_that_have_not_come_whole_hold_no_thread() -> None:
    with small_server() as port:
        opened = []
        for begun, rest in ((HEAD, b"\r\n1234567890"), (HEAD + b"\r\n12345", b"67890"), (b"", b"")):
            for _ in range(10):
                opened.append((socket.create_connection(("127.0.0.1", port), timeout=60), rest))
                opened[-1][0].sendall(begun)
        assert is_answered_soon(port)
        for connection, rest in opened:
            connection.sendall(rest)
            assert connection.recv(12) == (b"HTTP/1.1 200" if rest else b""), "answered, or closed in the end"
            connection.close()


def test_clients_that_do_not_close_after_their_answer_keep_nobody_waiting() -> None:
    with small_server() as port:
        opened = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(20)]
        for connection in opened:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert is_answered_soon(port)
        for connection in opened:
            assert b"".join(iter(partial(connection.recv, 4096), b"")).startswith(b"HTTP/1.1 200")
        assert is_answered_soon(port)
        time.sleep(LINGER_S + 1.5)
        for connection in opened:
            with connection, pytest.raises(OSError):  # closed in the end
                for _ in range(10):
                    connection.sendall(b"x")
                    time.sleep(0.1)
