"""The worker ends itself when its pool has lost a process."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import billiard
import pytest


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
