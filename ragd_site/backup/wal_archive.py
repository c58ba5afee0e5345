"""The write-ahead log after a backup, carried away bit by bit, for restores to any moment.

A replication slot makes PostgreSQL keep what was not carried away yet, up to its max_slot_wal_keep_size. The archive
has the name of the slot, so that a restored server, which has no slot, never writes into the archive of another.

Files of PostgreSQL's write-ahead log (WAL), 16 MB each, by their names.

A backup of the whole server: PostgreSQL's data folder, the write-ahead log up to one moment, the files of RAGD_VAR.

What the tables hold at that moment is counted and hashed into the manifest, so that a restore can prove itself.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg

from ragd.version import product_version
from ragd_site import embedded
from ragd_site.backup.programs import BackupError, DamagedError, only_one, read_program
from ragd_site.backup.repository import SERVER, Backup, Repository
from ragd_site.backup.streams import TAR_END, compress, open_tar, tar_member
from ragd_site.backup.table_facts import fetch_value, moment_with_facts, read_facts
from ragd_site.runtime.programs import find_binaries, identity_of, server_account

SEGMENT_BYTES = 16 << 20
SEGMENT = re.compile(r"[0-9A-F]{24}")
READ_SEGMENT = "SELECT pg_read_binary_file('pg_wal/' || %s, 0, %s)"
PLACE = slice(8, 16)  # in the header of a segment: where in the log it begins, in bytes
SYSTEM = slice(24, 32)  # the identifier of the server that wrote it


def segment_number(segment: str) -> int:
    """Its place in the log. Raises ValueError for a name that is none."""
    if not SEGMENT.fullmatch(segment):
        raise ValueError(segment)
    return (int(segment[8:16], 16) << 8) + int(segment[16:], 16)


def segment_of(name: str) -> str:
    """The segment that a file of an archive holds."""
    return name.rpartition("/")[2].partition(".")[0]


def segments(first: str, last: str) -> Iterator[str]:
    """Names from one to another of the same timeline, both included; none when `last` is earlier."""
    for number in range(segment_number(first), segment_number(last) + 1):
        yield f"{first[:8]}{number >> 8:08X}{number & 0xFF:08X}"


def read_segment(connection: psycopg.Connection[Any], segment: str, length: int = SEGMENT_BYTES) -> bytes:
    """The first bytes of a segment that the server still has."""
    with connection.cursor(binary=True) as cursor:
        row = cursor.execute(READ_SEGMENT, [segment, length]).fetchone()
    return bytes(row[0]) if row else b""


def write_segment(name: str, content: Iterable[bytes], folder: Path, system: str) -> None:
    """Write a file of an archive as a segment, with zeros after a beginning.

    system: the identifier of the server that it must be of. Raises DamagedError for another segment.
    """
    segment = segment_of(name)
    with (folder / segment).open("w+b") as file:
        for piece in content:
            file.write(piece)
        file.truncate(SEGMENT_BYTES)
        file.seek(0)
        header = file.read(SYSTEM.stop)
    place, writer = (int.from_bytes(header[part], sys.byteorder) for part in (PLACE, SYSTEM))
    if (place, str(writer)) != (segment_number(segment) * SEGMENT_BYTES, system):
        raise DamagedError(f"{name} holds another part of a write-ahead log; take another backup")


ARCHIVES = "wal/"
END = "end.json"
COMPLETE, PARTIAL = ".gz", ".partial.gz"
LOCK_FILE = "wal.lock"

FIND_SLOT = "SELECT slot_name FROM pg_replication_slots WHERE starts_with(slot_name, %s) ORDER BY slot_name LIMIT 1"
SLOT_STATE = "SELECT wal_status, pg_walfile_name(restart_lsn) FROM pg_replication_slots WHERE slot_name = %s"
CREATE_SLOT = "SELECT pg_create_physical_replication_slot(%s, true)"
DROP_SLOT = "SELECT pg_drop_replication_slot(%s)"
ADVANCE_SLOT = "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)"
# a transaction after the time that is promised: a restore to that time stops before it
MARK = "SELECT clock_timestamp(), pg_logical_emit_message(true, 'ragd', 'backup')"
POSITION = """
SELECT lsn::text, pg_walfile_name(lsn - 1), ((lsn - 1) - '0/0'::pg_lsn)::bigint %% %s + 1
FROM pg_current_wal_flush_lsn() lsn
"""


@dataclass(frozen=True, slots=True)
class Shipped:
    """until: a restore can go up to this time. has_begun: a new archive, which the next backup is the first for."""

    archive: str
    until: datetime
    segments: int
    has_begun: bool


@dataclass(frozen=True, slots=True)
class Reach:
    """The log after a backup, without a gap. names: in the repository, in order; the last may be a part."""

    names: list[str]
    until: datetime


def slot_prefix(repository: Repository) -> str:
    """Of the slots of archives in this repository."""
    return f"ragd_wal_{repository.id}_"


def find_archive(connection: psycopg.Connection[Any], repository: Repository) -> str | None:
    """The archive that the server's log goes to now; None where there is none."""
    return fetch_value(connection, FIND_SLOT, slot_prefix(repository))  # type: ignore[no-any-return]


