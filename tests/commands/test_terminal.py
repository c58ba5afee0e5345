"""The command as a process of its own, at a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from collections_app.collections.services import create_collection
from collections_app.models import Document, IngestJob, Status
from tests.fakes.openai_server import OpenAIServer

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 120
COLUMNS = 100

pytestmark = pytest.mark.timeout(400)  # a process takes seconds to start, and far more on a busy machine


class Terminal:
    """A running command whose standard input and error are a terminal; standard output is a pipe."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self.there, here = pty.openpty()
        fcntl.ioctl(here, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self.seen = ""
        command = [sys.executable, "manage.py", "ragd", *arguments]
        self.process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdin=here, stderr=here, stdout=subprocess.PIPE, text=True
        )
        os.close(here)

    def wait_for(self, pattern: str) -> None:
        """Until the terminal shows this."""
        gives_up_at = time.monotonic() + PATIENCE_S
        while not re.search(pattern, self.seen):
            ready, _, _ = select.select([self.there], [], [], 0.2)
            if ready and not self._read():
                break
            assert time.monotonic() < gives_up_at, self.seen
        assert re.search(pattern, self.seen), self.seen

    def _read(self) -> bool:
        try:
            part = os.read(self.there, 65_536).decode(errors="replace")
        except OSError:  # the process has closed it
            return False
        self.seen += part
        return bool(part)

    def type(self, text: str) -> None:
        os.write(self.there, text.encode())

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        os.close(self.there)

    def end(self) -> tuple[int, str]:
        """(exit status, standard output) once it has ended."""
        while self._read():
            pass
        printed, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, printed


@pytest.fixture
def environment(committed: None, embeddings: OpenAIServer, tmp_path: Path) -> Iterator[dict[str, str]]:
    """For a process that works on this test's database and embedder, with the collection notes."""
    create_collection(name="notes")
    database = connection.settings_dict
    address = f"{database['HOST']}:{database['PORT']}/{database['NAME']}"
    yield os.environ | {
        "DATABASE_URL": f"postgresql://{database['USER']}:{database['PASSWORD']}@{address}",
        "RAGD_VAR": str(tmp_path / "var"),
        "RAGD_SECRET_KEY": "test",
        "EMBED_BASE_URL": embeddings.base_url,
        "EMBED_API_KEY": embeddings.api_key or "",
        "RAGD_EMBED_MODEL": "text-embedding-3-small",
        "RAGD_EMBED_DIMS": "32",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with suppress(OSError):
        connection.close()


@pytest.fixture
def open_terminal(environment: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    """A terminal for a command; whatever still runs in one is ended."""
    opened: list[Terminal] = []

    def open_one(*arguments: str) -> Terminal:
        opened.append(Terminal(environment, *arguments))
        return opened[-1]

    yield open_one
    for terminal in opened:
        terminal.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "papers"
    top.mkdir()
    for number in range(8):
        (top / f"{number}.txt").write_text(f"text number {number}")
    return top


def test_the_bar_and_the_offer_to_work_here(open_terminal: Callable[..., Terminal], folder: Path) -> None:
    terminal = open_terminal("ingest", "notes", str(folder))
    terminal.wait_for(r"No worker is alive\. Do the work in this process\? \[Y/n\]")
    terminal.type("\n")
    terminal.wait_for(r"documents +\d+% \|.*\| \d/8 documents \[.*documents/s, \S+ left\]")
    status, printed = terminal.end()
    assert status == 0, terminal.seen
    assert "8 of 8 documents ingested" in printed
    assert "|" not in printed
    assert Document.objects.count() == 8


def test_ctrl_c_leaves_the_work_to_the_worker(open_terminal: Callable[..., Terminal], folder: Path) -> None:
    later = timezone.now() + timedelta(hours=1)
    Status.objects.create(kind="worker", name="a worker that is slow", made_at=later)
    terminal = open_terminal("ingest", "notes", str(folder), "--wait")
    terminal.wait_for(r"0/8 documents")
    terminal.process.send_signal(signal.SIGINT)
    status, printed = terminal.end()
    assert (status, printed) == (130, "")
    assert "Stopped watching: 8 jobs are left and go on in the worker" in terminal.seen
    assert "Traceback" not in terminal.seen
    assert set(IngestJob.objects.values_list("state", flat=True)) == {"queued"}


def test_one_json_object_and_nothing_else(environment: dict[str, str], folder: Path) -> None:
    command = [sys.executable, "manage.py", "ragd", "ingest", "notes", str(folder), "--here", "--json"]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert '"succeeded": 8' in done.stdout
    wrong = [*command[:4], "nowhere", "x", "--odd"]
    failed = subprocess.run(wrong, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (failed.returncode, failed.stdout) == (2, "")
