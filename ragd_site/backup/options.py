"""The place and the key of backups, as the command line or the settings name them.

How many backups stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings

from collections_app.commands.subcommand import UsageError
from collections_app.sources.source_jobs import AMAZON
from ragd.readers.fetching.buckets import BucketKeys
from ragd_site.backup.programs import BackupError
from ragd_site.backup.repository import BACKUPS, MANIFEST, Backup, BucketStore, FolderStore, Repository, Store
from ragd_site.backup.wal_archive import remove_before

S3 = "s3://"


def open_repository(options: Mapping[str, Any], *, create: bool = False) -> Repository:
    """Of --at and --key-file, else of RAGD_BACKUP_TO and RAGD_BACKUP_KEY. Raises UsageError and BackupError."""
    place = options.get("at") or settings.RAGD_BACKUP_TO
    if not place:
        raise UsageError(
            "nothing says where backups lie: give --at FOLDER or --at s3://BUCKET/PREFIX, or set RAGD_BACKUP_TO"
        )
    return Repository.open(open_store(place), read_key(options.get("key_file")), create=create)


def open_store(place: str) -> Store:
    """A folder, or s3://BUCKET/PREFIX at RAGD_S3_ENDPOINT with the server's keys. Raises UsageError."""
    if place.startswith(S3):
        name, _, prefix = place.removeprefix(S3).partition("/")
        keys = BucketKeys(settings.AWS_ACCESS_KEY_ID, settings.AWS_SECRET_ACCESS_KEY, settings.AWS_SESSION_TOKEN)
        return BucketStore(
            (settings.RAGD_S3_ENDPOINT or AMAZON).rstrip("/"),
            name,
            prefix.rstrip("/") + "/" if prefix.strip("/") else "",
            keys=keys,
            region=settings.AWS_REGION,
            timeout_s=settings.RAGD_FETCH_TIMEOUT_S,
        )
    folder = Path(place).expanduser().absolute()
    if folder.resolve().is_relative_to(Path(settings.RAGD_VAR).resolve()):
        raise UsageError(f"backups must lie outside of RAGD_VAR, with which they would be lost, and {folder} is in it")
    return FolderStore(folder)


def read_key(file: Path | None) -> str:
    """The text of the key file. Raises UsageError."""
    if file is None:
        if not settings.RAGD_BACKUP_KEY:
            raise UsageError(
                "backups are encrypted, and nothing gives the key: `manage.py ragd backup key FILE` makes one; then "
                "give --key-file FILE, or set RAGD_BACKUP_KEY_FILE"
            )
        return str(settings.RAGD_BACKUP_KEY)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the key file {file} cannot be read: {error}") from None


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
