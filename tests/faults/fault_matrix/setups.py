"""What is put under fire: the embedded server of `make run`, or every part as a program of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from ragd_site import embedded
from tests.faults.fault_matrix.model import DIMS, MODEL, Model
from tests.faults.fault_matrix.services import Service, Watcher, small_disk
from tests.server import ROOT, Server, free_port, wait_for

START_S = 120.0
PATIENCE_S = 180.0
DISK_MB = 600
COLLECTION = "kept"
POLICY = {"kind": "structure", "target_tokens": 40, "overlap_tokens": 5, "max_chars": 400}
MACHINE = Path(__file__).with_name("machine.c")


@dataclass(frozen=True)
class Needs:
    """What a fault asks of its set-up beyond the usual."""

    other_host: bool = False  # a second worker on a host of its own
    small_disk: bool = False  # the database on a disk of DISK_MB
    machine: bool = False  # programs whose clock can be set and whose disk can be slowed
    citus: bool = False  # the database is a Citus cluster


class Setup(ABC):
    """A running server with a collection, an API key and a model endpoint. As a context: started, and stopped again.

    addresses: of its web servers. clocks, disks: role -> the file that says by how many seconds its clock is off, and
    how many milliseconds its disk takes longer; disk: the small one.
    code: the folder of the version that runs; both_for_s: how long a deploy lets two run beside each other.
    """

    name = ""

    def __init__(self, needs: Needs, seed: int, **options: str) -> None:
        self.needs, self.seed, self.options = needs, seed, options
        self.watcher = Watcher()
        self.stack = ExitStack()
        self.addresses: list[str] = []
        self.clocks: dict[str, Path] = {}
        self.disks: dict[str, Path] = {}
        self.key = ""
        self.database_url = ""
        self.code, self.both_for_s = ROOT, 0.0
        self.disk = Path()

    def __enter__(self) -> Setup:
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="ragd-faults-"))
            self.stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.folder.chmod(0o755)
            self.var = self.folder / "var"
            self.var.mkdir()
            self.model = Model(self.seed, "0.0.0.0" if self.needs.other_host else "127.0.0.1").start()
            self.stack.callback(self.model.stop)
            self.stack.callback(self.watcher.stop)
            self.start()
            self._make_collection()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def pids(self, role: str) -> list[int]:
        """Of "web", "worker", "database" or "broker", the one that the others come from first."""

    @abstractmethod
    def restart_database(self) -> None:
        """As an administrator does it, in order."""

    @abstractmethod
    def empty_broker(self) -> None: ...

    @abstractmethod
    def deploy(self, code: Path) -> None:
        """Go over to the program in that folder, under load."""

    def _make_collection(self) -> None:
        server = Server(self.addresses[0], "", self.var, 0)
        self.key = server.call("POST", "/v1/api-keys", {"label": "faults"})["secret_once"]
        placed = {"placement": "spread"} if self.needs.citus else {}
        body = {"name": COLLECTION, "chunk_policy": POLICY, "hybrid_enabled": True} | placed
        Server(self.addresses[0], self.key, self.var, 0).call("POST", "/v1/collections", body)

    def variables(self, model_host: str = "127.0.0.1") -> dict[str, str]:
        """The environment of every process of ragd, before the roles add theirs."""
        left_out = {"DATABASE_URL", "CELERY_BROKER_URL", "RAGD_PROCESS"}
        inherited = {name: value for name, value in os.environ.items() if name not in left_out}
        model = f"http://{model_host}:{self.model.port}/v1"
        return inherited | {
            "RAGD_VAR": str(self.var),
            "RAGD_LOG_LEVEL": "WARNING",
            "RAGD_SAMPLE": "off",
            "EMBED_BASE_URL": model,
            "EMBED_API_KEY": str(self.model.api_key),
            "RAGD_EMBED_MODEL": MODEL,
            "RAGD_EMBED_DIMS": str(DIMS),
            "RAGD_EMBED_BATCH_SIZE": "4",
            "LLM_BASE_URL": model,
            "OPENAI_API_KEY": str(self.model.api_key),
        }

    def machine_of(self, role: str) -> dict[str, str]:
        """What lets a program of this role read the error of its clock and the delay of its disk from files."""
        if not self.needs.machine:
            return {}
        variables = {}
        for kind, files in (("clock", self.clocks), ("disk", self.disks)):
            files[role] = self.folder / f"{kind}-{role}"
            files[role].write_text("0\n")
            variables[f"RAGD_{kind.upper()}_FILE"] = str(files[role])
        shim = self.folder / "machine.so"
        if not shim.exists():
            compile_it = ["cc", "-shared", "-fPIC", "-O2", "-o", str(shim), str(MACHINE), "-ldl"]
            subprocess.run(compile_it, check=True)
        return {"LD_PRELOAD": str(shim)} | variables

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def tails(self) -> str:
        """The end of each log."""
        logs = self.folder.glob("*.log")
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-4000:]}" for path in logs)

    def wait_for_web(self, address: str) -> None:
        def answers() -> bool:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/v1/health", timeout=5):
                return True
            return False

        wait_for(answers, f"web server at {address}", START_S, self.tails)

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows, also while the database is away for a while."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with psycopg.connect(self.database_url, autocommit=True, connect_timeout=5) as connection:
                    connection.execute("SET statement_timeout = '20s'")
                    return connection.execute(sql.encode(), values).fetchall()
            except psycopg.Error:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.3)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Python with these arguments, as a command of this server."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=self.variables(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )


class Embedded(Setup):
    """`make run` alone: its supervisor, with the embedded PostgreSQL and the queue in it."""

    name = "embedded"

    def start(self) -> None:
        if self.needs.small_disk:
            self.stack.enter_context(small_disk(self.var, DISK_MB))
            self.disk = self.var
        port = free_port()
        environment = self.variables() | {"PORT": str(port)} | self.machine_of("ragd")
        command = [sys.executable, "-m", "ragd_site.run"]
        self.service = self.watcher.add(Service("ragd", command, environment, ROOT, self.log("ragd")))
        self.stack.callback(self._stop)
        self.addresses = [f"http://127.0.0.1:{port}"]
        self._run()

    def _run(self) -> None:
        self.service.start()
        self.wait_for_web(self.addresses[0])
        cluster = embedded.read_cluster(self.var)
        assert cluster is not None
        self.database_url = cluster.url

    def _stop(self) -> None:
        self.service.stop(60)
        embedded.stop(self.var)

    def pids(self, role: str) -> list[int]:
        cluster = embedded.read_cluster(self.var)
        if role in ("database", "broker"):
            pid = embedded.postmaster_pid(cluster.data) if cluster else None
            return [] if pid is None else [pid]
        mark = {"web": "gunicorn", "worker": "celery"}[role]
        return [pid for pid, line in self.service.family().items() if mark in line]

    def restart_database(self) -> None:
        cluster = embedded.read_cluster(self.var)
        assert cluster is not None
        embedded.run_on(cluster, "pg_ctl", "-m", "fast", "-w", "-t", "60", "stop")  # its supervisor starts it again

    def empty_broker(self) -> None:
        self.ask("SELECT pgmq.purge_queue(queue_name) FROM pgmq.list_queues()")

    def deploy(self, code: Path) -> None:
        """Stop this version, start the other one on the same folder."""
        self.service.stop(60)
        self.service.folder = self.code = code
        self._run()