def running_cluster(var: Path) -> embedded.Cluster:
    """Raises BackupError where no embedded PostgreSQL runs."""
    cluster = embedded.read_cluster(var)
    if cluster is None or not embedded.answers(cluster):
        raise BackupError(f"no embedded PostgreSQL runs in {var}; start ragd, or set RAGD_VAR to the folder of one")
    return cluster


def ship_wal(var: Path, repository: Repository) -> Shipped:
    """Store what was written since the last time. Raises BackupError.

    The first time, and after the server threw away what nobody fetched in time, an archive begins: restores to a
    moment need a backup that was taken after that.
    """
    cluster = running_cluster(var)
    try:
        with only_one(var, LOCK_FILE), embedded.connect(cluster) as admin:
            return _ship(admin, repository)
    except psycopg.Error as error:
        raise BackupError(f"PostgreSQL refused a step: {str(error).strip()}") from error


def _ship(admin: psycopg.Connection[Any], repository: Repository) -> Shipped:
    admin.execute("SET synchronous_commit = on")
    archive, has_begun = _open_archive(admin, repository)
    _, first = admin.execute(SLOT_STATE, [archive]).fetchone() or ("", "")
    ((until, _),) = admin.execute(MARK).fetchall()
    ((lsn, current, length),) = admin.execute(POSITION, [SEGMENT_BYTES]).fetchall()
    is_full = length == SEGMENT_BYTES
    folder = f"{ARCHIVES}{archive}/"
    known = repository.names(folder)
    complete = [
        segment
        for segment in segments(first, current)
        if (is_full or segment != current) and folder + segment + COMPLETE not in known
    ]
    for segment in complete:
        repository.put(folder + segment + COMPLETE, compress([read_segment(admin, segment)]))
    if not is_full:
        repository.put(folder + current + PARTIAL, compress([read_segment(admin, current, length)]))
    repository.put_json(folder + END, {"until": until.isoformat(), "lsn": lsn, "segment": current})
    for name in known:
        if name.endswith(PARTIAL) and (is_full or name != folder + current + PARTIAL):
            repository.remove(name)
    admin.execute(ADVANCE_SLOT, [archive, lsn])
    return Shipped(archive, until, len(complete), has_begun)


def _open_archive(admin: psycopg.Connection[Any], repository: Repository) -> tuple[str, bool]:
    """(the slot, whether it is new)."""
    archive = find_archive(admin, repository)
    if archive is not None:
        status, _ = admin.execute(SLOT_STATE, [archive]).fetchone() or ("lost", None)
        if status != "lost":
            return archive, False
        admin.execute(DROP_SLOT, [archive])
    archive = slot_prefix(repository) + secrets.token_hex(4)
    admin.execute(CREATE_SLOT, [archive])
    return archive, True


def end_archive(var: Path, repository: Repository) -> bool:
    """Give up the slot, so that the server keeps no log for it; False where there was none."""
    with embedded.connect(running_cluster(var)) as admin:
        archive = find_archive(admin, repository)
        if archive is not None:
            admin.execute(DROP_SLOT, [archive])
    return archive is not None


def find_reach(repository: Repository, backup: Backup) -> Reach | None:
    """What the archive holds after a backup; None when it holds nothing that follows it."""
    archive = backup.manifest["archive"]
    if not archive:
        return None
    folder = f"{ARCHIVES}{archive}/"
    stored = repository.names(folder)
    if folder + END not in stored:
        return None
    end = repository.get_json(folder + END)
    names = []
    for segment in islice(segments(backup.manifest["last_segment"], end["segment"]), 1, None):
        name = folder + segment
        found = name + (COMPLETE if name + COMPLETE in stored else PARTIAL)
        if found not in stored:
            raise BackupError(
                f"the write-ahead log in {repository.store.address} has a gap: {name} is missing, so no later moment "
                f"than that of the backup {backup.id} can be restored from it",
                type="backup_missing",
            )
        names.append(found)
    until = datetime.fromisoformat(end["until"])
    return Reach(names, until) if until > backup.moment else None


