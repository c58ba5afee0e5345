"""A drill: the newest backup restored beside the server, compared with its manifest, checked, and removed again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ragd_site.backup.errors import BackupError
from ragd_site.backup.records import DRILL_REPORT, record
from ragd_site.backup.repository import Repository
from ragd_site.backup.server_restore import remove_server, restore_server
from ragd_site.runtime.programs import EmbeddedError

FOLDER = "drill"  # in RAGD_VAR


def run_drill(repository: Repository, var: Path, backup_id: str | None, say: Callable[[str], None]) -> dict[str, Any]:
    """`Restored.as_dict` of it. The result is recorded, a failure too. Raises what `restore_server` raises."""
    folder = var / FOLDER
    remove_server(folder)  # of a drill that was killed
    try:
        answer = restore_server(repository, folder, backup_id=backup_id, say=say).as_dict()
    except (BackupError, EmbeddedError) as error:
        record(DRILL_REPORT, {"passed": False, "error": str(error), "place": repository.store.place})
        raise
    finally:
        remove_server(folder)
    record(DRILL_REPORT, answer | {"error": "", "place": repository.store.place})
    return answer
