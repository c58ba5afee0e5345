"""ragd on eight hosts, each a network namespace of this machine with an address of its own.

Run: python -m tests.benchmarks.bench_hosts [--documents 40]      (as root; needs ip, unshare, redis-server, Citus)

A coordinator and two nodes of a Citus cluster, a broker, two web servers and two workers. Documents are uploaded
through the first web server into a collection that is spread over the nodes, read by the workers of both hosts, and
searched and asked through the second. Then the host of one worker is cut off while more are read, and comes back.
Printed is what was read where, how long it took, and what is lost, doubled or left over: exit status 1 where there is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from ragd_site.runtime.programs import run_program, server_account
from tests.benchmarks.fault_matrix.full import PLAIN, WEB, WORKER
from tests.benchmarks.fault_matrix.services import Service, Watcher, ip, may_make_hosts
from tests.benchmarks.server import ROOT, Server
from tests.cluster import nodes
from tests.faults.brokers import redis_command

ROLES = ("coordinator", "node1", "node2", "broker", "web1", "web2", "worker1", "worker2")
PORTS = {"coordinator": 5432, "node1": 5432, "node2": 5432, "broker": 6379, "web1": 8000, "web2": 8000}
START_S, READ_S = 90.0, 120.0
LEASE_S = 5
COLLECTION = "spread"
QUESTION = "Where does the otter of number 3 sleep?"


class Network:
    """A bridge, and on it a namespace per role, with a host name of its own."""

    def __init__(self) -> None:
        self.number = os.getpid() % 250
        self.bridge = f"rgbr{os.getpid() % 100_000}"

    def name(self, role: str) -> str:
        return f"ragd{os.getpid() % 100_000}-{role}"

    def device(self, role: str) -> str:
        return f"rg{os.getpid() % 100_000}x{ROLES.index(role)}"

    def address(self, role: str) -> str:
        return f"10.214.{self.number}.{10 + ROLES.index(role)}"

    def enter(self, role: str) -> list[str]:
        """What stands before a command that runs on that host."""
        entry = ["ip", "netns", "exec", self.name(role), "unshare", "--uts", "sh", "-c"]
        return [*entry, 'hostname "$0" && exec "$@"', role]

    def make(self) -> None:
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"10.214.{self.number}.1/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for role in ROLES:
            name, device, inner = self.name(role), self.device(role), f"{self.device(role)}i"
            ip("netns", "add", name)
            ip("link", "add", device, "type", "veth", "peer", "name", inner, "netns", name)
            ip("link", "set", device, "master", self.bridge, "up")
            ip("-n", name, "addr", "add", f"{self.address(role)}/24", "dev", inner)
            ip("-n", name, "link", "set", inner, "up")
            ip("-n", name, "link", "set", "lo", "up")

    def cut(self, role: str, state: str) -> None:
        """down: nothing reaches the host, and nobody is told; up: it goes on."""
        ip("link", "set", self.device(role), state)

    def remove(self) -> None:
        for role in ROLES:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "del", self.name(role))
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "del", self.bridge)


class Hosts:
    """The programs on them."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder, self.network, self.watcher = folder, network, Watcher()
        self.account = server_account(folder)
        self.secret = secrets.token_hex(32)

    def environment(self, role: str) -> dict[str, str]:
        address = self.network.address
        var = self.folder / f"var-{role}"
        var.mkdir(exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAGD_", "DATABASE"))}
        return inherited | {
            "RAGD_VAR": str(var), "RAGD_LOG_LEVEL": "WARNING", "RAGD_SAMPLE": "off", "RAGD_SECRET_KEY": self.secret,
            "RAGD_JOB_LEASE_S": str(LEASE_S), "RAGD_HOST": address(role), "PORT": str(PORTS.get(role, 8000)),
            "RAGD_ALLOWED_HOSTS": f"{address('web1')},{address('web2')}", "PYTHONPATH": str(ROOT),
            "DATABASE_URL": f"postgresql://ragd@{address('coordinator')}:5432/ragd",
            "CELERY_BROKER_URL": f"redis://{address('broker')}:6379/0",
        }  # fmt: skip

    def start(self, role: str, command: list[str], environment: dict[str, str], *, bare: bool = False) -> None:
        """bare: under the account of the database."""
        prefix = self.network.enter(role)
        if bare and self.account.user is not None:
            who = [f"--reuid={self.account.user}", f"--regid={self.account.group}", "--clear-groups"]
            prefix = [*prefix, "setpriv", *who]
        folder = Path("/") if bare else ROOT
        service = Service(role, command, environment, folder, self.folder / f"{role}.log", prefix=prefix)
        self.watcher.add(service).start()

    def start_databases(self) -> None:
        nodes.build_engine()
        for role in ("coordinator", "node1", "node2"):
            home = self.folder / role
            home.mkdir()
            self.account.own(home)
            data = home / "data"
            arguments = ["-D", str(data), "-U", "ragd", "-A", "trust", "-E", "UTF8", "--locale=C"]
            done = run_program([str(nodes.BINARIES / "initdb"), *arguments], self.account)
            assert done.returncode == 0, done.stdout
            with (data / "postgresql.conf").open("a") as file:
                file.write(nodes.CONFIGURATION)
            with (data / "pg_hba.conf").open("a") as file:
                file.write(f"host all all 10.214.{self.network.number}.0/24 trust\n")
            command = [
                str(nodes.BINARIES / "postgres"),
                "-D",
                str(data),
                "-p",
                "5432",
                "-h",
                self.network.address(role),
            ]
            self.start(role, command, PLAIN, bare=True)
        for role in ("node1", "node2", "coordinator"):
            wait_for(lambda role=role: self.answers(role), role)  # type: ignore[misc]
            self.sql(role, "CREATE DATABASE ragd", "postgres")
            self.sql(role, "CREATE EXTENSION citus")
            self.sql(role, "CREATE EXTENSION vector")
        self.sql("coordinator", f"SELECT citus_set_coordinator_host('{self.network.address('coordinator')}', 5432)")
        for role in ("node1", "node2"):
            self.sql("coordinator", f"SELECT citus_add_node('{self.network.address(role)}', 5432)")

    def answers(self, role: str) -> bool:
        try:
            self.sql(role, "SELECT 1", "postgres")
        except psycopg.OperationalError:
            return False
        return True

    def sql(self, role: str, statement: str, database: str = "ragd") -> list[tuple[Any, ...]]:
        url = f"postgresql://ragd@{self.network.address(role)}:5432/{database}"
        with psycopg.connect(url, autocommit=True, connect_timeout=3) as connection:
            cursor = connection.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def manage(self, role: str, *arguments: str) -> str:
        command = [*self.network.enter(role), sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment(role), capture_output=True, text=True, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def start_all(self) -> tuple[Server, Server]:
        self.start_databases()
        broker = self.folder / "redis"
        broker.mkdir()
        self.start("broker", redis_command(6379, broker, [self.network.address("broker")]), PLAIN)
        self.manage("web1", "-m", "ragd_site.prepare", "needed")
        key = json.loads(self.manage("web1", "manage.py", "ragd", "create-key", "--label", "hosts", "--json"))
        for role in ("web1", "web2"):
            self.start(role, [sys.executable, *WEB], self.environment(role) | {"RAGD_PROCESS": "web"})
        for role in ("worker1", "worker2"):
            self.start(role, [sys.executable, *WORKER], self.environment(role) | {"RAGD_PROCESS": "worker"})
        secret = str(key.get("secret") or key["secret_once"])
        first, second = (
            Server(f"http://{self.network.address(role)}:8000", secret, self.folder, 0) for role in ("web1", "web2")
        )
        for server in (first, second):
            wait_for(lambda server=server: is_well(server), server.url)  # type: ignore[misc]
        wait_for(lambda: self.sql("coordinator", "SELECT count(*) FROM worker_heartbeats")[0][0] >= 2, "two workers")
        return first, second


def is_well(server: Server) -> bool:
    try:
        server.call("GET", "/v1/health")
    except (OSError, RuntimeError):
        return False
    return True


def wait_for(is_done: Any, what: str, patience_s: float = START_S) -> float:
    """Seconds that it took. Raises TimeoutError."""
    began = time.monotonic()
    while not is_done():
        if time.monotonic() - began > patience_s:
            raise TimeoutError(f"no {what} in {patience_s:.0f} s")
        time.sleep(0.2)
    return time.monotonic() - began


def documents(first: int, count: int) -> list[tuple[str, bytes]]:
    text = "# The otter of number {n}\n\nThe otter of number {n} sleeps near {n} trees. It eats fish in river {n}.\n"
    return [(f"d{n}.md", (text.format(n=n) * 20).encode()) for n in range(first, first + count)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=40)
    count = parser.parse_args().documents
    if not may_make_hosts() or (why := nodes.missing()):
        sys.exit("network namespaces need root, ip and unshare" if not may_make_hosts() else why)
    network = Network()
    with tempfile.TemporaryDirectory(prefix="ragd-hosts-") as scratch, contextlib.ExitStack() as stack:
        folder = Path(scratch)
        folder.chmod(0o755)
        stack.callback(network.remove)
        network.make()
        hosts = Hosts(folder, network)
        stack.callback(hosts.watcher.stop)
        began = time.monotonic()
        first, second = hosts.start_all()
        print(f"{len(ROLES)} hosts are up after {time.monotonic() - began:.0f} s", flush=True)
        problems = measure(hosts, first, second, count)
    for problem in problems:
        print(f"    {problem}")
    print(f"lost, doubled, left over or wrong: {len(problems)}, target 0")
    sys.exit(bool(problems))


def measure(hosts: Hosts, first: Server, second: Server, count: int) -> list[str]:
    first.call("POST", "/v1/collections", {"name": COLLECTION, "placement": "spread"})

    def left() -> int:
        return int(
            hosts.sql("coordinator", "SELECT count(*) FROM ingest_jobs WHERE state IN ('queued', 'running')")[0][0]
        )

    def upload(number: int) -> None:
        for start in range(number, number + count, 10):
            first.upload(COLLECTION, documents(start, min(10, number + count - start)))

    upload(0)
    took = wait_for(lambda: left() == 0, "end of the reading", READ_S)
    readers = Counter(
        host
        for (host,) in hosts.sql(
            "coordinator", "SELECT split_part(worker, ':', 1) FROM ingest_jobs WHERE kind = 'file'"
        )
    )
    print(f"{count} documents read in {took:.1f} s after the upload, by {dict(readers)}", flush=True)
    found = second.call("POST", f"/v1/collections/{COLLECTION}/search", {"query": QUESTION, "k": 3})["results"]
    answer = second.call("POST", f"/v1/collections/{COLLECTION}/ask", {"query": QUESTION})
    problems = (
        [] if found and found[0]["doc_id"] == "d3.md" else [f"the search found {[each['doc_id'] for each in found]}"]
    )
    problems += [] if answer["citations"] else ["the answer cites nothing"]
    print(f"found through the other web server: {found[0]['doc_id']}; answer: {answer['answer'][:60]}", flush=True)

    hosts.network.cut("worker2", "down")
    cut = time.monotonic()
    upload(count)
    took = wait_for(lambda: left() == 0, "end of the reading without worker2", READ_S)
    since = time.monotonic() - cut
    print(f"worker2 cut off: {count} more read {since:.1f} s after the cut, {took:.1f} s after the upload", flush=True)
    hosts.network.cut("worker2", "up")
    time.sleep(2 * LEASE_S)
    back = first.upload(COLLECTION, documents(2 * count, 2))
    wait_for(lambda: left() == 0, "end of the reading after the return", READ_S)
    return problems + verify(hosts, 2 * count + len(back))


def verify(hosts: Hosts, total: int) -> list[str]:
    """What is not as it should be: each document once, whole, and no job that failed."""
    problems = []
    stored = hosts.sql("coordinator", "SELECT count(*), count(DISTINCT doc_id) FROM documents")[0]
    if stored != (total, total):
        problems.append(f"{stored[0]} documents with {stored[1]} names, not {total}")
    states = dict(hosts.sql("coordinator", "SELECT state, count(*) FROM ingest_jobs WHERE kind = 'file' GROUP BY 1"))
    if states != {"succeeded": total}:
        problems.append(f"jobs: {states}, not {total} that succeeded")
    [(pk, number)] = hosts.sql("coordinator", "SELECT id, generation FROM collections")
    rows = hosts.sql(
        "coordinator", f"SELECT doc_id, count(*), count(DISTINCT chunk_index) FROM chunks_c{pk}_g{number} GROUP BY 1"
    )
    problems += [f"{name}: {chunks} chunks, {places} places" for name, chunks, places in rows if chunks != places]
    if len(rows) != total:
        problems.append(f"chunks of {len(rows)} documents, not of {total}")
    try:
        hosts.manage("web2", "manage.py", "ragd", "check", COLLECTION)
    except AssertionError as error:
        problems.append(f"check: {error}")
    return problems


if __name__ == "__main__":
    main()
