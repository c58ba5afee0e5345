"""ragd behind docker/nginx.conf, as real servers on loopback: slow clients, streams, bodies of every size."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ragd_site.access.middleware import FIELDS, LIMITS
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.serving import Serving
from tests.server import Server, free_port, running_server

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIGURATION = (REPOSITORY / "docker" / "nginx.conf").read_text()
SLOW_CLIENTS = 60  # ragd has 24 threads, in two processes; the proxy lets an address have 100 requests at a time
MEGABYTE = 1_000_000
ANSWER = "Turn the valve [1]. Then lock it [1]."
pytestmark = pytest.mark.timeout(400)


@dataclass
class House:
    server: Server
    model: OpenAIServer
    ragd: tuple[str, int]
    proxy: tuple[str, int]
    folder: Path  # of the proxy's logs

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str, bytes]:
        """Through the proxy: (status, Content-Type, body)."""
        connection = http.client.HTTPConnection(*self.proxy, timeout=60)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {self.server.key}", **headers})
            answer = connection.getresponse()
            return answer.status, answer.headers["Content-Type"], answer.read()
        finally:
            connection.close()


@contextmanager
def running_proxy(ragd: tuple[str, int], folder: Path) -> Iterator[tuple[str, int]]:
    """nginx with the file of the repository, its addresses and folders replaced."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed")
    port = free_port()
    text = CONFIGURATION
    for old, new in (
        ("listen 8080;", f"listen 127.0.0.1:{port};"),
        ("web:8000;", f"{ragd[0]}:{ragd[1]};"),
        ("/tmp/nginx.pid", str(folder / "nginx.pid")),
        ("/var/cache/nginx", str(folder)),
        ("/dev/stdout", str(folder / "access.log")),
    ):
        assert old in text
        text = text.replace(old, new)
    file = folder / "nginx.conf"
    file.write_text(text)
    with (folder / "error.log").open("wb") as log:
        command = [program, "-p", str(folder), "-c", str(file), "-g", "daemon off; user root;"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for_port(port, process)
            yield "127.0.0.1", port
        finally:
            process.terminate()
            process.wait(30)


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, "nginx does not listen"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with ExitStack() as stack:
        model = OpenAIServer().start()
        stack.callback(model.stop)
        model.chat_reply = lambda messages: ANSWER
        variables = {
            "LLM_BASE_URL": model.base_url,
            "OPENAI_API_KEY": model.api_key or "",
            "RAGD_MAX_DOCUMENT_MB": "50",
        }
        server = stack.enter_context(running_server(**variables))
        ragd = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        folder = tmp_path_factory.mktemp("nginx")
        proxy = stack.enter_context(running_proxy(ragd, folder))
        server.call("POST", "/v1/collections", {"name": "house"})
        text = "# Pump\n\nBefore the pump is cleaned, turn the valve and lock it."
        server.call("PUT", "/v1/collections/house/documents/pump", {"content": text})
        deadline = time.monotonic() + 60
        while not server.call("POST", "/v1/collections/house/search", {"query": "pump"})["results"]:
            assert time.monotonic() < deadline, "the document is not found"
            time.sleep(0.2)
        yield House(server, model, ragd, proxy, folder)


@contextmanager
def held(address: tuple[str, int], words: bytes, *, count: int = SLOW_CLIENTS) -> Iterator[None]:
    """Many connections that begin a request and never end it."""
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.create_connection(address, timeout=10)) for _ in range(count)]
        for client in opened:
            client.sendall(words)
        yield


def half_a_header() -> bytes:
    return b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Begun: "


def half_a_body(key: str) -> bytes:
    head = f"POST /v1/collections/house/search HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n{{".encode()


def is_healthy(address: tuple[str, int], timeout_s: float) -> bool:
    connection = http.client.HTTPConnection(*address, timeout=timeout_s)
    try:
        connection.request("GET", "/v1/health")
        return connection.getresponse().status == 200
    except TimeoutError:
        return False
    finally:
        connection.close()


@pytest.mark.parametrize("kind", ["header", "body"])
def test_slow_clients_hold_neither_the_proxy_nor_ragd(house: House, kind: str) -> None:
    words = half_a_header() if kind == "header" else half_a_body(house.server.key)
    for slowed in (house.proxy, house.ragd):
        with held(slowed, words):
            for _ in range(10):
                assert is_healthy(house.proxy, 60)
                assert is_healthy(house.ragd, 60)


def test_an_answer_arrives_piece_by_piece(house: House) -> None:
    go_on = threading.Event()
    house.model.pause = lambda sent: None if sent < 3 else go_on.wait(60)  # type: ignore[assignment]
    connection = http.client.HTTPConnection(*house.proxy, timeout=60)
    headers = {
        "Authorization": f"Bearer {house.server.key}",
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
    }
    try:
        body = json.dumps({"query": "What is done before the pump is cleaned?"})
        connection.request("POST", "/v1/collections/house/ask", body, headers)
        response = connection.getresponse()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        seen: list[str] = []
        while "token" not in seen:  # the model is held after its third piece: its first must be here by then
            line = response.readline().decode()
            assert line, "the stream ended before a word of the answer came"
            if line.startswith("event: "):
                seen.append(line.removeprefix("event: ").strip())
        assert not go_on.is_set()
        go_on.set()
        rest = response.read().decode()
        assert "event: " in rest
    finally:
        go_on.set()
        connection.close()
        house.model.pause = lambda sent: None


def test_an_upload_of_the_allowed_size_passes(house: House) -> None:
    boundary = "----piece"
    content = (b"A line of text that is read as it is.\n" * 30_000)[:1_100_000]  # more than fields may have
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="long.txt"\r\n'
    body = head.encode() + b"Content-Type: text/plain\r\n\r\n" + content + f"\r\n--{boundary}--\r\n".encode()
    kind = f"multipart/form-data; boundary={boundary}"
    status, _, answer = house.ask("POST", "/v1/collections/house/documents", body, **{"Content-Type": kind})
    assert status in (200, 201, 202), answer
    [result] = json.loads(answer)["results"]
    assert result.get("error") is None


