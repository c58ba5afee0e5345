"""The programs of a set-up: each is started again when it ends, as a container's host does, and stopped at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.server import descendants

FIRST_PAUSE_S, LONGEST_PAUSE_S, STEADY_S = 0.5, 8.0, 20.0
LOOK_EVERY_S = 0.2


@dataclass
class Service:
    """One program. prefix: what stands before its command, such as the entry into a namespace."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    log: Path
    identity: Mapping[str, Any] = field(default_factory=dict)
    prefix: Sequence[str] = ()
    stop_signal: signal.Signals = signal.SIGTERM
    process: subprocess.Popen[bytes] | None = None
    is_wanted: bool = False
    pause_s: float = FIRST_PAUSE_S
    started_at: float = 0.0
    due_at: float = 0.0

    def start(self) -> None:
        self.is_wanted = True
        self._run()

    def _run(self) -> None:
        self.started_at = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *self.command],
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self.identity,
            )

    def look(self) -> None:
        """Start it again when it has ended and its pause, which doubles with each early end, is over."""
        if not self.is_wanted or self.process is None or self.process.poll() is None:
            self.due_at = 0.0
            return
        now = time.monotonic()
        if not self.due_at:
            is_early = now - self.started_at < STEADY_S
            self.pause_s = min(self.pause_s * 2, LONGEST_PAUSE_S) if is_early else FIRST_PAUSE_S
            self.due_at = now + self.pause_s
        elif now >= self.due_at:
            self.due_at = 0.0
            self._run()

    def family(self) -> dict[int, str]:
        """pid -> command line of the program and all that it started."""
        if self.process is None or self.process.poll() is not None:
            return {}
        return descendants(self.process.pid, itself=True)

    def ask(self) -> None:
        """To end."""
        if self.is_wanted and self.process is not None and self.process.poll() is None:
            self.process.send_signal(self.stop_signal)
        self.is_wanted = False

    def stop(self, patience_s: float = 30.0) -> None:
        family = list(self.family())
        self.ask()
        if self.process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class Watcher:
    """Looks after the services of a set-up from a thread of its own."""

    def __init__(self) -> None:
        self.services: list[Service] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="watcher")
        self._thread.start()

    def add(self, service: Service) -> Service:
        self.services.append(service)
        return service

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            for service in list(self.services):
                service.look()

    def stop(self) -> None:
        """Everything: what uses the database and the broker before these."""
        self._ended.set()
        self._thread.join()
        for service in self.services:
            if service.name not in ("database", "broker"):
                service.ask()
        for service in reversed(self.services):
            service.stop()


@dataclass
class Host:
    """Another host: a network namespace with a name of its own, reached over a pair of virtual devices."""

    number: int

    @property
    def name(self) -> str:
        return f"ragd-{os.getpid() % 100_000}-{self.number}"

    @property
    def device(self) -> str:
        return f"rg{os.getpid() % 100_000}n{self.number}"

    @property
    def address(self) -> str:
        """Of this machine, as that host reaches it."""
        return f"10.213.{os.getpid() % 250}.{4 * self.number + 1}"

    @property
    def prefix(self) -> list[str]:
        entry = ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c"]
        return [*entry, 'hostname "$0" && exec "$@"', self.name]

    def make(self) -> None:
        inner, own = f"{self.device}i", f"10.213.{os.getpid() % 250}.{4 * self.number + 2}/30"
        ip("netns", "add", self.name)
        ip("link", "add", self.device, "type", "veth", "peer", "name", inner, "netns", self.name)
        ip("addr", "add", f"{self.address}/30", "dev", self.device)
        ip("link", "set", self.device, "up")
        for command in (("addr", "add", own, "dev", inner), ("link", "set", inner, "up"), ("link", "set", "lo", "up")):
            ip("-n", self.name, *command)

    def set_link(self, state: str) -> None:
        """down: what is on the way is lost, and nobody is told; up: it goes on."""
        ip("-n", self.name, "link", "set", f"{self.device}i", state)

    def remove(self) -> None:
        for command in (("netns", "del", self.name), ("link", "del", self.device)):
            with contextlib.suppress(subprocess.CalledProcessError):
                ip(*command)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def may_make_hosts() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None and shutil.which("unshare") is not None


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """The folder, which must be empty, as a disk of that size."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "ragd", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
