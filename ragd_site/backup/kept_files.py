"""What RAGD_VAR holds beside the database and cannot be made again."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragd_site import embedded

FILES = "files"
LOGIN_FILE = "postgres.json"
KEPT_FILES = (LOGIN_FILE, "secret_key", "secret_key_earlier", "receipt_key", "admin_password", "erasures.jsonl")


def pack_files(var: Path) -> tuple[list[str], bytes]:
    """(the names of those that are there, all of them as tar)."""
    names = [name for name in KEPT_FILES if (var / name).exists()]
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name in names:
                archive.add(var / name, arcname=name)
        return names, buffer.getvalue()


def unpack_files(content: Iterator[bytes], folder: Path) -> dict[str, Any]:
    """Write them into a folder, for its owner alone, but the login file, whose values are returned: {} without one."""
    login: dict[str, Any] = {}
    with tarfile.open(fileobj=io.BytesIO(b"".join(content))) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name in KEPT_FILES else None
            if file is None:
                continue
            if member.name == LOGIN_FILE:
                login = json.load(file)
            else:
                embedded.write_private(folder / member.name, file.read().decode())
    return login
