"""How many backups stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ragd_site.backup.storage.errors import BackupError
from ragd_site.backup.storage.repository import MANIFEST, SERVERS, Backup, Repository
from ragd_site.backup.wal_archive import remove_before

ABANDONED_AFTER = timedelta(days=2)  # longer than any backup takes to be written


def keep_newest(repository: Repository, keep: int) -> list[Backup]:
    """Remove all but the newest complete backups, and the log that none of those left needs; what was removed.

    keep: 0 for all. What a backup left that was killed goes after two days. Raises BackupError for a negative number.
    """
    if keep < 0:
        raise BackupError(f"the number of backups that stay must be 0 or more, not {keep}", type="usage", status=422)
    backups = repository.backups(damaged=[])  # a damaged one stays for a look, and does not count
    old = backups[keep:] if keep else []
    for backup in reversed(old):
        repository.remove(backup.folder)
    for folder in _abandoned(repository):
        repository.remove(folder)
    repository.store.tidy(datetime.now(UTC) - ABANDONED_AFTER)
    if kept := backups[: len(backups) - len(old)]:
        remove_before(repository, kept)
    return old


def _abandoned(repository: Repository) -> list[str]:
    """Folders of backups without a manifest that began long ago."""
    names = repository.names(SERVERS)
    folders = {"/".join(name.split("/")[:2]) + "/" for name in names}
    before = f"{datetime.now(UTC) - ABANDONED_AFTER:%Y%m%dT%H%M%SZ}"
    return sorted(
        folder for folder in folders if folder + MANIFEST not in names and folder.removeprefix(SERVERS) < before
    )
