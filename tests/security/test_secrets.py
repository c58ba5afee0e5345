"""Every secret setting marked, endpoints that fail and repeat what they were sent: no mark is in anything that is kept,
answered, exported, printed or shown of a process.
"""

from __future__ import annotations

import http.cookiejar
import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from ragd_site import embedded
from ragd_site.environment import secret_names
from tests.server import Server, running_server

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 120
# of the environment: no other value than a mark would do for these
ADDRESSES = {"DATABASE_URL", "DATABASE_REPLICA_URL", "CELERY_BROKER_URL"}
MARKS = {name: f"mark-{number:02d}-{name.lower().replace('_', '-')}-0123456789abcdef" for number, name in
         enumerate(sorted(set(secret_names()) - ADDRESSES))}  # fmt: skip
MODEL_KEY = "mark-of-a-model-in-the-database-0123456789abcdef"
pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
SELECT_TABLES = """
SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
"""
SAVE_MODEL = """
from collections_app.models import ModelSetting
from collections_app.endpoints.secrets import encrypt
ModelSetting.objects.create(
    purpose="chat", name="Failing", model="failing-1", identity="failing-1", base_url="ADDRESS", secret=encrypt("KEY"),
    is_default=True,
)
"""


class Parrot(BaseHTTPRequestHandler):
    """Refuses everything and repeats the whole request, header by header."""

    heard: list[str] = []

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = f"{self.requestline}\n{self.headers}\n"
        type(self).heard.append(request)
        message = {
            "error": {"message": f"not accepted: {request}{body.decode(errors='replace')[:2000]}", "type": "auth"}
        }
        content = json.dumps(message).encode()
        self.send_response(401, "not accepted")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_HEAD = answer

    def log_message(self, *_: object) -> None:
        pass


@dataclass
class House:
    server: Server
    parrot: str
    marks: dict[str, str]
    collected: dict[str, bytes] = field(default_factory=dict)

    def ask(self, what: str, method: str, path: str, body: Any = None, **headers: str) -> bytes:
        """The body of whatever is answered, with its headers kept for the search."""
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json", "Authorization": f"Bearer {self.server.key}"}
        request = urllib.request.Request(self.server.url + path, data, kind | headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                content, head = answer.read(), str(answer.headers)
        except urllib.error.HTTPError as error:
            content, head = error.read(), str(error.headers)
        self.collected[f"answer: {what}"] = head.encode() + content
        return content

    def found(self) -> list[tuple[str, str]]:
        """(name of the secret, where) of each mark that was found."""
        return [
            (name, where)
            for where, content in self.collected.items()
            for name, mark in self.marks.items()
            if mark.encode() in content
        ]


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Parrot)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    parrot = f"http://127.0.0.1:{listener.server_address[1]}"
    variables = MARKS | {
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={MARKS['OTEL_EXPORTER_OTLP_HEADERS']}",
        "LLM_BASE_URL": f"{parrot}/v1",
        "EMBED_BASE_URL": f"{parrot}/v1",
        "RAGD_RERANK_BASE_URL": f"{parrot}/rerank",
        "RAGD_JUDGE_BASE_URL": f"{parrot}/v1",
        "RAGD_S3_ENDPOINT": parrot,
        "OTEL_EXPORTER_OTLP_ENDPOINT": parrot,
        "RAGD_FETCH_ALLOWED_NETWORKS": "127.0.0.0/8",
        "RAGD_FETCH_PAUSE_S": "0",
        "RAGD_LOG_LEVEL": "DEBUG",
        "SPT_NOENV": "1",
    }
    with running_server(**variables) as server:
        cluster = embedded.read_cluster(server.var)
        assert cluster is not None
        marks = MARKS | {"the database's password": cluster.password, "a model's key": MODEL_KEY}
        yield House(server, parrot, marks)
    listener.shutdown()


def save_model(house: House) -> None:
    script = SAVE_MODEL.replace("ADDRESS", f"{house.parrot}/v1").replace("KEY", MODEL_KEY)
    environment = {"RAGD_VAR": str(house.server.var), "PATH": "/usr/bin:/bin", **MARKS}
    environment["OTEL_EXPORTER_OTLP_HEADERS"] = f"authorization={MARKS['OTEL_EXPORTER_OTLP_HEADERS']}"
    for arguments, given in ((["shell", "--no-imports"], script), (["ragd", "status", "--test"], "")):
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=REPOSITORY,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        house.collected[f"printed by manage.py {arguments[0]}"] = (done.stdout + done.stderr).encode()
        assert given == "" or done.returncode == 0, done.stderr


