"""Redis and RabbitMQ on loopback: how they are started, and what stays of them is ended."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ragd_site.embedded import free_port

RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
PATIENCE_S = 90


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def redis_command(
    port: int, folder: Path, addresses: Sequence[str] = ("127.0.0.1",), *, keeps: bool = False
) -> list[str]:
    """keeps: what it holds survives its end, as in compose.yaml."""
    command = ["redis-server", "--port", str(port), "--dir", str(folder), "--save", "", "--bind", *addresses]
    return [*command, "--protected-mode", "no", "--appendonly", "yes" if keeps else "no"]


def rabbitmq_variables(port: int, folder: Path) -> dict[str, str]:
    """The environment of a RabbitMQ on that port that keeps everything in the folder."""
    (folder / "plugins").write_text("[].\n")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"ragd{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
    }


def stop_epmd(variables: Mapping[str, str]) -> None:
    """Erlang's port mapper is a daemon of its own, which may be ended when it has seen that its last node is gone."""
    deadline = time.monotonic() + PATIENCE_S
    while accepts(int(variables["ERL_EPMD_PORT"])):
        done = subprocess.run(["epmd", "-kill"], env=dict(variables), capture_output=True, check=False)
        if done.stdout == b"Killed\n":
            return
        assert time.monotonic() < deadline, f"epmd did not end in {PATIENCE_S} s"
        time.sleep(0.1)
