"""How many backups stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ragd_site.backup.errors import BackupError
from ragd_site.backup.repository import BACKUPS, MANIFEST, Backup, Repository
from ragd_site.backup.wal_archive import remove_before

ABANDONED_AFTER = timedelta(days=2)  # longer than any backup takes to be written


def keep_newest(repository: Repository, keep: int, collection: str | None = None) -> list[Backup]:
    """Remove all but the newest complete backups, of the server or of a collection; what was removed.

    keep: 0 for all. The log that no backup of the server needs goes too, and after two days what a backup left that was
    killed. Raises BackupError for a negative number.
    """
    if keep < 0:
        raise BackupError(f"the number of backups that stay must be 0 or more, not {keep}", type="usage", status=422)
    backups = repository.backups(
        collection=collection, damaged=[]
    )  # a damaged one stays for a look, and does not count
    old = backups[keep:] if keep else []
    for backup in reversed(old):
        repository.remove(backup.manifest_name, backup.content)  # without a manifest it counts as incomplete
    repository.remove(*_abandoned(repository.names(BACKUPS)))
    repository.store.tidy(datetime.now(UTC) - ABANDONED_AFTER)
    kept = backups[: len(backups) - len(old)]
    if kept and collection is None:
        remove_before(repository, kept)
    return old


def _abandoned(names: list[str]) -> list[str]:
    """Content without a manifest that was begun long ago."""
    complete = {name.removesuffix(MANIFEST) for name in names if name.endswith(MANIFEST)}
    before = f"{BACKUPS}{datetime.now(UTC) - ABANDONED_AFTER:%Y%m%dT%H%M%SZ}"
    return [name for name in names if name < before and name.partition(".")[0] not in complete]
