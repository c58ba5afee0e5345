"""With each broker: a worker that is killed in the middle of its tasks loses none of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings
from pgmq.install import get_embedded_install_sql
from psycopg import sql

from ragd_site.broker import describe_broker
from ragd_site.embedded import free_port
from tests.faults.brokers import RABBITMQ, accepts, rabbitmq_variables, redis_command, stop_epmd
from tests.server import wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
TASKS = 6
FETCHED_S = 0.5  # of the 1.5 s that a task takes
QUEUE_DATABASE = f"ragd_queue_{os.getpid()}"


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a process and all of its children at once, as when a machine dies."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def pgmq() -> Iterator[dict[str, str]]:
    """An empty database with the queue's SQL in it; no CELERY_BROKER_URL is the embedded default."""
    name = sql.Identifier(QUEUE_DATABASE)
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
        url = urlsplit(settings.DATABASE_URL)._replace(path=f"/{QUEUE_DATABASE}").geturl()
        with psycopg.connect(url) as inside:
            inside.execute(get_embedded_install_sql().encode())
        yield {"DATABASE_URL": url, "CELERY_BROKER_URL": ""}
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[dict[str, str]]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    with subprocess.Popen(redis_command(port, tmp_path), stdout=subprocess.DEVNULL, start_new_session=True) as server:
        wait_for(lambda: accepts(port), "the start of Redis")
        yield {"CELERY_BROKER_URL": f"redis://127.0.0.1:{port}/0"}
        kill_group(server)


@pytest.fixture
def rabbitmq(tmp_path: Path) -> Iterator[dict[str, str]]:
    if not RABBITMQ.exists():
        pytest.skip("rabbitmq-server is not installed")
    port = free_port()
    environment = rabbitmq_variables(port, tmp_path)
    with subprocess.Popen(
        [str(RABBITMQ)], env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True
    ) as server:
        wait_for(lambda: accepts(port), "the start of RabbitMQ")
        yield {"CELERY_BROKER_URL": f"amqp://guest:guest@127.0.0.1:{port}//"}
        kill_group(server)
    stop_epmd(environment)


def start_worker(variables: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "celery", "-A", "tests.faults.broker_worker", "worker"]
    options = ["--pool", "prefork", "--concurrency", "2", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    with log.open("ab") as output:
        return subprocess.Popen(
            [*command, *options], cwd=REPOSITORY, env=variables, stdout=output, stderr=output, start_new_session=True
        )


def read_lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.timeout(240)
@pytest.mark.parametrize("broker", ["pgmq", "redis", "rabbitmq"])
def test_killed_worker_loses_no_task(broker: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    variables = {**os.environ, **request.getfixturevalue(broker)}
    record, log = tmp_path / "record", tmp_path / "worker.log"
    send = [sys.executable, "-m", "tests.faults.broker_worker", str(record), str(TASKS)]
    subprocess.run(send, cwd=REPOSITORY, env=variables, check=True)

    worker = start_worker(variables, log)
    try:
        wait_for(lambda: len(read_lines(record)) >= 2, "the begin of two tasks")
        # Celery over Redis loses a message whose worker dies between taking it and noting that it has it. The job's
        # row brings such a task back (test_matrix); here all six were fetched before the kill, two run, four wait.
        time.sleep(FETCHED_S)
        kill_group(worker)
        interrupted = read_lines(record)
        worker = start_worker(variables, log)
        ends = {f"end {number}" for number in range(TASKS)}
        wait_for(lambda: ends <= set(read_lines(record)), f"the end of every task ({log.read_text()})")
    finally:
        kill_group(worker)

    begun = [line for line in interrupted if line.startswith("begin")]
    finished = {line.replace("end", "begin") for line in interrupted if line.startswith("end")}
    cut_off = [line for line in begun if line not in finished]
    assert cut_off, "the worker was to be killed in the middle of a task"
    assert [read_lines(record).count(line) for line in cut_off] == [2] * len(cut_off)


@pytest.mark.timeout(120)
def test_a_worker_sleeps_until_a_message_comes(pgmq: dict[str, str], tmp_path: Path) -> None:
    """It looks once a second for what became visible again, in each of its queues."""
    record, seconds = tmp_path / "record", 4
    variables = os.environ | pgmq
    worker = start_worker(variables, tmp_path / "worker.log")
    try:
        with psycopg.connect(pgmq["DATABASE_URL"], autocommit=True) as connection:
            asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
            wait_for(lambda: connection.execute(asked).fetchone() == (1,), "the worker that listens")
            send = [sys.executable, "-m", "tests.faults.broker_worker", str(record), "1"]
            subprocess.run(send, cwd=REPOSITORY, env=variables, check=True)
            wait_for(lambda: "end 0" in read_lines(record), "the end of the task")
            time.sleep(2)
            counts = []
            for _ in range(2):
                counts.append(connection.execute("SELECT pg_stat_get_db_xact_commit(oid) FROM pg_database"
                              " WHERE datname = current_database()").fetchone()[0])  # fmt: skip
                time.sleep(seconds)
            assert counts[1] - counts[0] < 12 * seconds
    finally:
        kill_group(worker)


@pytest.mark.parametrize(
    ("broker_url", "expected_url", "expected"),
    [
        ("", "pgmq://127.0.0.1:5433/ragd", {"conn_string": "postgresql://me:secret@127.0.0.1:5433/ragd"}),
        (
            "redis://cache:6379/0",
            "redis://cache:6379/0",
            {"unacked_restore_interval": 2, "unacked_mutex_expire": 10, "visibility_timeout": 900},
        ),
        ("amqp://guest@mq//", "amqp://guest@mq//", {"confirm_publish": True}),
    ],
)
def test_each_broker_gets_its_own_options(broker_url: str, expected_url: str, expected: dict[str, object]) -> None:
    url, options = describe_broker(broker_url, "postgresql://me:secret@127.0.0.1:5433/ragd")
    assert url == expected_url
    assert {name: options[name] for name in expected} == expected
