"""A backup of the whole server: PostgreSQL's data folder, the write-ahead log up to one moment, the files of RAGD_VAR.

What the tables hold at that moment is counted and hashed into the manifest, so that a restore can prove itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from ragd.version import product_version
from ragd_site import embedded
from ragd_site.backup.kept_files import FILES, pack_files
from ragd_site.backup.programs import read_program
from ragd_site.backup.storage.errors import BackupError
from ragd_site.backup.storage.repository import SERVERS, Backup, Draft, Repository, drafted
from ragd_site.backup.table_facts import moment_with_facts, read_facts
from ragd_site.backup.wal_archive import find_archive
from ragd_site.backup.wal_segments import SEGMENT_BYTES, fetch_value, read_segment, segments
from ragd_site.runtime.programs import find_binaries, identity_of, server_account

SERVER = "server"  # the kind
BASE, WAL = "base", "wal/"

RESERVE_WAL = "SELECT pg_create_physical_replication_slot(%s, true, true)"
FIRST_SEGMENT = "SELECT pg_walfile_name(restart_lsn) FROM pg_replication_slots WHERE slot_name = %s"
LAST_SEGMENT = "SELECT pg_walfile_name(pg_switch_wal() - 1)"
ABOUT = """
SELECT current_setting('server_version'), pg_size_bytes(current_setting('wal_segment_size')),
       (SELECT system_identifier::text FROM pg_control_system()),
       (SELECT extversion FROM pg_extension WHERE extname = 'vector')
"""


def back_up_server(var: Path, repository: Repository, *, keeps_secret_key: bool = True) -> Backup:
    """Back up the running embedded PostgreSQL of `var`, while it serves. Raises BackupError, and leaves no part then.

    keeps_secret_key: whether the server's secret key is the file in `var`.
    """
    cluster = embedded.read_cluster(var)
    if cluster is None or not embedded.answers(cluster):
        raise BackupError(f"no embedded PostgreSQL runs in {var}; start ragd, or set RAGD_VAR to the folder of one")
    with (
        drafted(repository, SERVERS) as draft,
        embedded.connect(cluster) as admin,
        psycopg.connect(cluster.url, autocommit=True) as reader,
    ):
        return _write(draft, var, cluster, admin, reader, keeps_secret_key)


def _write(
    draft: Draft,
    var: Path,
    cluster: embedded.Cluster,
    admin: psycopg.Connection[Any],
    reader: psycopg.Connection[Any],
    keeps_secret_key: bool,
) -> Backup:
    about = reader.execute(ABOUT).fetchone()
    if about is None or about[1] != SEGMENT_BYTES:
        raise BackupError(
            f"expected write-ahead log in segments of 16 MB, and the server has {about and about[1]} bytes"
        )
    admin.execute("CHECKPOINT")  # the log that belongs to the copy begins at the last one
    slot = f"ragd_backup_{draft.id[-6:]}"
    admin.execute(RESERVE_WAL, [slot])  # temporary: it ends with this connection, whatever happens
    first = fetch_value(admin, FIRST_SEGMENT, slot)
    archive = find_archive(admin, draft.repository)
    draft.put(BASE, _read_base(cluster))
    kept, content = pack_files(var)
    draft.put(FILES, [content])
    with moment_with_facts(reader, admin, f"ragd-{draft.id}") as (moment, point):
        last = fetch_value(admin, LAST_SEGMENT)
        for segment in segments(first, last):
            draft.put(WAL + segment, read_segment(admin, segment))
        tables = read_facts(reader)
    return draft.finish(
        moment,
        {
            "kind": SERVER,
            "ragd": product_version(),
            "server_version": about[0],
            "system_identifier": about[2],
            "pgvector": about[3],
            "point": point,
            "first_segment": first,
            "last_segment": last,
            "archive": archive,
            "files": kept,
            "keeps_secret_key": keeps_secret_key,
            "tables": tables,
        },
    )


def _read_base(cluster: embedded.Cluster) -> Iterator[bytes]:
    account = server_account(cluster.data.parent)
    program = find_binaries(cluster.data.parent, account) / "pg_basebackup"
    login = ["-h", embedded.HOST, "-p", str(cluster.port), "-U", embedded.USER, "--no-password"]
    command = [str(program), *login, "--pgdata=-", "--format=tar", "--wal-method=none", "--checkpoint=fast"]
    options = ["--no-slot", "--no-manifest", "--no-estimate-size"]
    return read_program([*command, *options], {"PGPASSWORD": cluster.password}, identity_of(account))
