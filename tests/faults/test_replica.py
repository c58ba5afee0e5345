"""Retrieval from a streaming replica: a real standby of the cluster that the tests run on."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, InternalError, connection, connections
from django.test import Client

from collections_app.collections.deletion import delete_collection
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.index import stores
from collections_app.index.stores import REPLICA, read_store, replica_state
from collections_app.models import ApiKey, Collection
from ragd.types import RetrievePlan
from ragd_site import embedded
from ragd_site.runtime.programs import find_binaries, run_program, server_account
from retrieval_app.search.query_pipeline import QueryRequest, search
from tests.conftest import VAR
from tests.server import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=[DEFAULT_DB_ALIAS, REPLICA]),
    pytest.mark.skipif(embedded.read_cluster(VAR) is None, reason="a standby is made of the embedded cluster only"),
]
PATIENCE_S = 60


class Standby:
    """A standby of the tests' cluster in a folder of its own."""

    def __init__(self, home: Path, primary: embedded.Cluster) -> None:
        self.data, self.port, self.primary = home / "data", embedded.free_port(), primary
        self.account = server_account(primary.data.parent)
        self.binaries = find_binaries(primary.data.parent, self.account)

    def make(self) -> None:
        where = f"{self.primary.url}?application_name=standby"
        self._run("pg_basebackup", "-d", where, "-D", str(self.data), "-R", "-X", "stream", "-c", "fast")
        self.start()

    def start(self) -> None:
        options = f"-h 127.0.0.1 -p {self.port} -k ''"
        log = str(self.data.with_name("log"))
        self._run("pg_ctl", "-D", str(self.data), "-l", log, "-w", "-t", str(PATIENCE_S), "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.data), "-m", "immediate", "-w", "stop")

    def pause(self, name: str) -> None:
        """pg_wal_replay_pause or pg_wal_replay_resume."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as plain:
            plain.execute(f"SELECT {name}()")  # type: ignore[arg-type]

    def url(self, database: str) -> str:
        return self.primary.url.replace(f":{self.primary.port}/", f":{self.port}/").rpartition("/")[0] + f"/{database}"

    def _run(self, program: str, *arguments: str) -> None:
        done = run_program([str(self.binaries / program), *arguments], self.account)
        assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module", autouse=True)
def standby(django_db_setup: None) -> Iterator[Standby]:
    """Made once, and known as DATABASES["replica"] before a test opens its databases."""
    home = Path(tempfile.mkdtemp(prefix="ragd-standby-"))
    primary = embedded.read_cluster(VAR)
    assert primary is not None
    server_account(primary.data.parent).own(home)
    made = Standby(home, primary)
    made.make()
    described = {
        **connection.settings_dict,
        "PORT": str(made.port),
        "EMBEDDED": None,
        "CONN_MAX_AGE": 0,
        "OPTIONS": {"connect_timeout": 5, "options": "-c default_transaction_read_only=on"},
        "TEST": {**connection.settings_dict["TEST"], "MIRROR": DEFAULT_DB_ALIAS},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connections.settings, REPLICA, described)
        patch.setitem(settings.DATABASES, REPLICA, described)
        yield made
        del connections[REPLICA]
    made.stop()
    shutil.rmtree(home)


@pytest.fixture
def replica(standby: Standby, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standby]:
    """The standby, fresh in the eyes of this process."""
    monkeypatch.setattr(stores, "_health", stores._ReplicaHealth())
    monkeypatch.setattr(stores, "CHECK_EVERY_S", 0.0)
    monkeypatch.setattr(stores, "BACK_OFF_S", 0.0)
    # what the machine writes besides, such as a vacuum, must not count as a lag of the data
    monkeypatch.setattr(settings, "RAGD_REPLICA_MAX_LAG_S", 3600.0)
    yield standby
    connections[REPLICA].close()
    for collection in Collection.objects.live():
        delete_collection(collection)
    ApiKey.objects.all().delete()


def written() -> str:
    """The end of what was committed by now, which may lie behind what is on the disk. Other tests write meanwhile."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_insert_lsn()")
        return str(cursor.fetchone()[0])


