"""A backup of a PostgreSQL of one's own: a dump of one moment, and what the tables hold in that very snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg

from ragd.version import product_version
from ragd_site import embedded
from ragd_site.backup.kept_files import FILES, pack_files
from ragd_site.backup.programs import feed_program, read_program, split_password
from ragd_site.backup.storage.errors import BackupError
from ragd_site.backup.storage.repository import SERVERS, Backup, Repository, drafted
from ragd_site.backup.storage.streams import new_file, write_pieces
from ragd_site.backup.table_facts import read_facts
from ragd_site.postgresql.row_security import MAKE_ROLE
from ragd_site.runtime.programs import find_wheel_binaries

DATABASE = "database"  # the kind
DUMP = "dump"
# owners and grants are of the server that it is of; `migrate` gives them again
OPTIONS = ("--no-owner", "--no-privileges")
ABOUT = """
SELECT current_setting('server_version'), current_setting('server_version_num')::int / 10000, pg_export_snapshot(),
       clock_timestamp(), (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
       EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')
"""


def back_up_database(url: str, var: Path, repository: Repository, *, keeps_secret_key: bool = True) -> Backup:
    """Dump the database while others write to it. Raises BackupError, and leaves no part then."""
    with drafted(repository, SERVERS) as draft, psycopg.connect(url, autocommit=True) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        ((server, major, snapshot, moment, vector, is_cluster),) = reader.execute(ABOUT).fetchall()
        if is_cluster:
            raise BackupError("a database that is spread over nodes must be backed up with the tools of its cluster")
        if major > int(embedded.MAJOR_VERSION):
            raise BackupError(f"expected PostgreSQL {embedded.MAJOR_VERSION} or older, and the server is {server}")
        draft.put(DUMP, _read_dump(url, snapshot))
        files, content = pack_files(var)
        draft.put(FILES, [content])
        return draft.finish(
            moment,
            {
                "kind": DATABASE,
                "ragd": product_version(),
                "server_version": server,
                "pgvector": vector,
                "archive": None,
                "files": files,
                "keeps_secret_key": keeps_secret_key,
                "tables": read_facts(reader),
            },
        )


def _read_dump(url: str, snapshot: str) -> Iterator[bytes]:
    target, secret = split_password(url)
    command = [str(find_wheel_binaries() / "pg_dump"), "--format=custom", "--compress=none", "--extension=vector"]
    return read_program([*command, *OPTIONS, f"--snapshot={snapshot}", f"--dbname={target}"], secret, {})


def restore_dump(repository: Repository, file: Path, backup_id: str | None) -> Backup:
    """Write the newest dump, or that of a backup, into a new file, every byte proven. Raises BackupError."""
    known = [repository.find(backup_id)] if backup_id else repository.backups()
    dumps = [backup for backup in known if backup.manifest["kind"] == DATABASE]
    if not dumps:
        raise BackupError(
            f"there is no dump in {repository.store.place}: dumps are of a PostgreSQL of your own, and of the embedded "
            "one there are whole servers, which `ragd restore FOLDER` makes",
            type="backup_missing",
            status=404,
        )
    with new_file(file) as draft:
        write_pieces(draft, repository.get(dumps[0].folder + DUMP))
    return dumps[0]


def load_dump(cluster: embedded.Cluster, dump: Iterator[bytes]) -> None:
    """Fill the empty database of a new server. Raises BackupError with what pg_restore says when it fails."""
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        connection.execute(MAKE_ROLE)  # the policies name it
    target, secret = split_password(cluster.url)
    command = [str(find_wheel_binaries() / "pg_restore"), "--exit-on-error", *OPTIONS, f"--dbname={target}"]
    feed_program(command, secret, dump)
