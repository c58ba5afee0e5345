"""PostgreSQL's programs that write a backup to their output, or read one from their input."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ragd_site.backup.errors import BackupError
from ragd_site.runtime.programs import ENVIRONMENT

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