def send_stated(house: House, path: str, length: int) -> tuple[int, str, bytes]:
    """A request whose header states a body of so many bytes; what is answered before any of it is sent."""
    connection = http.client.HTTPConnection(*house.proxy, timeout=60)
    try:
        connection.putrequest("POST", path)
        connection.putheader("Authorization", f"Bearer {house.server.key}")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(length))
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "length"),
    [
        ("/v1/collections/house/search", 2 * MEGABYTE),
        ("/v1/collections/house/documents", 1100 * MEGABYTE),
        ("/v1/collections/import", 21_000 * MEGABYTE),
        ("/mcp", 2 * MEGABYTE),
    ],
)
def test_a_body_over_the_limit_is_refused_in_ragds_shape(house: House, path: str, length: int) -> None:
    status, kind, body = send_stated(house, path, length)
    assert (status, kind) == (413, "application/json")
    error = json.loads(body)["error"]
    assert (error["type"], sorted(error)) == ("too_large", ["field", "message", "type"])


def test_the_facade_and_pages_are_refused_in_their_own_shapes(house: House) -> None:
    status, kind, body = send_stated(house, "/v1/chat/completions", 2 * MEGABYTE)
    assert (status, kind) == (413, "application/json")
    assert sorted(json.loads(body)["error"]) == ["code", "message", "param", "type"]
    status, kind, body = send_stated(house, "/accounts/login/", 2 * MEGABYTE)
    assert (status, kind) == (413, "text/html; charset=utf-8")


def test_a_body_just_over_the_limit_is_refused_and_one_just_below_is_not(house: House) -> None:
    for size, expected in ((FIELDS.limit_mb * MEGABYTE + 1, 413), (FIELDS.limit_mb * MEGABYTE, 422)):
        body = json.dumps({"query": ""})
        body = body.replace('""', '"' + "x" * (size - len(body)) + '"')
        kind = {"Content-Type": "application/json"}
        status, _, answer = house.ask("POST", "/v1/collections/house/search", body.encode(), **kind)
        assert (status, len(body)) == (expected, size), answer[:300]


def test_a_server_that_is_away_is_told_of_in_the_same_shape(tmp_path: Path) -> None:
    with running_proxy(("127.0.0.1", free_port()), tmp_path) as proxy:
        connection = http.client.HTTPConnection(*proxy, timeout=60)
        connection.request("GET", "/v1/health")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Type"]) == (503, "application/json")
        assert json.loads(answer.read())["error"]["type"] == "unavailable"
        connection.close()


def test_what_only_a_proxy_may_say_does_not_pass(tmp_path: Path) -> None:
    """Headers in which a client claims to be somebody, or somewhere else, as a server behind the proxy sees them."""
    seen: list[dict[str, str]] = []

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    claims = ("X-Forwarded-User", "X-Forwarded-Groups", "X-Forwarded-Email", "Remote-User", "Forwarded")
    places = ("X-Forwarded-For", "X-Real-IP", "X-Forwarded-Host", "X-Forwarded-Proto")
    headers_sent = dict.fromkeys((*claims, *places), "marked") | {"Host": "rag.example"}
    with (
        Serving(HTTPServer(("127.0.0.1", 0), Listener)) as listener,
        running_proxy(("127.0.0.1", listener.port), tmp_path) as proxy,
    ):
        connection = http.client.HTTPConnection(*proxy, timeout=60)
        connection.request("GET", "/", headers=headers_sent)
        assert connection.getresponse().status == 204
        connection.close()
    [headers] = seen
    assert [name for name, value in headers.items() if "marked" in value] == []
    assert (headers["x-forwarded-for"], headers["x-forwarded-proto"]) == ("127.0.0.1", "http")
    assert headers["host"] == headers["x-forwarded-host"] == "rag.example"


def test_a_client_cannot_say_where_it_comes_from(house: House) -> None:
    """What it sends as X-Forwarded-For is replaced; ragd sees that there is a proxy, so /metrics wants a key."""
    status, _, _ = house.ask("GET", "/metrics", Authorization="", **{"X-Forwarded-For": "127.0.0.1"})
    assert status in (401, 403, 404)
    house.ask("GET", "/v1/health?api_key=marked")
    log = (house.folder / "access.log").read_text()
    assert "/v1/health" in log
    assert "marked" not in log


def limits_of_the_file() -> list[tuple[str, int]]:
    """(expression, bytes) of each location, in their order."""
    found = re.findall(r"location ~ (\S+) \{ client_max_body_size (\d+);", CONFIGURATION)
    return [(expression, int(size)) for expression, size in found]


def test_the_limits_of_the_file_are_ragds() -> None:
    locations = limits_of_the_file()
    assert len(locations) >= 8
    default = re.search(r"^ +client_max_body_size (\d+);", CONFIGURATION, re.MULTILINE)
    assert default is not None
    assert int(default[1]) == FIELDS.limit_mb * MEGABYTE
    largest: dict[str, int] = {}  # of the views of an address, which nginx cannot tell apart
    for route, limit in LIMITS:
        path = route.partition("?")[0]
        address = "/" + re.sub(r"<int:[^>]+>", "7", re.sub(r"<(?:str:|path:)?[a-z_]+>", "name", path))
        largest[address] = max(largest.get(address, 0), limit.limit_mb * MEGABYTE)
    for address, limit_bytes in largest.items():
        assert next((size for start, size in locations if re.match(start, address)), None) == limit_bytes, address
