"""A process that ends at once leaves nothing undone; one that starts early waits for what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from subprocess import PIPE

import pytest

from ragd_site.runtime.processes import wait_until_prepared

REPOSITORY = Path(__file__).resolve().parents[1]
SCRIPT = """
import atexit, sys, threading, time
from ragd_site.runtime.processes import leave, leave_when_alone
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


def test_a_web_server_waits_for_the_preparation_beside_it_also_where_that_is_killed(tmp_path: Path) -> None:
    wait_until_prepared(tmp_path)  # nobody prepares anything
    hold = "import sys, pathlib; from ragd_site.runtime.processes import hold_back; "
    hold += f"held = hold_back(pathlib.Path({str(tmp_path)!r})); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold], cwd=REPOSITORY, stdin=PIPE, stdout=PIPE) as supervisor:
        assert supervisor.stdout is not None and supervisor.stdout.readline() == b"held\n"
        waiting = threading.Thread(target=wait_until_prepared, args=[tmp_path])
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        supervisor.kill()
        waiting.join(10)
        assert not waiting.is_alive()


def test_a_web_server_reads_static_files_only_when_they_are_prepared_and_loads_nothing_rare() -> None:
    script = "import sys; from django.core import wsgi; from ragd_site.runtime import processes\n"
    script += "processes.wait_until_prepared = lambda var: print('waited')\n"
    script += "wsgi.get_wsgi_application = lambda: sys.exit(f'loaded {rare & sys.modules.keys()}')\n"
    script += "rare = {'jsonschema', 'mcp', 'minio'}\nimport ragd_site.wsgi"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr.splitlines()[-1:]) == ("waited\n", ["loaded set()"])


def test_the_supervisor_starts_the_web_server_before_it_needs_much() -> None:
    script = "import sys, ragd_site.run; print({'numpy', 'psycopg', 'django.http', 'django.db'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_the_preparation_loads_the_models_and_none_of_what_serves_or_works() -> None:
    script = "import sys, django; django.setup(); from django.apps import apps; from evaluation_app import sample\n"
    script += "print(len(apps.get_models()) > 50, {'ragd_site.celery', 'retrieval_app.admin', 'retrieval_app.answers',"
    script += " 'evaluation_app.sample.loading'} & sys.modules.keys())"
    variables = os.environ | {"RAGD_PROCESS": "prepare", "DJANGO_SETTINGS_MODULE": "ragd_site.settings"}
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, env=variables, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True set()\n", "")
