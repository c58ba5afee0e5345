"""`make run`: everything from an empty folder to a page that answers, and back on Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from ragd_site import embedded
from ragd_site.environment import REPOSITORY, Environment, SettingError, local_address, read_environment
from ragd_site.runtime import accounts
from ragd_site.runtime.processes import Child, hold_back
from ragd_site.runtime.programs import EmbeddedError

READY_TIMEOUT_S = 120.0
PORT_PATIENCE_S = 15.0
DATABASE_CHECK_S = 5.0
PREPARATION = [sys.executable, "-m", "ragd_site.prepare"]


class StartError(Exception):
    """The server cannot start; the message says why and what to do."""


def main() -> None:
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopping.set())
    try:
        environment = read_environment()
        with only_one(environment.RAGD_VAR):
            leave_root(environment)
            accounts.close_folder(environment.RAGD_VAR)
            proxies = environment.RAGD_TRUSTED_PROXIES
            for sentence in accounts.start_warnings(
                environment.RAGD_HOST, environment.RAGD_CSRF_TRUSTED_ORIGINS, proxies
            ):
                say(sentence)
            serve(environment, stopping)
    except (StartError, SettingError, EmbeddedError) as error:
        sys.exit(f"ragd does not start.\n{error}")


def serve(environment: Environment, stopping: threading.Event) -> None:
    """Prepare, start the children, watch them until `stopping`, stop everything in order."""
    began = time.monotonic()
    check_archiving(environment)
    wait_for_port(environment.RAGD_HOST, environment.PORT)
    variables = child_variables(environment)
    children = make_children(environment, variables)
    sample = Child("loading of the sample", [*PREPARATION, "sample"], variables)
    try:
        say("Web server: starting")
        unprepared = hold_back(environment.RAGD_VAR)
        children[0].start()  # it loads its modules meanwhile; the worker would take its time
        if not environment.DATABASE_URL:
            start_database(environment.RAGD_VAR)
        prepare(variables, stopping)
        if stopping.is_set():
            return
        unprepared.close()
        if wait_until_ready(environment, children[:1], stopping):
            announce(environment, time.monotonic() - began)
            children[1].start()
            if environment.RAGD_SAMPLE:
                sample.start()
        watch(environment, children, stopping)
    finally:
        sample.ask(signal.SIGTERM)  # the next start goes on with it
        stop_everything(environment, children)
        sample.stop((signal.SIGTERM, 5.0))


# Before the children


def check_archiving(environment: Environment) -> None:
    """Refuse a start whose archive of the write-ahead log would have no place, no key or no log. Raises StartError."""
    if not environment.RAGD_BACKUP_WAL_S:
        return
    if not environment.RAGD_BACKUP_TO or not environment.RAGD_BACKUP_KEY.get_secret_value():
        raise StartError("RAGD_BACKUP_WAL_S needs RAGD_BACKUP_TO and RAGD_BACKUP_KEY: set both, or unset it.")
    if environment.DATABASE_URL:
        raise StartError(
            "RAGD_BACKUP_WAL_S is for the embedded PostgreSQL, and DATABASE_URL names another: unset one of them, and "
            "archive the log of that with its own tools."
        )


@contextlib.contextmanager
def only_one(var: Path) -> Iterator[None]:
    """One supervisor per RAGD_VAR; the kernel gives the lock back even after kill -9."""
    embedded.make_private_folder(var)
    with open(var / "run.lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StartError(
                f"ragd already runs with RAGD_VAR={var}. Stop it, or set RAGD_VAR to another folder."
            ) from None
        yield


def leave_root(environment: Environment) -> None:
    """Go on as the account `ragd` where root started; say why not where that cannot be, or is not wanted."""
    if os.geteuid() != 0 or environment.RAGD_RUN_AS_ROOT:
        return
    try:
        found = accounts.choose_account(environment.RAGD_VAR)
    except accounts.AccountError as error:
        say(f"ragd cannot change to an account of its own: {error}.")
        return
    if not environment.DATABASE_URL:
        embedded.stop(environment.RAGD_VAR)  # it may run under another account
    accounts.give_up_root(found, environment.RAGD_VAR)
    say(f"ragd was started by root and goes on as {found.pw_name}.")


def wait_for_port(host: str, port: int) -> None:
    """Raises StartError when the port stays busy; a web server that is just ending gets a moment."""
    deadline = time.monotonic() + PORT_PATIENCE_S
    while True:
        problem = try_port(host, port)
        if problem is None:
            return
        if problem != errno.EADDRINUSE:
            raise StartError(
                f"RAGD_HOST={host} PORT={port} cannot be listened on: {os.strerror(problem)}. Set another."
            )
        if answers_http(host, port) or time.monotonic() > deadline:
            raise StartError(
                f"Port {port} is already used by another program. Stop it, or choose another port: PORT=8001 make run"
            )
        time.sleep(0.3)


def try_port(host: str, port: int) -> int | None:
    """None when one may listen there, else the error number."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            return error.errno
    return None


