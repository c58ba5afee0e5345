"""Kill -9 of worker, database and web server during an ingest: every document once, whole, and no job left hanging."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults import kills
from tests.server import Server

DOCUMENTS = 40
LATENCY = kills.Latency()
pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


def test_the_default_lease_and_maintenance_leave_time_for_another_within_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAGD_PROCESS", "command")  # the import would set it
    from ragd_site.environment import Environment
    from ragd_site.worker import MAINTAIN_EVERY_S

    lease_s = Environment.model_fields["RAGD_JOB_LEASE_S"].default
    assert lease_s + MAINTAIN_EVERY_S <= 45


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with kills.server_under_fire(LATENCY, RAGD_JOB_LEASE_S="3", RAGD_JOB_MAX_ATTEMPTS="10") as server:
        yield server


def test_nothing_is_lost_or_done_twice_under_fire(server: Server) -> None:
    draw, tally = random.Random(7), kills.Tally()
    documents = kills.make_documents(DOCUMENTS, seed=7)
    LATENCY.s = 0.6  # the ingest outlasts the kills on the fastest machine
    uploading = threading.Thread(target=kills.upload_all, args=(server, documents))
    uploading.start()
    kills.fire(server, kills.kill_web, 1, (0.3, 0.6), draw, tally)
    kills.fire(server, kills.kill_worker, 2, (2, 3), draw, tally, at_work=True)
    kills.fire(server, kills.kill_database, 1, (1, 2), draw, tally, at_work=True)
    LATENCY.s = 0.0
    uploading.join()
    kills.wait_until_done(server, DOCUMENTS, tally)
    kills.compare(server, documents, tally)
    assert tally.wrong == []
    assert (tally.kills, tally.states) == (4, {"succeeded": DOCUMENTS})
    assert tally.cut_off > 0


def test_a_worker_whose_idle_processes_are_killed_goes_on(server: Server) -> None:
    """One of them held the lock of the pipe that all read from."""
    tally = kills.Tally()
    before, after = [(f"idle-{name}", text) for name, text in kills.make_documents(2, seed=8)]
    kills.upload_all(server, [before])
    kills.wait_until_done(server, 1, tally)
    count = sum(tally.states.values())
    first, *pool = sorted(pid for pid, line in server.processes().items() if "celery" in line)
    kills.kill_all(pool)
    kills.upload_all(server, [after])
    kills.wait_until_done(server, count + 1, tally)
    deadline = time.monotonic() + kills.PATIENCE_S
    while first in server.processes() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert first not in server.processes()
    assert (tally.wrong, tally.states) == ([], {"succeeded": count + 1})