def is_replayed(position: str) -> bool:
    """Whether the standby has replayed all that was written up to that position."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT bool_and(replay_lsn >= %s::pg_lsn) FROM pg_stat_replication", [position])
        return bool(cursor.fetchone()[0])


@pytest.fixture
def filled(replica: Standby) -> Collection:
    collection = create_collection(name="birds")
    ingest_text(collection, doc_id="owl.txt", content="The owl hunts at night.")
    end = written()
    wait_for(lambda: is_replayed(end), "replay")
    return collection


def port_of(store: Any) -> int:
    return int(store.connection.settings_dict["PORT"])


def test_retrieval_asks_the_replica(filled: Collection, replica: Standby) -> None:
    wait_for(lambda: replica_state().state == "ready", "replica that is level")
    wait_for(lambda: read_store(filled, port_of) == replica.port, "read from the replica")


def test_what_is_sent_to_the_replica_cannot_write(filled: Collection) -> None:
    def write(store: Any) -> None:
        with store.connection.cursor() as cursor:
            cursor.execute("DELETE FROM documents")

    with pytest.raises(InternalError, match="read-only transaction"):
        read_store(filled, write)


def test_a_search_through_the_api_is_answered_by_the_replica(
    filled: Collection, replica: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    secret = client.post("/v1/api-keys", {"label": "test"}, content_type="application/json").json()["secret_once"]
    asked: list[int] = []
    real = stores._read
    monkeypatch.setattr(
        stores,
        "_read",
        lambda *arguments: (asked.append(arguments[2]), real(*arguments))[1],  # type: ignore[func-returns-value]
    )
    answer = client.post(
        "/v1/collections/birds/search",
        {"query": "night owl"},
        content_type="application/json",
        headers={"Authorization": f"Bearer {secret}"},
    )
    assert [found["doc_id"] for found in answer.json()["results"]] == ["owl.txt"]
    assert asked == [REPLICA]


def test_a_collection_that_has_not_arrived_is_read_from_the_primary(filled: Collection, replica: Standby) -> None:
    replica.pause("pg_wal_replay_pause")
    try:
        later = create_collection(name="later")
        assert read_store(later, port_of) == int(connection.settings_dict["PORT"])
    finally:
        replica.pause("pg_wal_replay_resume")


def test_a_replica_that_lags_is_left_out_until_it_has_caught_up(
    filled: Collection, replica: Standby, settings: Any
) -> None:
    settings.RAGD_REPLICA_MAX_LAG_S = 2.0
    replica.pause("pg_wal_replay_pause")
    try:
        ingest_text(filled, doc_id="wren.txt", content="The wren sings.")
        time.sleep(2.5)
        state = replica_state()
        assert state.state == "behind" and "RAGD_REPLICA_MAX_LAG_S" in state.reason
        assert read_store(filled, port_of) == int(connection.settings_dict["PORT"])
    finally:
        replica.pause("pg_wal_replay_resume")
    wait_for(lambda: read_store(filled, port_of) == replica.port, "read from the replica")


def test_a_dead_replica_costs_no_answer_and_comes_back(filled: Collection, replica: Standby) -> None:
    replica.stop()
    try:
        assert read_store(filled, port_of) == int(connection.settings_dict["PORT"])
        assert replica_state().state == "silent"
        run = search(QueryRequest(filled, "owl", RetrievePlan(mode="lexical"), "cli"))
        assert [each["step"] for each in run.degraded] == ["replica"] and run.results
    finally:
        replica.start()
    wait_for(lambda: read_store(filled, port_of) == replica.port, "read from the replica")
    assert search(QueryRequest(filled, "owl", RetrievePlan(mode="lexical"), "cli")).degraded == []


def test_without_a_replica_the_primary_is_asked(filled: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(settings.DATABASES, REPLICA)
    assert read_store(filled, port_of) == int(connection.settings_dict["PORT"])
