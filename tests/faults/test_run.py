"""`make run` as a person sees it: one command, Ctrl-C, a killed supervisor, killed children, a busy port."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests

from ragd_site import embedded
from tests.server import wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 150
pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


class Server:
    """One `python -m ragd_site.run` and what it printed."""

    def __init__(self, var: Path, port: int) -> None:
        self.var, self.port = var, port
        self.log = var / "run.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.log.unlink(missing_ok=True)
        kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "RAGD_LOG_LEVEL")}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ragd_site.run"],
                cwd=REPOSITORY,
                env={
                    **kept,
                    "RAGD_VAR": str(self.var),
                    "PORT": str(self.port),
                    "RAGD_JOB_LEASE_S": "3",
                    "RAGD_EMBED_BATCH_SIZE": "8",
                    "RAGD_SAMPLE": "off",
                    "SPT_NOENV": "1",  # setproctitle would write over /proc/PID/environ, which `descendants` reads
                },
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        wait_for(lambda: "ragd is ready" in self.printed() or self.ended(), f"readiness:\n{self.printed()}")
        assert not self.ended(), self.printed()

    def printed(self) -> str:
        return self.log.read_text()

    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def signal(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def descendants(self) -> dict[int, str]:
        """PID and command line of every process that was started with this RAGD_VAR, but the supervisor."""
        mark = f"RAGD_VAR={self.var}\0".encode()
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    if mark in (folder / "environ").read_bytes():
                        found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
        if self.process is not None:
            found.pop(self.process.pid, None)
        return {pid: command for pid, command in found.items() if command}

    def health(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/health", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    var = Path(tempfile.mkdtemp(prefix="ragd-run-"))
    var.chmod(0o755)
    server = Server(var, embedded.free_port())
    yield server
    if not server.ended():
        server.signal(signal.SIGTERM)
    for pid in server.descendants():
        os.kill(pid, signal.SIGKILL)
    embedded.stop(var)
    shutil.rmtree(var)


def test_first_start_prints_address_and_where_the_password_is_and_ctrl_c_stops_everything(server: Server) -> None:
    server.start()
    server.wait_until_ready()
    assert server.health() == 200
    assert f"http://127.0.0.1:{server.port}/" in server.printed()
    assert "Warning" not in server.printed()
    kept = server.var / "admin_password"
    assert f"First administrator: admin, the password is in {kept}\n" in server.printed()
    assert kept.read_text().strip() not in server.printed()
    assert kept.stat().st_mode & 0o777 == 0o600

    assert server.signal(signal.SIGINT) == 0
    assert server.descendants() == {}
    cluster = embedded.read_cluster(server.var)
    assert cluster is not None
    assert embedded.postmaster_pid(cluster.data) is None
    log = (cluster.data / "log" / "postgresql.log").read_text(errors="replace")
    assert [line for line in log.splitlines() if " ERROR: " in line] == []


def test_later_start_is_quick_and_makes_nothing_twice(server: Server) -> None:
    began = time.monotonic()
    server.start()
    server.wait_until_ready()
    took_s = time.monotonic() - began
    assert "First administrator" not in server.printed()
    assert server.printed().index("Web server: starting") < server.printed().index("PostgreSQL: ready")
    cluster = embedded.read_cluster(server.var)
    assert cluster is not None
    with psycopg.connect(cluster.url) as connection:
        assert connection.execute("SELECT count(*) FROM auth_user WHERE is_superuser").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM collections").fetchone() == (0,)
    assert took_s < 60  # far above the target: the machine of the tests is shared; `make bench BENCH=setup` prints it


def test_second_supervisor_is_refused(server: Server) -> None:
    second = Server(server.var, embedded.free_port())
    second.log = server.var / "second.log"
    second.start()
    wait_for(second.ended, "end of the second supervisor")
    assert second.printed() == (
        "ragd does not start.\n"
        f"ragd already runs with RAGD_VAR={server.var}. Stop it, or set RAGD_VAR to another folder.\n"
    )
    assert server.health() == 200


def test_killed_children_come_back(server: Server) -> None:
    for name in ("gunicorn", "celery"):
        masters = sorted(pid for pid, command in server.descendants().items() if name in command)
        for pid in masters:
            os.kill(pid, signal.SIGKILL)
        wait_for(
            lambda name=name, old=masters: any(  # type: ignore[misc]
                name in command and pid not in old for pid, command in server.descendants().items()
            ),
            f"new {name}",
        )
    wait_for(lambda: server.health() == 200, "health")
    assert "The web server was killed by signal 9; it starts again in 2 s." in server.printed()
    assert "The worker was killed by signal 9; it starts again in 2 s." in server.printed()


def write_text(seed: int, sentences: int) -> bytes:
    """Sentences of ten plain words, different for every seed."""
    plain = ["water", "kettle", "boils", "tea", "cup", "morning", "river", "stone", "bread", "table", "garden", "music"]
    draw = random.Random(seed)
    return " ".join(" ".join(draw.choices(plain, k=10)).capitalize() + "." for _ in range(sentences)).encode()


def test_worker_killed_in_the_middle_of_ingest_loses_no_document(server: Server) -> None:
    address = f"http://127.0.0.1:{server.port}/v1"
    secret = requests.post(f"{address}/api-keys", json={"label": "test"}, timeout=30).json()["secret_once"]
    client = requests.Session()
    client.headers["Authorization"] = f"Bearer {secret}"
    client.post(f"{address}/collections", json={"name": "kept", "hybrid_enabled": True}, timeout=30).raise_for_status()
    files = [("files", (f"text-{number}.txt", write_text(number, 240))) for number in range(3)]
    client.post(f"{address}/collections/kept/documents", files=files, timeout=60).raise_for_status()

    def jobs() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = client.get(f"{address}/jobs?collection=kept", timeout=30).json()["items"]
        return [item for item in items if item["kind"] == "file"]  # the weights of the lists are measured too

    wait_for(lambda: any(job["stage"] == "embed" and job["chunks_done"] for job in jobs()), "half-done job")
    for pid in sorted(pid for pid, command in server.descendants().items() if "celery" in command):
        os.kill(pid, signal.SIGKILL)
    cut_off = {job["doc_id"] for job in jobs() if job["state"] == "running"}
    assert cut_off
    wait_for(lambda: all(job["state"] == "succeeded" for job in jobs()), "success of every job")

    done = {job["doc_id"]: job for job in jobs()}
    assert sorted(done) == ["text-0.txt", "text-1.txt", "text-2.txt"]
    assert {name for name, job in done.items() if job["attempts"] == 2} == cut_off
    stored = client.get(f"{address}/collections/kept/documents", timeout=30).json()["items"]
    assert {item["doc_id"]: item["chunk_count"] for item in stored} == {
        name: job["chunks_total"] for name, job in done.items()
    }


def test_killed_database_comes_back_under_the_running_server(server: Server) -> None:
    cluster = embedded.read_cluster(server.var)
    assert cluster is not None
    pid = embedded.postmaster_pid(cluster.data)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: embedded.postmaster_pid(cluster.data) not in (pid, None), "new postmaster")
    wait_for(lambda: server.health() == 200, "health")
    assert "The embedded PostgreSQL is gone; it starts again." in server.printed()


def test_killed_supervisor_takes_its_children_along_and_hinders_no_start(server: Server) -> None:
    def children() -> dict[int, str]:
        return {pid: command for pid, command in server.descendants().items() if re.search("celery|gunicorn", command)}

    old = children()
    assert old
    server.signal(signal.SIGKILL)
    wait_for(lambda: server.health() == 0, "end of the web server")
    server.start()
    server.wait_until_ready()
    assert server.health() == 200
    wait_for(lambda: not old.keys() & children().keys(), "end of the old children")
    wait_for(lambda: any("celery" in command for command in children().values()), "new worker")
    assert server.signal(signal.SIGTERM) == 0
    assert server.descendants() == {}


def test_busy_port_is_told(server: Server) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", server.port))
        other.listen()
        server.start()
        wait_for(server.ended, "refusal")
    of_root = re.compile(r"^ragd (cannot change to an account of its own: |runs as root: |was started by root )")
    printed = [line for line in server.printed().splitlines() if not of_root.match(line)]  # how root goes on
    assert printed == [
        "ragd does not start.",
        f"Port {server.port} is already used by another program. Stop it, or choose another port: PORT=8001 make run",
    ]
