"""The worker ends itself when its pool has lost a process."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from datetime import timedelta
from types import SimpleNamespace

import billiard
import pytest

from collections_app.collections.services import create_collection
from collections_app.jobs.leases import database_now
from collections_app.jobs.queue import FIRST_LANE, QUICK_LANE
from collections_app.models import IngestJob, Operation


def test_it_ends_while_the_pool_is_about_to_start_a_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool lists the replacement before it has a pid."""
    monkeypatch.setenv("RAGD_PROCESS", "command")  # the import would set it
    from ragd_site import worker

    monkeypatch.setattr(worker, "forgive_jobs", lambda **_: None)
    running = billiard.Process(target=time.sleep, args=(60,))
    running.start()
    pool = SimpleNamespace(_pool=[running, billiard.Process(target=time.sleep, args=(60,))])
    if not (pid := os.fork()):
        try:
            worker.begin_again([1], pool)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == worker.POOL_LOST
    running.join(10)
    assert running.exitcode == -9


@pytest.mark.django_db
def test_a_worker_that_starts_ends_the_leases_of_processes_of_its_host_that_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAGD_PROCESS", "command")
    from ragd_site import worker

    gone = subprocess.Popen(["true"])
    gone.wait()
    host, collection = socket.gethostname(), create_collection(name="leases")
    holders = {"gone": f"{host}:{gone.pid}", "alive": f"{host}:{os.getpid()}", "elsewhere": f"{host}-b:{gone.pid}"}
    until = database_now() + timedelta(minutes=1)
    for doc_id, name in holders.items():
        held = {"state": "running", "worker": name, "attempts": 1, "lease_until": until}
        IngestJob.objects.create(collection=collection, doc_id=doc_id, **held)
    Operation.objects.create(kind="import", subject="x", worker=holders["gone"], lease_until=until)
    waits = {"queued": timedelta(0), "later": timedelta(minutes=-1)}  # how long since it was sent
    for doc_id, age in waits.items():
        IngestJob.objects.create(collection=collection, doc_id=doc_id, sent_at=database_now() - age)
    worker.release_the_dead()
    assert dict(IngestJob.objects.filter(state="queued").values_list("doc_id", "lane")) == {
        "queued": FIRST_LANE, "later": QUICK_LANE,
    }  # fmt: skip
    leases = dict(IngestJob.objects.values_list("doc_id", "lease_until"))
    assert leases["gone"] <= database_now() and leases["alive"] == leases["elsewhere"] == until
    assert Operation.objects.get().lease_until <= database_now()
    assert IngestJob.objects.get(doc_id="gone").tries == 1