def remove_before(repository: Repository, kept: list[Backup]) -> int:
    """Remove what none of these backups needs of the archives; how many files. kept: at least one, the newest first.

    An archive that none of them names goes when it ended before the newest of them: else it has begun after it.
    """
    first: dict[str, int] = {}
    for backup in kept:
        archive = backup.manifest["archive"]
        if archive:
            number = segment_number(backup.manifest["first_segment"])
            first[archive] = min(number, first.get(archive, number))
    names = [(name, *name.split("/")[1:]) for name in repository.names(ARCHIVES)]
    over = {
        archive
        for name, archive, file in names
        if file == END
        and archive not in first
        and datetime.fromisoformat(repository.get_json(name)["until"]) < kept[0].moment
    }
    old = [
        name
        for name, archive, file in names
        if archive in over or (file != END and segment_number(segment_of(file)) < first.get(archive, 0))
    ]
    repository.remove(*old)
    return len(old)


LOGIN_FILE = "postgres.json"
KEPT_FILES = (LOGIN_FILE, "secret_key", "secret_key_earlier", "receipt_key", "admin_password", "erasures.jsonl")

RESERVE_WAL = "SELECT pg_create_physical_replication_slot(%s, true, true)"
FIRST_SEGMENT = "SELECT pg_walfile_name(restart_lsn) FROM pg_replication_slots WHERE slot_name = %s"
LAST_SEGMENT = "SELECT pg_walfile_name(pg_switch_wal() - 1)"
ABOUT = """
SELECT current_setting('server_version'), pg_size_bytes(current_setting('wal_segment_size')),
       (SELECT system_identifier::text FROM pg_control_system()),
       (SELECT extversion FROM pg_extension WHERE extname = 'vector')
"""


def read_kept_files(var: Path) -> dict[str, str]:
    """What RAGD_VAR holds beside the database and cannot be made again: the texts of the files that there are."""
    return {name: (var / name).read_text(encoding="utf-8") for name in KEPT_FILES if (var / name).exists()}


def back_up_server(var: Path, repository: Repository, *, keeps_secret_key: bool = True) -> Backup:
    """Back up the running embedded PostgreSQL of `var`, while it serves. Raises BackupError, and leaves no part then.

    keeps_secret_key: whether the server's secret key is the file in `var`.
    """
    cluster = running_cluster(var)
    values = {"ragd": product_version(), "files": read_kept_files(var), "keeps_secret_key": keeps_secret_key}
    with embedded.connect(cluster) as admin, psycopg.connect(cluster.url, autocommit=True) as reader:
        values["archive"] = find_archive(admin, repository)
        return repository.write(SERVER, compress(_read_server(cluster, admin, reader, values)), values)


def _read_server(
    cluster: embedded.Cluster, admin: psycopg.Connection[Any], reader: psycopg.Connection[Any], values: dict[str, Any]
) -> Iterator[bytes]:
    """The data folder as tar, with the log that belongs to it. values: takes what is learned of it meanwhile."""
    about = reader.execute(ABOUT).fetchone()
    if about is None or about[1] != SEGMENT_BYTES:
        raise BackupError(
            f"expected write-ahead log in segments of 16 MB, and the server has {about and about[1]} bytes"
        )
    admin.execute("CHECKPOINT")  # the log that belongs to the copy begins at the last one
    name = secrets.token_hex(4)
    slot = f"ragd_backup_{name}"
    admin.execute(RESERVE_WAL, [slot])  # temporary: it ends with this connection, whatever happens
    first = fetch_value(admin, FIRST_SEGMENT, slot)
    yield from open_tar(_read_base(cluster))
    with moment_with_facts(reader, admin, f"ragd-{name}") as (moment, point):
        last = fetch_value(admin, LAST_SEGMENT)
        for segment in segments(first, last):
            yield from tar_member(f"pg_wal/{segment}", read_segment(admin, segment))
        values |= {
            "moment": moment.isoformat(),
            "server_version": about[0],
            "system_identifier": about[2],
            "pgvector": about[3],
            "point": point,
            "first_segment": first,
            "last_segment": last,
            "tables": read_facts(reader),
        }
    yield TAR_END


def _read_base(cluster: embedded.Cluster) -> Iterator[bytes]:
    account = server_account(cluster.data.parent)
    program = find_binaries(cluster.data.parent, account) / "pg_basebackup"
    login = ["-h", embedded.HOST, "-p", str(cluster.port), "-U", embedded.USER, "--no-password"]
    command = [str(program), *login, "--pgdata=-", "--format=tar", "--wal-method=none", "--checkpoint=fast"]
    options = ["--no-slot", "--no-manifest", "--no-estimate-size"]
    return read_program([*command, *options], {"PGPASSWORD": cluster.password}, identity_of(account))