def answers_http(host: str, port: int) -> bool:
    """Whether something alive serves HTTP there."""
    try:
        with urllib.request.urlopen(local_address(host, port), timeout=1):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def start_database(var: Path) -> None:
    """The embedded PostgreSQL; says so where that takes a while."""
    began = time.monotonic()
    if embedded.read_cluster(var) is None:
        say("PostgreSQL: making a new cluster")
    embedded.ensure_running(var)
    say(f"PostgreSQL: ready after {time.monotonic() - began:.1f} s")


def prepare(variables: Mapping[str, str], stopping: threading.Event) -> None:
    """Schema, static files, first administrator: in a process of its own, whose memory is free afterwards."""
    preparation = Child("preparation", [*PREPARATION, "needed"], {**variables, "RAGD_PROCESS": "prepare"})
    preparation.start()
    while (status := preparation.poll()) is None:
        if stopping.wait(0.05):
            preparation.stop((signal.SIGTERM, 10.0))
            return
    if status != 0:
        raise StartError("The preparation failed; its message is above.")


# The children


def child_variables(environment: Environment) -> dict[str, str]:
    """The environment of every child: this one's, with RAGD_VAR made absolute and the repository importable."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path, "RAGD_VAR": str(environment.RAGD_VAR)}


def make_children(environment: Environment, variables: Mapping[str, str]) -> list[Child]:
    """The web server and the worker, and what carries the write-ahead log away where that is set; not started."""
    web = [sys.executable, "-m", "gunicorn", "-c", "python:ragd_site.web", "ragd_site.wsgi"]
    worker = [sys.executable, "-m", "celery", "--quiet", "-A", "ragd_site.worker", "worker", "--pool", "prefork"]
    worker += ["--loglevel", environment.RAGD_LOG_LEVEL, "--without-gossip", "--without-mingle", "--without-heartbeat"]
    children = [
        Child("web server", web, {**variables, "RAGD_PROCESS": "web"}),
        Child("worker", worker, {**variables, "RAGD_PROCESS": "worker"}),
    ]
    if environment.RAGD_BACKUP_WAL_S:
        archive = [sys.executable, str(REPOSITORY / "manage.py"), "ragd", "backup", "wal"]
        archive += ["--every", str(environment.RAGD_BACKUP_WAL_S), "--json"]
        children.append(Child("archiving of the write-ahead log", archive, variables))
    return children


def wait_until_ready(environment: Environment, children: list[Child], stopping: threading.Event) -> bool:
    """Whether /v1/health answered 200 before `stopping`. Raises StartError when the web server cannot live."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    address = local_address(environment.RAGD_HOST, environment.PORT) + "v1/health"
    while not stopping.wait(0.1):
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:
            return bool(json.load(answer) == {"status": "ok"})
        restart_dead(children)
        if children[0].deaths >= 3 or time.monotonic() > deadline:
            raise StartError("The web server did not become ready; its messages are above.")
    return False


def watch(environment: Environment, children: list[Child], stopping: threading.Event) -> None:
    """Restart what dies, the embedded PostgreSQL included, until `stopping`."""
    next_look = time.monotonic() + DATABASE_CHECK_S
    while not stopping.wait(0.5):
        restart_dead(children)
        if not environment.DATABASE_URL and time.monotonic() > next_look:
            next_look = time.monotonic() + DATABASE_CHECK_S
            restart_database(environment.RAGD_VAR, children)


def restart_dead(children: list[Child]) -> None:
    for child in children:
        if sentence := child.check():
            say(sentence)


def restart_database(var: Path, children: list[Child]) -> None:
    """A killed PostgreSQL comes back and the children connect again; when its port changed they are restarted."""
    cluster = embedded.read_cluster(var)
    if cluster is None or embedded.postmaster_pid(cluster.data) is not None:
        return
    say("The embedded PostgreSQL is gone; it starts again.")
    try:
        restarted = embedded.ensure_running(var)
    except EmbeddedError as error:
        say(str(error))
        return
    if restarted.port != cluster.port:
        for child in children:
            child.stop((signal.SIGTERM, 10.0))


def stop_everything(environment: Environment, children: list[Child]) -> None:
    """Web server, worker, then PostgreSQL. A task that is cut off is given again to the next worker."""
    web, worker, *others = children
    if web.process or worker.process:
        say("Stopping.")
    for child in children:
        child.ask(signal.SIGTERM)
    web.stop((signal.SIGTERM, 15.0))
    worker.stop((signal.SIGTERM, 10.0), (signal.SIGQUIT, 5.0))
    for other in others:
        other.stop((signal.SIGTERM, 5.0))
    if not environment.DATABASE_URL:
        with contextlib.suppress(EmbeddedError):
            embedded.stop(environment.RAGD_VAR)


def announce(environment: Environment, took_s: float) -> None:
    """The address and how to log in. The password itself is never printed."""
    stored = environment.RAGD_VAR / "admin_password"
    login = f"the password in {stored}" if stored.exists() else "the password that was chosen for it"
    say(
        f"ragd is ready after {took_s:.1f} s:  {local_address(environment.RAGD_HOST, environment.PORT)}\n"
        f"Log in as {environment.RAGD_ADMIN_USER} with {login}. Ctrl-C stops everything."
    )


def say(sentence: str) -> None:
    print(sentence, flush=True)


if __name__ == "__main__":
    main()
