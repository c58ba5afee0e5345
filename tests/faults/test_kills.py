"""Kill -9 of worker, database and web server during an ingest: every document once, whole, and no job left hanging."""

from __future__ import annotations

import random
import sys
import threading

import pytest

from tests.faults import kills

DOCUMENTS = 40
pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


def test_the_default_lease_and_sweep_leave_time_to_run_again_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGD_PROCESS", "command")  # the import would set it
    from ragd_site.environment import Environment
    from ragd_site.worker import SWEEP_EVERY_S

    lease_s = Environment.model_fields["RAGD_JOB_LEASE_S"].default
    assert lease_s + SWEEP_EVERY_S <= 45


def test_nothing_is_lost_or_done_twice_under_fire() -> None:
    draw, tally = random.Random(7), kills.Tally()
    documents = kills.make_documents(DOCUMENTS, seed=7)
    with kills.server_under_fire(latency_s=0.15, RAGD_JOB_LEASE_S="3", RAGD_JOB_MAX_ATTEMPTS="10") as server:
        uploading = threading.Thread(target=kills.upload_all, args=(server, documents))
        uploading.start()
        kills.fire(server, kills.kill_web, 1, (0.3, 0.6), draw, tally)
        kills.fire(server, kills.kill_worker, 2, (2, 3), draw, tally)
        kills.fire(server, kills.kill_database, 1, (1, 2), draw, tally)
        uploading.join()
        kills.wait_until_done(server, DOCUMENTS, tally)
        kills.compare(server, documents, tally)
    assert tally.wrong == []
    assert (tally.kills, tally.states) == (4, {"succeeded": DOCUMENTS})
    assert tally.cut_off > 0
