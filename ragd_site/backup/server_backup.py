"""A backup of the whole server: PostgreSQL's data folder, the write-ahead log up to one moment, the files of RAGD_VAR.

What the tables hold at that moment is counted and hashed into the manifest, so that a restore can prove itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from ragd.version import product_version
from ragd_site import embedded
from ragd_site.backup.programs import BackupError, read_program
from ragd_site.backup.repository import SERVER, Backup, Repository
from ragd_site.backup.streams import TAR_END, compress, open_tar, tar_member
from ragd_site.backup.table_facts import moment_with_facts, read_facts
from ragd_site.backup.wal_archive import (
    SEGMENT_BYTES,
    fetch_value,
    find_archive,
    read_segment,
    running_cluster,
    segments,
)
from ragd_site.runtime.programs import find_binaries, identity_of, server_account

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
