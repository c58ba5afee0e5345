"""Run PostgreSQL's programs that write a backup to their output or read one from their input, one at a time.

Their failures, and those of backups and restores, are BackupError and what derives from it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from collections_app.errors import ServiceError
from ragd_site.runtime.programs import ENVIRONMENT


class BackupError(ServiceError):
    """The message says what was expected, what came, and what to do."""

    def __init__(self, message: str, *, type: str = "backup_error", status: int = 409) -> None:
        super().__init__(message, type=type, status=status)


class DamagedError(BackupError):
    """Stored bytes are not those that were written."""

    def __init__(self, message: str) -> None:
        super().__init__(message, type="backup_damaged")


class MissingError(BackupError):
    """There is no file of that name."""

    def __init__(self, name: str, place: str) -> None:
        super().__init__(f"{name} is not in {place}", type="backup_missing", status=404)


READ_BYTES = 1 << 20


def read_program(command: list[str], secret: dict[str, str], identity: dict[str, Any]) -> Iterator[bytes]:
    """What a program writes, as it comes. Raises BackupError with its complaint when it fails."""
    with _running(command, secret, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **identity) as process:
        while piece := process.stdout.read(READ_BYTES):
            yield piece


def feed_program(command: list[str], secret: dict[str, str], content: Iterable[bytes]) -> None:
    """Give a program all of this to read. Raises BackupError with its complaint when it fails."""
    with (
        _running(command, secret, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process,
        contextlib.suppress(BrokenPipeError),  # it ended early, and says why
        process.stdin as opened,
    ):
        for piece in content:
            opened.write(piece)


def split_password(url: str) -> tuple[str, dict[str, str]]:
    """(how to reach a database, without the password, which others on the machine read in the list of processes; the
    environment that holds it)."""
    values = conninfo_to_dict(url)
    password = values.pop("password", None)
    return make_conninfo(**{name: str(value) for name, value in values.items()}), {
        "PGPASSWORD": str(password)
    } if password else {}


@contextlib.contextmanager
def _running(command: list[str], secret: dict[str, str], **values: Any) -> Iterator[Any]:
    environment = ENVIRONMENT | secret
    with subprocess.Popen(command, env=environment, cwd="/", stderr=subprocess.PIPE, **values) as process:
        assert process.stderr is not None
        try:
            yield process
            words = process.stderr.read().decode(errors="replace").strip() or "it said nothing"
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise BackupError(f"{PurePath(command[0]).name} ended with status {process.returncode}: {words}")


@contextlib.contextmanager
def only_one(var: Path, name: str) -> Iterator[None]:
    """Hold a file of RAGD_VAR, which the kernel gives back even after kill -9. Raises BackupError where it is held."""
    descriptor = os.open(var / name, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor) as file:
        if os.geteuid() == 0:  # a command of root leaves the server its file
            owner = var.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BackupError(f"another process does the same and holds {var / name}; wait for its end") from None
        yield
