"""The faults. Each is a function that strikes a set-up and returns when its cause is over, with what it found wrong."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import nodes
from tests.faults.fault_matrix.full import Full
from tests.faults.fault_matrix.services import may_make_hosts
from tests.faults.fault_matrix.setups import Needs, Setup
from tests.faults.kills import kill_all
from tests.server import ROOT

BOTH = ("embedded", "full")
AWAY_S = (2.0, 6.0)  # a node that was killed stays away
FULL_DISK_S = (6.0, 12.0)
SLOW_DISK_MS, SLOW_DISK_S = (300, 3000), (8.0, 15.0)
CLOCK_S = (6.0, 12.0)
CLOCK_JUMPS_S = (600, 6 * 3600)
WITH_KILL = 0.5
MODEL_S = (8.0, 15.0)
CUT_S = 75.0  # longer than a lease and the maintenance after it
BOTH_VERSIONS_S = (6.0, 12.0)


@dataclass(frozen=True)
class Fault:
    """strike: (set-up, random) -> what is wrong already. missing: why it cannot be had on this machine, or ""."""

    name: str
    strike: Callable[[Setup, random.Random], list[str]]
    setups: Sequence[str]
    needs: Needs
    missing: Callable[[], str]


FAULTS: dict[str, Fault] = {}
USUAL = Needs()


def fault(
    name: str, *, setups: Sequence[str] = BOTH, needs: Needs = USUAL, missing: Callable[[], str] = str
) -> Callable[[Callable[[Setup, random.Random], list[str] | None]], None]:
    def add(strike: Callable[[Setup, random.Random], list[str] | None]) -> None:
        FAULTS[name] = Fault(name, lambda setup, draw: strike(setup, draw) or [], setups, needs, missing)

    return add


# Kills


@fault("web")
def kill_web(setup: Setup, draw: random.Random) -> None:
    kill_all(setup.pids("web"))


@fault("web-child")
def kill_web_child(setup: Setup, draw: random.Random) -> None:
    kill_all([draw.choice(setup.pids("web")[1:])])


@fault("worker")
def kill_worker(setup: Setup, draw: random.Random) -> None:
    kill_all(setup.pids("worker"))


@fault("worker-child")
def kill_worker_child(setup: Setup, draw: random.Random) -> None:
    kill_all([draw.choice(setup.pids("worker")[1:])])


@fault("database")
def kill_database(setup: Setup, draw: random.Random) -> None:
    kill_all(setup.pids("database"))


@fault("broker", setups=("full",))
def kill_broker(setup: Setup, draw: random.Random) -> None:
    kill_all(setup.pids("broker"))


# The database and the broker


@fault("database-restart")
def restart_database(setup: Setup, draw: random.Random) -> None:
    setup.restart_database()


@fault("broker-emptied")
def empty_broker(setup: Setup, draw: random.Random) -> None:
    setup.empty_broker()


# Models


@fault("model-slow")
def slow_model(setup: Setup, draw: random.Random) -> None:
    setup.model.be("slow", draw.uniform(*MODEL_S))


@fault("model-silent")
def silent_model(setup: Setup, draw: random.Random) -> None:
    setup.model.be("silent", draw.uniform(*MODEL_S))


@fault("model-lying")
def lying_model(setup: Setup, draw: random.Random) -> None:
    setup.model.be("lying", draw.uniform(*MODEL_S))


# A deploy


def no_history() -> str:
    return "" if (ROOT / ".git").exists() else "there is no history to take an earlier version from"


@fault("deploy", missing=no_history)
def deploy(setup: Setup, draw: random.Random) -> None:
    """To the other version and, the next time, back; both run for a while where the set-up can."""
    code = setup.folder / "earlier"
    if not code.exists():
        extract(earlier_version(setup.options.get("earlier", "")), code)
    setup.both_for_s = draw.uniform(*BOTH_VERSIONS_S)
    setup.deploy(ROOT if setup.code == code else code)


def earlier_version(chosen: str) -> str:
    """The commit; where none is chosen, the earliest with the present schema."""
    if chosen:
        return chosen
    schema = ["*/migrations/*", "ragd/schema.sql"]
    return git("log", "-1", "--format=%H", "--", *schema).decode().strip()


def extract(commit: str, folder: Path) -> None:
    folder.mkdir(mode=0o755)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=git("archive", commit), check=True)


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


# Those that need a set-up of their own


def no_mount() -> str:
    return "" if os.geteuid() == 0 else "only root may mount a small disk"


@fault("disk-full", needs=Needs(small_disk=True), missing=no_mount)
def fill_disk(setup: Setup, draw: random.Random) -> None:
    """That of the database, to the last byte, for a while."""
    ballast = setup.disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1_000_000))
        until = time.monotonic() + draw.uniform(*FULL_DISK_S)
        with ballast.open("ab", buffering=0) as file:
            while time.monotonic() < until:  # what the database gives back is taken too
                with contextlib.suppress(OSError):
                    file.write(bytes(4096))
                    continue
                time.sleep(0.1)
    finally:
        ballast.unlink(missing_ok=True)


def no_compiler() -> str:
    return "" if shutil.which("cc") else "clock and disk are changed by machine.c, and there is no C compiler (cc)"


@fault("disk-slow", needs=Needs(machine=True), missing=no_compiler)
def slow_disk(setup: Setup, draw: random.Random) -> None:
    """That of the database: each commit waits for it, and each checkpoint for every file."""
    file = next(setup.disks[role] for role in ("database", "ragd") if role in setup.disks)
    try:
        file.write_text(f"{draw.uniform(*SLOW_DISK_MS):.0f}\n")
        time.sleep(draw.uniform(*SLOW_DISK_S))
    finally:
        file.write_text("0\n")


@fault("clock-jump", needs=Needs(machine=True), missing=no_compiler)
def jump(setup: Setup, draw: random.Random) -> None:
    """Of one program or of all, by minutes or hours to either side; every other time workers are killed meanwhile."""
    roles = draw.choice([list(setup.clocks), [draw.choice(list(setup.clocks))]])
    by_s = draw.choice((-1, 1)) * draw.uniform(*CLOCK_JUMPS_S)
    try:
        for role in roles:
            setup.clocks[role].write_text(f"{by_s:.0f}\n")
        time.sleep(draw.uniform(*CLOCK_S))
        if draw.random() < WITH_KILL:
            kill_all(setup.pids("worker"))
    finally:
        for role in roles:
            setup.clocks[role].write_text("0\n")


def no_hosts() -> str:
    return "" if may_make_hosts() else "only root with ip and unshare may make a network namespace"


@fault("network-cut", setups=("full",), needs=Needs(other_host=True), missing=no_hosts)
def cut_network(setup: Setup, draw: random.Random) -> list[str]:
    """A worker's host is cut off for longer than its leases: what it holds is done elsewhere before it is back."""
    assert isinstance(setup, Full)
    host = setup.hosts[0]
    host.set_link("down")
    try:
        held = setup.ask(
            "SELECT id::text FROM ingest_jobs WHERE state = 'running' AND worker LIKE %s", f"{host.name}:%"
        )
        time.sleep(CUT_S)
        ids = [row[0] for row in held]
        left = setup.ask(
            "SELECT state || ' ' || stage FROM ingest_jobs"
            " WHERE id = ANY(%s::uuid[]) AND state IN ('queued', 'running') AND worker LIKE %s",
            ids,
            f"{host.name}:%",
        )
    finally:
        host.set_link("up")
    return [f"{len(left)} of {len(ids)} jobs waited {CUT_S:.0f} s for the host that was cut off"] * bool(left)


@fault("citus-node", setups=("full",), needs=Needs(citus=True), missing=nodes.missing)
def kill_citus_node(setup: Setup, draw: random.Random) -> None:
    """One of the two nodes that hold the chunks; somebody starts it again after a while."""
    assert isinstance(setup, Full)
    node = draw.choice(setup.cluster.nodes)
    kill_all([int((node.data / "postmaster.pid").read_text().split()[0])])
    time.sleep(draw.uniform(*AWAY_S))
    for _ in range(20):  # its sessions may not have ended yet
        with contextlib.suppress(AssertionError):
            node.start()
            return
        time.sleep(0.5)
    raise TimeoutError(f"the node in {node.home} does not start")
