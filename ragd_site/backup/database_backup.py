"""A backup of a PostgreSQL of one's own: a dump of one moment, and what the tables hold in that very snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from collections_app.collections.export import open_export
from collections_app.collections.export_reader import Archive
from collections_app.jobs.operations import OnProgress
from collections_app.models import Collection
from ragd.version import product_version
from ragd_site import embedded
from ragd_site.backup.programs import BackupError, feed_program, read_program, split_password
from ragd_site.backup.repository import COLLECTION, DATABASE, Backup, Repository
from ragd_site.backup.streams import new_file, write_pieces
from ragd_site.backup.table_facts import read_facts
from ragd_site.backup.wal_archive import read_kept_files
from ragd_site.postgresql.row_security import MAKE_ROLE
from ragd_site.runtime.programs import find_wheel_binaries


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


# owners and grants are of the server that it is of; `migrate` gives them again
OPTIONS = ("--no-owner", "--no-privileges")
ABOUT = """
SELECT current_setting('server_version'), current_setting('server_version_num')::int / 10000, pg_export_snapshot(),
       clock_timestamp(), (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
       EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')
"""


def back_up_database(url: str, var: Path, repository: Repository, *, keeps_secret_key: bool = True) -> Backup:
    """Dump the database while others write to it. Raises BackupError, and leaves no part then."""
    values = {"ragd": product_version(), "files": read_kept_files(var), "keeps_secret_key": keeps_secret_key}
    values["archive"] = None
    return repository.write(DATABASE, _read_database(url, values), values)


def _read_database(url: str, values: dict[str, Any]) -> Iterator[bytes]:
    """The dump. values: takes what is learned of it meanwhile."""
    with psycopg.connect(url, autocommit=True) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        ((server, major, snapshot, moment, vector, is_cluster),) = reader.execute(ABOUT).fetchall()
        if is_cluster:
            raise BackupError("a database that is spread over nodes must be backed up with the tools of its cluster")
        if major > int(embedded.MAJOR_VERSION):
            raise BackupError(f"expected PostgreSQL {embedded.MAJOR_VERSION} or older, and the server is {server}")
        yield from _read_dump(url, snapshot)
        values |= {
            "moment": moment.isoformat(),
            "server_version": server,
            "pgvector": vector,
            "tables": read_facts(reader),
        }


def _read_dump(url: str, snapshot: str) -> Iterator[bytes]:
    target, secret = split_password(url)
    command = [str(find_wheel_binaries() / "pg_dump"), "--format=custom", "--compress=gzip:1", "--extension=vector"]
    return read_program([*command, *OPTIONS, f"--snapshot={snapshot}", f"--dbname={target}"], secret, {})


def load_dump(cluster: embedded.Cluster, dump: Iterator[bytes]) -> None:
    """Fill the empty database of a new server. Raises BackupError with what pg_restore says when it fails."""
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        connection.execute(MAKE_ROLE)  # the policies name it
    target, secret = split_password(cluster.url)
    command = [str(find_wheel_binaries() / "pg_restore"), "--exit-on-error", *OPTIONS, f"--dbname={target}"]
    feed_program(command, secret, dump)