def do_the_main_work(house: House) -> None:
    """Everything that sends a secret somewhere, each time to who refuses and repeats it."""
    house.ask("collection", "POST", "/v1/collections", {"name": "local"})
    failing = {"name": "remote", "embed_model": "text-embedding-3-small", "embed_dims": 32}
    house.ask("failing collection", "POST", "/v1/collections", failing)
    for name in ("local", "remote"):
        path = f"/v1/collections/{name}/documents/pump"
        house.ask(f"document of {name}", "PUT", path, {"content": "# Pump\n\nTurn the valve before it is cleaned."})
        for result in house.server.upload(name, [(f"{name}.md", b"# Valve\n\nTurn the valve.")]):
            house.collected[f"upload to {name}"] = json.dumps(result).encode()
    house.ask("bucket", "POST", "/v1/collections/local/s3", {"bucket": "papers", "prefix": "a/"})
    house.ask("search", "POST", "/v1/collections/local/search", {"query": "valve"})
    house.ask("rerank", "POST", "/v1/collections/local/search", {"query": "valve", "rerank": "endpoint"})
    house.ask("search of the failing collection", "POST", "/v1/collections/remote/search", {"query": "valve"})
    answered = json.loads(house.ask("ask", "POST", "/v1/collections/local/ask", {"query": "What of the valve?"}))
    stored = {"query": "What of the valve?", "llm_model": "failing-1"}
    house.ask("ask a stored model", "POST", "/v1/collections/local/ask", stored)
    events = {"Accept": "text/event-stream"}
    house.ask("streamed", "POST", "/v1/collections/local/ask", {"query": "What of the valve?"}, **events)
    run = answered.get("run_id") or json.loads(house.ask("runs", "GET", "/v1/runs"))["items"][0]["run_id"]
    house.ask("judge", "POST", f"/v1/runs/{run}/judge", {"judge": "llm"})
    house.ask("wrong key", "GET", "/v1/collections", Authorization=f"Bearer {MARKS['RAGD_METRICS_KEY']}x")
    house.ask("metrics", "GET", "/metrics", Authorization=f"Bearer {MARKS['RAGD_METRICS_KEY']}")


def wait_for_jobs(house: House) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        jobs = json.loads(house.ask("jobs", "GET", "/v1/jobs"))["items"]
        if jobs and all(job["attempts"] > 0 for job in jobs):
            return
        time.sleep(0.5)
    raise AssertionError(house.collected["answer: jobs"])


def read_pages(house: House) -> None:
    """As the first administrator, whose password is a mark too."""
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    address = house.server.url
    form = opener.open(f"{address}/accounts/login/").read().decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
    assert token is not None
    values = {"csrfmiddlewaretoken": token[1], "username": "admin", "password": MARKS["RAGD_ADMIN_PASSWORD"]}
    opener.open(f"{address}/accounts/login/", urllib.parse.urlencode(values).encode())
    assert "sessionid" in {cookie.name for cookie in jar}
    for page in ("/", "/models/", "/operations/", "/collections/", "/activity/", "/traces/", "/jobs/", "/nowhere/"):
        try:
            house.collected[f"page {page}"] = opener.open(address + page).read()
        except urllib.error.HTTPError as error:
            house.collected[f"page {page}"] = error.read()


def collect(house: House) -> None:
    """What is kept, exported and written down."""
    for path in ("/v1/runs", "/v1/spans", "/v1/jobs", "/v1/collections"):
        house.ask(f"list {path}", "GET", path)
    for kind in ("otlp", "otlp-lines", "openinference", "ocsf"):
        house.ask(f"spans as {kind}", "GET", f"/v1/spans/export?format={kind}&content=stored")
    house.ask("runs as a file", "GET", "/v1/runs?format=jsonl")
    for name in ("local", "remote"):
        house.ask(f"export of {name}", "GET", f"/v1/collections/{name}/export")
    house.collected["log"] = (house.server.var.parent / "log").read_bytes()
    cluster = embedded.read_cluster(house.server.var)
    assert cluster is not None
    for path in cluster.data.parent.rglob("*.log"):
        house.collected[f"PostgreSQL's {path.name}"] = path.read_bytes()
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        for schema, table in connection.execute(SELECT_TABLES).fetchall():
            name = sql.Identifier(schema, table)
            rows = connection.execute(sql.SQL("SELECT t::text FROM {} AS t").format(name)).fetchall()
            house.collected[f"table {schema}.{table}"] = "\n".join(row for (row,) in rows).encode()


def test_no_secret_is_kept_answered_exported_or_printed(house: House) -> None:
    save_model(house)
    do_the_main_work(house)
    wait_for_jobs(house)
    read_pages(house)
    deadline = time.monotonic() + PATIENCE_S  # spans come a moment after what they tell of
    while b"valve" not in house.ask("spans", "GET", "/v1/spans") and time.monotonic() < deadline:
        time.sleep(0.5)
    collect(house)

    said = "\n".join(Parrot.heard)  # else the test would look for what was never sent anywhere
    sent = {name for name, mark in house.marks.items() if mark in said}
    assert {"OPENAI_API_KEY", "EMBED_API_KEY", "RAGD_RERANK_API_KEY", "a model's key"} <= sent
    assert {"AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "OTEL_EXPORTER_OTLP_HEADERS"} <= sent
    assert house.collected["log"] and b"401" in b"".join(house.collected.values())
    assert house.found() == []


def test_the_search_would_find_one(house: House) -> None:
    other = House(house.server, house.parrot, {"one": "mark-1"}, {"log": b"a mark-1 in it"})
    assert other.found() == [("one", "log")]


def test_no_process_shows_a_secret_on_its_command_line_and_none_has_what_it_needs_not(house: House) -> None:
    house.ask("parsed", "PUT", "/v1/collections/local/documents/parsed", {"content": "a text for a parser"})
    processes = house.server.processes()
    cluster = embedded.read_cluster(house.server.var)
    assert cluster is not None
    postmaster = embedded.postmaster_pid(cluster.data)
    assert postmaster is not None
    for pid, line in processes.items():
        assert [name for name, mark in house.marks.items() if mark in line] == [], line
        environment = read_environ(pid)
        if "ragd.readers" in line:  # PostgreSQL is no descendant, and looked at below
            assert [name for name, mark in house.marks.items() if mark.encode() in environment] == [], line
    for pid in [postmaster, *children_of(postmaster)]:
        environment = read_environ(pid)
        assert [name for name, mark in house.marks.items() if mark.encode() in environment] == []


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def read_environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended
        return b""
