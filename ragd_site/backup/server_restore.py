"""A backup of a server brought back as a new server, in a folder that was empty before.

A drill: the newest backup restored beside the server, compared with its manifest, checked, and removed again.

A backup of a PostgreSQL of one's own: a dump of one moment, and what the tables hold in that very snapshot.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

import psycopg

from collections_app.collections.export import open_export
from collections_app.collections.export_reader import Archive
from collections_app.jobs.operations import OnProgress
from collections_app.jobs.workers import record_drill
from collections_app.models import Collection
from ragd.version import product_version
from ragd_site import embedded
from ragd_site.backup.programs import BackupError, DamagedError, feed_program, only_one, read_program, split_password
from ragd_site.backup.repository import COLLECTION, DATABASE, Backup, Repository
from ragd_site.backup.streams import PieceReader, decompress, new_file, write_pieces
from ragd_site.backup.table_facts import differences, read_facts
from ragd_site.backup.wal_archive import KEPT_FILES, LOGIN_FILE, Reach, find_reach, read_kept_files, write_segment
from ragd_site.environment import REPOSITORY
from ragd_site.postgresql.row_security import MAKE_ROLE
from ragd_site.runtime.accounts import hand_over
from ragd_site.runtime.programs import EmbeddedError, find_wheel_binaries, server_account


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


LATEST = "latest"
# of PostgreSQL's data folder: its log of the time before
LEFT_OUT = "log"
MIGRATE = ("migrate", "--verbosity=0")  # the backup may come from an earlier ragd
CHECKS = ("consistency", "conformance")


@dataclass(slots=True)
class Restored:
    """tables, rows: what the new server holds. differences: from the manifest, one sentence a table; [] where it is
    equal, or where another moment than the backup's own was restored, which the manifest says nothing of.

    checks: name -> whether it passed. took_s: seconds by step.
    """

    folder: Path
    backup: Backup
    moment: datetime
    tables: int = 0
    rows: int = 0
    is_compared: bool = False
    differences: list[str] = field(default_factory=list)
    checks: dict[str, bool] = field(default_factory=dict)
    took_s: dict[str, float] = field(default_factory=dict)

    @property
    def has_passed(self) -> bool:
        return not self.differences and all(self.checks.values())

    def as_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "backup": self.backup.id,
            "moment": self.moment.isoformat(),
            "tables": self.tables,
            "rows": self.rows,
            "compared": self.is_compared,
            "differences": self.differences,
            "checks": self.checks,
            "took_s": self.took_s,
            "passed": self.has_passed,
        }


def restore_server(
    repository: Repository,
    folder: Path,
    *,
    backup_id: str | None = None,
    until: datetime | str | None = None,
    check: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> Restored:
    """Make a server of a backup, the newest unless another is named, in a folder that is empty or not there.

    until: the moment to bring back, "latest" for all that the archive holds, None for the backup's own. The server is
    stopped afterwards, and starts with RAGD_VAR=folder. Its login file is written last: what was killed, or is not
    equal to the manifest, never starts by itself. What fails leaves the folder empty. Raises BackupError and
    EmbeddedError.
    """
    check_is_new(folder)
    backup, reach = choose_backup(repository, backup_id, until)
    with embedded.locked(folder):
        restored = Restored(folder, backup, until if isinstance(until, datetime) else backup.moment)
        if until == LATEST and reach is not None:
            restored.moment = reach.until
        try:
            _restore(repository, restored, reach if until is not None else None, until, check, say)
        except BaseException:  # nothing half that a second try would be refused for
            remove_content(folder)
            raise
    return restored


def check_is_new(folder: Path) -> None:
    """Raises BackupError for a folder that holds anything, and for a file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BackupError(
            f"a restore goes into a new or empty folder, and {folder} holds something; name another folder. Nothing was"
            " changed",
            type="folder_not_empty",
        )


def choose_backup(
    repository: Repository, backup_id: str | None, until: datetime | str | None
) -> tuple[Backup, Reach | None]:
    """The backup that the moment is restored from, with what follows it in the archive. Raises BackupError."""
    try:
        known = [repository.find(backup_id)] if backup_id else repository.backups()
    except DamagedError as error:
        raise DamagedError(f"{error}. --backup ID restores another; `ragd backup list` shows them") from None
    known = [backup for backup in known if backup.kind != COLLECTION]
    if not known:
        raise BackupError(
            f"there is no complete backup of a server in {repository.store.address}", type="backup_missing", status=404
        )
    if until is None:
        return known[0], None
    if isinstance(until, str):
        return known[0], find_reach(repository, known[0])
    earlier = [backup for backup in known if backup.moment <= until]
    if not earlier:
        raise BackupError(
            f"the earliest moment that can be restored here is {known[-1].moment.isoformat()}, that of the backup "
            f"{known[-1].id}, and {until.isoformat()} is before it",
            type="moment_not_there",
        )
    reach = find_reach(repository, earlier[0])
    if reach is None or reach.until < until:
        last = reach.until if reach else earlier[0].moment
        raise BackupError(
            f"after the backup {earlier[0].id} the write-ahead log was kept until {last.isoformat()}, and "
            f"{until.isoformat()} is later. `manage.py ragd backup wal` keeps it; --to latest takes all that there is",
            type="moment_not_there",
        )
    return earlier[0], reach


