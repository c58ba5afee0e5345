"""A process that ends at once leaves nothing undone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
SCRIPT = """
import atexit, sys, threading, time
from ragd_site.runtime.supervisor import leave, leave_when_alone
class Told:
    def __del__(self): print("torn down", flush=True)
told = Told()
atexit.register(print, "registered")
print("said", end=" ")
"""
BUSY = "threading.Thread(target=lambda: (time.sleep(0.3), print('thread', end=' '))).start()\n"


@pytest.mark.parametrize(
    ("ending", "status", "printed"),
    [
        ("leave(3)", 3, "said registered\n"),
        ("leave_when_alone()", 0, "said registered\n"),
        (BUSY + "leave_when_alone()", 0, "said thread registered\ntorn down\n"),
    ],
)
def test_what_was_registered_is_done_and_nothing_is_torn_down(ending: str, status: int, printed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + ending], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, printed, "")
