"""The embedded PostgreSQL under bad treatment. Every test has a cluster of its own."""

from __future__ import annotations

import json
import multiprocessing
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import psycopg
import pytest

from ragd_site import embedded
from ragd_site.runtime import programs
from ragd_site.runtime.programs import EmbeddedError, server_account

REPOSITORY = Path(__file__).resolve().parents[2]
START = """
import sys, pathlib
from ragd_site import embedded
print(embedded.ensure_running(pathlib.Path(sys.argv[1]), fsync=False).url)
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the launcher is tested on Linux")


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that the server's user can enter; its cluster is stopped afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="ragd-embedded-"))
    folder.chmod(0o755)
    yield folder
    embedded.stop(folder)
    shutil.rmtree(folder)


@pytest.fixture
def empty_var() -> Iterator[Path]:
    """An empty RAGD_VAR."""
    with scratch() as folder:
        yield folder


@pytest.fixture(scope="module")
def stopped_var() -> Iterator[Path]:
    """A RAGD_VAR with a cluster that was made and stopped."""
    with scratch() as folder:
        embedded.ensure_running(folder, fsync=False)
        embedded.stop(folder)
        yield folder


@pytest.fixture
def var(empty_var: Path, stopped_var: Path) -> Path:
    """A RAGD_VAR with a cluster that does not run. Copying one takes less time than initdb."""
    subprocess.run(["cp", "-a", f"{stopped_var}/.", empty_var], check=True)
    return empty_var


def query(cluster: embedded.Cluster, statement: str) -> object:
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()  # type: ignore[arg-type]
    return row[0] if row else None


def execute(cluster: embedded.Cluster, statement: str) -> None:
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[arg-type]


def kill_postmaster(cluster: embedded.Cluster) -> int:
    pid = embedded.postmaster_pid(cluster.data)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while embedded.read_command(pid):
        time.sleep(0.01)
    return pid


def start_elsewhere(var: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Start the cluster from another process."""
    return subprocess.run(
        [sys.executable, "-c", START, str(var)],
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_first_start_makes_a_cluster_that_needs_a_password_and_ignores_the_host(empty_var: Path) -> None:
    cluster = embedded.ensure_running(empty_var, fsync=False)
    assert query(cluster, "SELECT current_setting('server_version_num')::int / 10000") == 18
    assert query(cluster, "SHOW listen_addresses") == "127.0.0.1"
    assert query(cluster, "SHOW unix_socket_directories") == ""
    assert query(cluster, "SHOW wal_level") == "replica"
    assert (
        query(cluster, "SELECT datlocprovider::text || ' ' || datlocale FROM pg_database WHERE datname = 'ragd'")
        == "b C.UTF-8"
    )
    execute(cluster, "CREATE EXTENSION vector")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(cluster.url.replace(cluster.password, "guess"))
    assert stat.S_IMODE((empty_var / "postgres.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((empty_var / "postgres").stat().st_mode) == 0o700


def test_second_caller_finds_the_running_server(var: Path) -> None:
    cluster = embedded.ensure_running(var, fsync=False)
    pid = embedded.postmaster_pid(cluster.data)
    assert start_elsewhere(var).stdout.strip() == cluster.url
    assert embedded.postmaster_pid(cluster.data) == pid


def test_stop_and_start_keep_data_port_and_password(var: Path) -> None:
    cluster = embedded.ensure_running(var, fsync=False)
    execute(cluster, "CREATE TABLE kept AS SELECT 42 AS value")
    assert embedded.stop(var)
    assert not embedded.stop(var)
    assert not embedded.answers(cluster)
    assert embedded.ensure_running(var, fsync=False) == cluster
    assert query(cluster, "SELECT value FROM kept") == 42


def test_its_log_says_that_a_write_failed_and_not_what_was_to_be_written(var: Path) -> None:
    cluster = embedded.ensure_running(var, fsync=False)
    execute(cluster, "CREATE TABLE kept (name text PRIMARY KEY, number int CHECK (number < 7))")
    execute(cluster, "INSERT INTO kept VALUES ('marked', 1)")
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        for name, number in (("marked", 1), ("marked too", 8)):  # the server would show the key, and the whole row
            with pytest.raises(psycopg.IntegrityError):
                connection.execute("INSERT INTO kept VALUES (%s, %s)", [name, number])
            with pytest.raises(psycopg.IntegrityError):
                psycopg.ClientCursor(connection).execute("INSERT INTO kept VALUES (%s, %s)", [name, number])
    log, deadline = "", time.monotonic() + 30
    while log.count(" ERROR: ") < 4 and time.monotonic() < deadline:  # a process of its own writes it
        log = (cluster.data / "log" / "postgresql.log").read_text()
        time.sleep(0.05)
    assert log.count(" ERROR: ") == 4
    assert "marked" not in log


def test_killed_postmaster_recovers_with_its_data(var: Path) -> None:
    cluster = embedded.ensure_running(var)
    execute(cluster, "CREATE TABLE kept AS SELECT generate_series(1, 10000) AS value")
    kill_postmaster(cluster)
    assert embedded.ensure_running(var) == cluster
    assert query(cluster, "SELECT count(*) FROM kept") == 10000


def test_stale_pid_file_that_names_another_live_process_does_not_fool_it(var: Path) -> None:
    cluster = embedded.ensure_running(var, fsync=False)
    kill_postmaster(cluster)
    account = server_account(var / "postgres")
    identity = {} if account.user is None else {"user": account.user, "group": account.group, "extra_groups": []}
    bystander = subprocess.Popen(["sleep", "60"], cwd="/", **identity)  # type: ignore[call-overload]
    try:
        pid_file = cluster.data / "postmaster.pid"
        lines = pid_file.read_text().split("\n")
        pid_file.write_text("\n".join([str(bystander.pid), *lines[1:]]))
        assert embedded.postmaster_pid(cluster.data) is None
        assert embedded.ensure_running(var, fsync=False) == cluster
        assert bystander.poll() is None
        assert query(cluster, "SELECT 1") == 1
    finally:
        bystander.kill()
        bystander.wait()


def test_port_taken_by_a_stranger_is_left_to_them(var: Path) -> None:
    cluster = embedded.ensure_running(var, fsync=False)
    embedded.stop(var)
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind((embedded.HOST, cluster.port))
        stranger.listen()
        moved = embedded.ensure_running(var, fsync=False)
    assert moved.port != cluster.port
    assert (moved.data, moved.password) == (cluster.data, cluster.password)
    assert json.loads((var / "postgres.json").read_text())["port"] == moved.port
    assert query(moved, "SELECT 1") == 1


@pytest.mark.parametrize("locale", ["C", "de_DE.UTF-8", "tr_TR.ISO-8859-9", "nonsense"])
def test_locale_of_the_starter_changes_nothing(empty_var: Path, locale: str) -> None:
    result = start_elsewhere(empty_var, LC_ALL=locale, LANG=locale, PGTZ="Asia/Tokyo", PGDATA="/nowhere", PGPORT="1")
    assert result.returncode == 0, result.stderr
    cluster = embedded.read_cluster(empty_var)
    assert cluster is not None
    assert query(cluster, "SELECT lower('ÄÖÜ ΩI')") == "äöü ωi"
    assert query(cluster, "SELECT to_tsvector('english', 'Überläufe ΩMEGA')::text") == "'überläuf':1 'ωmega':2"
    assert query(cluster, "SHOW timezone") == "UTC"


def test_many_simultaneous_starters_get_one_server(empty_var: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: start_elsewhere(empty_var), range(4)))
    assert [result.returncode for result in results] == [0] * 4, results
    assert len({result.stdout for result in results}) == 1


def test_interrupted_initdb_is_begun_anew(empty_var: Path) -> None:
    (empty_var / "postgres" / "draft" / "base").mkdir(parents=True)
    (empty_var / "postgres" / "draft" / "PG_VERSION").write_text("18\n")
    assert query(embedded.ensure_running(empty_var, fsync=False), "SELECT 1") == 1


def test_lost_password_file_is_told_and_nothing_is_overwritten(var: Path) -> None:
    cluster = embedded.ensure_running(var, fsync=False)
    kept = (var / "postgres.json").read_text()
    (var / "postgres.json").unlink()
    with pytest.raises(EmbeddedError) as caught:
        embedded.ensure_running(var)
    assert str(caught.value) == (
        f"{cluster.data} holds a cluster, but {var}/postgres.json with its password is gone. "
        f"Restore that file, or move {cluster.data} away to start over."
    )
    (var / "postgres.json").write_text(kept)
    assert query(cluster, "SELECT 1") == 1


def test_files_of_another_version_are_refused(var: Path) -> None:
    cluster = embedded.ensure_running(var, fsync=False)
    embedded.stop(var)
    (cluster.data / "PG_VERSION").write_text("16\n")
    with pytest.raises(EmbeddedError) as caught:
        embedded.ensure_running(var)
    assert str(caught.value) == (
        f"{cluster.data} was made by PostgreSQL 16; the embedded one is 18. "
        "Move the data with pg_dump, or set RAGD_VAR to a new folder."
    )


def test_start_that_fails_shows_the_end_of_the_log(var: Path) -> None:
    cluster = embedded.ensure_running(var, fsync=False)
    embedded.stop(var)
    with (cluster.data / "postgresql.auto.conf").open("a") as file:
        file.write("shared_buffers = 'many'\n")
    with pytest.raises(EmbeddedError, match='invalid value for parameter "shared_buffers": "many"'):
        embedded.ensure_running(var)


def test_alter_system_wins_over_the_tuning(var: Path) -> None:
    cluster = embedded.ensure_running(var, fsync=False)
    execute(cluster, "ALTER SYSTEM SET max_connections = 60")
    embedded.stop(var)
    assert query(embedded.ensure_running(var, fsync=False), "SHOW max_connections") == "60"


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to change users")


@needs_root
def test_root_starts_it_under_an_account_that_no_other_service_has(var: Path) -> None:
    cluster = embedded.ensure_running(var, fsync=False)
    pid = embedded.postmaster_pid(cluster.data)
    assert Path(f"/proc/{pid}").stat().st_uid == pwd.getpwnam("ragd").pw_uid
    groups = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Groups:"))
    assert groups.split() == ["Groups:"]


@needs_root
def test_folder_that_nobody_may_enter_keeps_its_mode(empty_var: Path) -> None:
    closed = empty_var / "closed"
    closed.mkdir(mode=0o700)
    home = None
    try:
        result = start_elsewhere(closed / "var")
        assert result.returncode == 0, result.stderr
        home = (closed / "var" / "postgres").resolve()
        assert home.parent == Path("/var/lib/ragd")
        assert f"its data goes to {home}" in result.stderr
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
        cluster = embedded.read_cluster(closed / "var")
        assert cluster is not None
        assert query(cluster, "SELECT 1") == 1
    finally:
        embedded.stop(closed / "var")
        if home is not None:
            shutil.rmtree(home)


def test_the_first_connection_starts_it(empty_var: Path) -> None:
    """Also where its port was taken meanwhile: Django and the queue follow."""
    statement = (
        "from django.conf import settings; from django.db import connection; connection.ensure_connection();"
        "print(settings.DATABASE_URL, settings.CELERY_BROKER_TRANSPORT_OPTIONS['conn_string'])"
    )
    for _ in range(2):
        with socket.socket() as stranger:
            if cluster := embedded.read_cluster(empty_var):
                embedded.stop(empty_var)
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                stranger.bind((embedded.HOST, cluster.port))
                stranger.listen()
            shell = subprocess.run(
                [sys.executable, "manage.py", "shell", "-v0", "-c", statement],
                cwd=REPOSITORY,
                env={**os.environ, "RAGD_VAR": str(empty_var), "DATABASE_URL": ""},
                capture_output=True,
                text=True,
                check=True,
            )
        cluster = embedded.read_cluster(empty_var)
        assert cluster is not None and shell.stdout.split() == [cluster.url] * 2


@needs_root
def test_binaries_that_nobody_may_run_are_copied(empty_var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = programs.find_wheel_binaries()
    closed = empty_var / "site-packages"
    closed.mkdir(mode=0o700)
    programs.copy_wheel(original, closed / "wheel")
    moved = (closed / "wheel").joinpath(*original.parts[-3:])
    monkeypatch.setattr(programs, "find_wheel_binaries", lambda: moved)
    cluster = embedded.ensure_running(empty_var, fsync=False)
    pid = embedded.postmaster_pid(cluster.data)
    assert Path(f"/proc/{pid}/exe").readlink() == (empty_var / "postgres" / "wheel").joinpath(
        *original.parts[-3:], "postgres"
    )
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def start_as(user: int, var: Path, results: SimpleQueue[str]) -> None:
    """Become that user for good and start the cluster; tells its URL or the error."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    try:
        results.put(embedded.ensure_running(var, fsync=False).url)
    except EmbeddedError as error:
        results.put(str(error))


@needs_root
def test_ordinary_user_starts_it_and_others_are_told(empty_var: Path) -> None:
    """Root plays them by a fork, since Python itself may lie where they cannot run it."""
    owner, other = pwd.getpwnam("daemon").pw_uid, pwd.getpwnam("bin").pw_uid
    own = empty_var / "own"
    own.mkdir()
    os.chown(own, owner, -1)
    fork = multiprocessing.get_context("fork")
    results = fork.SimpleQueue()
    try:
        for user in (owner, other):
            process = fork.Process(target=start_as, args=(user, own, results))
            process.start()
            process.join(60)
        cluster = embedded.read_cluster(own)
        assert cluster is not None
        assert results.get() == cluster.url
        pid = embedded.postmaster_pid(cluster.data)
        assert Path(f"/proc/{pid}").stat().st_uid == owner
        assert results.get() == (
            f"{own}/postgres.json belongs to another user. "
            f"Run as the user that made {own}, or set RAGD_VAR to a folder of your own."
        )
    finally:
        embedded.stop(own)
