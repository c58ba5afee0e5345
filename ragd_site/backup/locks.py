"""What only one process of a machine does at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from ragd_site.backup.errors import BackupError


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
