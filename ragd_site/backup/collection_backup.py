"""Exports of single collections in the repository: encrypted, and made again as the files that an import takes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from collections_app.models import Collection
from collections_app.services.collections.operations import OnProgress
from collections_app.services.transfer.export import open_export
from collections_app.services.transfer.export_reader import Archive
from ragd_site.backup.storage.errors import BackupError
from ragd_site.backup.storage.repository import COLLECTIONS, Backup, Repository, drafted
from ragd_site.backup.storage.streams import new_file, write_pieces

EXPORT = "export"


def back_up_collection(
    repository: Repository, collection: Collection, *, on_progress: OnProgress | None = None
) -> Backup:
    """One moment of a collection, as `open_export` gives it. Raises what that raises, and leaves no part then."""
    with drafted(repository, COLLECTIONS) as draft:
        moment = datetime.now(UTC)
        export = open_export(collection, on_progress=on_progress)
        try:
            draft.put(EXPORT, export)
        finally:
            export.close()
        return draft.finish(moment, {"kind": "collection", "collection": collection.name, "counts": export.counts})


def backups_of(repository: Repository, collection: str) -> list[Backup]:
    """Those of a collection, by the name that it had, the newest first; without damaged ones."""
    return [each for each in repository.backups(COLLECTIONS, []) if each.manifest["collection"] == collection]


def restore_export(repository: Repository, file: Path, collection: str, backup_id: str | None = None) -> Backup:
    """Write the export of the newest backup of a collection, or of the one that is named, into a new file.

    Every byte is proven, and every member is compared with the hash in the export's own manifest, before the file
    appears. Raises BackupError for a file that is there, and for a collection without a backup.
    """
    known = backups_of(repository, collection)
    chosen = [backup for backup in known if backup_id in (None, backup.id)]
    if not chosen:
        have = ", ".join(backup.id for backup in known[:5]) or "none"
        raise BackupError(
            f"there is no such backup of the collection {collection!r} in {repository.store.place}; it has: {have}",
            type="backup_missing",
            status=404,
        )
    with new_file(file) as draft:
        write_pieces(draft, repository.get(chosen[0].folder + EXPORT))
        with Archive(draft) as archive:
            archive.check()
    return chosen[0]


def keep_newest_of(repository: Repository, collection: str, keep: int) -> list[Backup]:
    """Remove all but the newest backups of a collection; what was removed. keep: 0 for all."""
    old = backups_of(repository, collection)[keep:] if keep else []
    for backup in reversed(old):
        repository.remove(backup.folder)
    return old
