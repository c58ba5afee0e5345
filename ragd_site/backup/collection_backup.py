"""Exports of single collections in the repository, and files made of backups again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from collections_app.collections.export import open_export
from collections_app.collections.export_reader import Archive
from collections_app.jobs.operations import OnProgress
from collections_app.models import Collection
from ragd_site.backup.programs import BackupError
from ragd_site.backup.repository import COLLECTION, DATABASE, Backup, Repository
from ragd_site.backup.streams import new_file, write_pieces


def back_up_collection(
    repository: Repository, collection: Collection, *, on_progress: OnProgress | None = None
) -> Backup:
    """One moment of a collection, as `open_export` gives it. Raises what that raises, and leaves no part then."""
    moment = datetime.now(UTC)
    export = open_export(collection, on_progress=on_progress)
    try:
        values = {"moment": moment.isoformat(), "collection": collection.name, "counts": export.counts}
        return repository.write(COLLECTION, export, values)
    finally:
        export.close()


def restore_file(
    repository: Repository, file: Path, *, collection: str | None = None, backup_id: str | None = None
) -> Backup:
    """Write the newest export of a collection, or the newest dump, or that of a backup, into a new file.

    Every byte is proven, and every member of an export compared with the hash in its own manifest, before the file
    appears. Raises BackupError for a file that is there, and where there is no such backup.
    """
    kind = COLLECTION if collection else DATABASE
    known = [each for each in repository.backups(collection=collection, damaged=[]) if each.kind == kind]
    backup = next((each for each in known if backup_id in (None, each.id)), None)
    if backup is None:
        what = f"the collection {collection!r}" if collection else "a PostgreSQL of your own"
        have = ", ".join(each.id for each in known[:5]) or "none"
        raise BackupError(
            f"there is no such backup of {what} in {repository.store.address}; it has: {have}",
            type="backup_missing",
            status=404,
        )
    with new_file(file) as draft:
        write_pieces(draft, repository.read(backup))
        if collection:
            with Archive(draft) as archive:
                archive.check()
    return backup