def _restore(
    repository: Repository,
    restored: Restored,
    reach: Reach | None,
    until: datetime | str | None,
    check: bool,
    say: Callable[[str], None],
) -> None:
    folder, backup = restored.folder, restored.backup
    clock = time.monotonic()

    def timed(step: str) -> None:
        nonlocal clock
        restored.took_s[step], clock = round(time.monotonic() - clock, 3), time.monotonic()

    say(f"reading the backup {backup.id}")
    home = embedded.choose_home(folder)
    login = _write_kept_files(backup, folder)
    cluster = embedded.Cluster(home / "data", embedded.free_port(), login.get("password") or secrets.token_urlsafe(24))
    try:
        if backup.kind == DATABASE:
            embedded.start_new(cluster)
            load_dump(cluster, repository.read(backup))
            timed("load")
        else:
            _extract(repository, backup, reach, cluster.data)
            timed("read")
            say("replaying the write-ahead log")
            embedded.recover(cluster, _goal(backup, reach, until))
            timed("replay")
        if check:
            say("comparing what the tables hold")
            _compare(cluster, restored, is_own_moment=reach is None)
            timed("compare")
            if CHECKS:
                _manage(folder, cluster, *MIGRATE)
            for name in CHECKS:
                say(f"running ragd check {name}")
                restored.checks[name] = _manage(folder, cluster, "ragd", "check", name, "--json")
            timed("checks")
    finally:
        embedded.stop_cluster(cluster)
    if restored.has_passed:
        embedded.write_cluster(folder, cluster)


def _write_kept_files(backup: Backup, folder: Path) -> dict[str, Any]:
    """For their owner alone, but the login file, whose values are returned: {} without one."""
    texts = {name: text for name, text in backup.manifest["files"].items() if name in KEPT_FILES}
    login = json.loads(texts.pop(LOGIN_FILE, "{}"))
    for name, text in texts.items():
        embedded.write_private(folder / name, text)
    return dict(login)


def _extract(repository: Repository, backup: Backup, reach: Reach | None, data: Path) -> None:
    """The data folder as it was copied, with the write-ahead log that follows."""
    extract(decompress(repository.read(backup)), data)
    for name in reach.names if reach else ():
        content = decompress(repository.get(name))
        write_segment(name, content, data / "pg_wal", backup.manifest["system_identifier"])
    hand_over([data], server_account(data.parent))


def _goal(backup: Backup, reach: Reach | None, until: datetime | str | None) -> dict[str, str]:
    """PostgreSQL's settings that say how far the log is replayed."""
    goal = {"restore_command": "/bin/false", "recovery_target_action": "promote"}
    if reach is None:
        goal["recovery_target_name"] = backup.manifest["point"]
    elif isinstance(until, datetime):
        goal["recovery_target_time"] = until.astimezone(UTC).isoformat()
    return goal


def extract(tar: Iterator[bytes], data: Path) -> None:
    """PostgreSQL's data folder of a base backup. Raises DamagedError for what is no such tar."""
    data.mkdir(mode=0o700)
    reader = PieceReader(tar)
    try:
        with tarfile.open(fileobj=cast(BinaryIO, reader), mode="r|", bufsize=1 << 20) as archive:
            for member in archive:
                if PurePosixPath(member.name).parts[:1] != (LEFT_OUT,):
                    archive.extract(member, data, filter="data")
    except (tarfile.TarError, EOFError) as error:
        raise DamagedError(f"the base backup is no tar that can be read: {error}; take another backup") from None
    reader.exhaust()


def _compare(cluster: embedded.Cluster, restored: Restored, *, is_own_moment: bool) -> None:
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        found = read_facts(connection)
    restored.tables, restored.rows = len(found), sum(table["rows"] for table in found.values())
    if is_own_moment:
        restored.is_compared = True
        restored.differences = differences(restored.backup.manifest["tables"], found)


def _manage(folder: Path, cluster: embedded.Cluster, *arguments: str) -> bool:
    """A command of manage.py on the new server: whether it ended with status 0, False for 1. Raises EmbeddedError."""
    variables = {key: value for key, value in os.environ.items() if key != "RAGD_PROCESS"}
    variables |= {"RAGD_VAR": str(folder), "DATABASE_URL": cluster.url, "DATABASE_REPLICA_URL": ""}
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=REPOSITORY,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode not in (0, 1) or (done.returncode == 1 and not done.stdout):
        said = done.stderr.strip()[-2000:]
        raise EmbeddedError(f"`manage.py {' '.join(arguments)}` could not run on the restored server: {said}")
    return done.returncode == 0


def remove_server(folder: Path) -> None:
    """A restored server with all that belongs to it; its PostgreSQL does not run."""
    if folder.exists():
        remove_content(folder)
        shutil.rmtree(folder, ignore_errors=True)


def remove_content(folder: Path) -> None:
    """What a restore wrote into a folder that was empty."""
    shutil.rmtree(embedded.home_folder(folder), ignore_errors=True)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


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
