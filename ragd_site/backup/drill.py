"""A drill: the newest backup restored beside the server, compared with its manifest, checked, and removed again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from collections_app.services.worker.backup_records import record_drill
from ragd_site import embedded
from ragd_site.backup.errors import BackupError
from ragd_site.backup.locks import only_one
from ragd_site.backup.repository import Repository
from ragd_site.backup.server_restore import remove_server, restore_server
from ragd_site.runtime.programs import EmbeddedError

FOLDER = "drill"  # in RAGD_VAR
LOCK_FILE = "drill.lock"


def run_drill(repository: Repository, var: Path, backup_id: str | None, say: Callable[[str], None]) -> dict[str, Any]:
    """`Restored.as_dict` of it. The result is recorded, a failure too. Raises what `restore_server` raises."""
    with only_one(var, LOCK_FILE):
        return _drill(repository, var / FOLDER, backup_id, say)


def _drill(repository: Repository, folder: Path, backup_id: str | None, say: Callable[[str], None]) -> dict[str, Any]:
    _remove_killed(folder)
    try:
        answer = restore_server(repository, folder, backup_id=backup_id, say=say).as_dict()
    except (BackupError, EmbeddedError) as error:
        record_drill({"backup": backup_id or "", "error": str(error)}, passed=False)
        raise
    finally:
        remove_server(folder)
    record_drill(answer | {"error": ""}, passed=answer["passed"])
    return answer


def _remove_killed(folder: Path) -> None:
    """What a drill left that was killed, with its PostgreSQL, which outlives it."""
    embedded.stop_cluster(embedded.Cluster(embedded.home_folder(folder) / "data", 0, ""))
    remove_server(folder)
