"""PostgreSQL's programs that write a backup to their output, or read one from their input."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ragd_site.backup.storage.errors import BackupError
from ragd_site.runtime.programs import ENVIRONMENT

READ_BYTES = 1 << 20


def read_program(command: list[str], secret: dict[str, str], identity: dict[str, Any]) -> Iterator[bytes]:
    """What a program writes, as it comes. Raises BackupError with its complaint when it fails."""
    process: subprocess.Popen[bytes]
    with subprocess.Popen(
        command,
        env=ENVIRONMENT | secret,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **identity,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        with _killed_on_error(process):
            while piece := process.stdout.read(READ_BYTES):
                yield piece
            said = process.stderr.read()
    _check(command, process.returncode, said)


def feed_program(command: list[str], secret: dict[str, str], content: Iterable[bytes]) -> None:
    """Give a program all of this to read. Raises BackupError with its complaint when it fails."""
    with subprocess.Popen(
        command,
        env=ENVIRONMENT | secret,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        with _killed_on_error(process):
            with contextlib.suppress(BrokenPipeError), process.stdin as opened:  # it ended early, and says why
                for piece in content:
                    opened.write(piece)
            said = process.stderr.read()
    _check(command, process.returncode, said)


def split_password(url: str) -> tuple[str, dict[str, str]]:
    """(how to reach a database, without the password, which others on the machine read in the list of processes; the
    environment that holds it)."""
    values = conninfo_to_dict(url)
    password = values.pop("password", None)
    return make_conninfo(**{name: str(value) for name, value in values.items()}), {
        "PGPASSWORD": str(password)
    } if password else {}


@contextlib.contextmanager
def _killed_on_error(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        process.kill()
        raise


def _check(command: list[str], status: int, said: bytes) -> None:
    if status != 0:
        words = said.decode(errors="replace").strip() or "it said nothing"
        raise BackupError(f"{PurePath(command[0]).name} ended with status {status}: {words}")
