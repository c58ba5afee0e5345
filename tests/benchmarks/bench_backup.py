"""A server with many chunks kept and brought back: seconds, size, equality.

Run: python -m tests.benchmarks.bench_backup [CHUNKS]      (100000)

The collection of `bench_export`: documents of ten chunks of about 120 words with vectors of 384 dimensions, a keyword
index and an uploaded file for each document, in a database of its own, without a vector index. Kept in a folder of the
same disk, encrypted. The restore is a new server; equal: every table has the rows and the hash that the manifest
recorded, and `ragd check` and `ragd conformance` pass. Point in time: one document is deleted after the backup and is
there again in a server of the moment before. The drill is the restore as `ragd backup drill` does it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_export import MEGABYTE, fill, service

SECRET = "a secret of the benchmark"
BACKUP_TARGET_S, RESTORE_TARGET_S = 60, 120
DATABASE_SIZE = "SELECT sum(pg_database_size(oid))::bigint FROM pg_database"


def main() -> None:
    size = int(sys.argv[1]) if sys.argv[1:] else 100_000
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        top.chmod(0o755)
        with service(top):
            measure(size, top)


def timed(step: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = step()
    return time.perf_counter() - began, result


def measure(size: int, top: Path) -> None:
    import psycopg
    from django.db import connection

    from collections_app.models import Document
    from collections_app.services.collections.collections import get_collection
    from collections_app.services.documents.documents import delete_documents
    from ragd_site import embedded
    from ragd_site.backup.server_backup import back_up_server
    from ragd_site.backup.server_restore import restore_server
    from ragd_site.backup.storage.repository import Repository
    from ragd_site.backup.storage.stores import FolderStore
    from ragd_site.backup.wal_archive import ship_wal

    var = top / "var"
    fill("bench", size)
    with connection.cursor() as cursor:
        cursor.execute(DATABASE_SIZE)
        ((database,),) = cursor.fetchall()
    repository = Repository.open(FolderStore(top / "place"), SECRET, create=True)
    ship_wal(var, repository)
    took, backup = timed(lambda: back_up_server(var, repository))
    print(
        f"backup of {size:,} chunks: {took:.1f} s, {database / MEGABYTE:,.0f} MB of database, "
        f"{backup.stored_bytes / MEGABYTE:,.0f} MB stored (target: under {BACKUP_TARGET_S} s)"
    )
    took, content = timed(lambda: repository.verify(backup))
    print(f"every byte of it read and proven: {took:.1f} s, {content / MEGABYTE / took:,.0f} MB/s")

    gone = Document.objects.order_by("doc_id").values_list("doc_id", flat=True)[0]
    moment = datetime.now(UTC)
    delete_documents(get_collection("bench"), [gone])
    took, shipped = timed(lambda: ship_wal(var, repository))
    print(f"write-ahead log of it carried away: {took:.1f} s, {shipped.segments} complete files")

    took, restored = timed(lambda: restore_server(repository, top / "restored"))
    steps = ", ".join(f"{name} {seconds:.1f}" for name, seconds in restored.took_s.items())
    without_checks = restored.took_s["read"] + restored.took_s["replay"]
    print(f"restore: {took:.1f} s ({steps}), {without_checks:.1f} s until it runs (target: under {RESTORE_TARGET_S} s)")
    print(
        f"{restored.tables} tables with {restored.rows:,} rows: {len(restored.differences)} not equal (target: 0); "
        + ", ".join(f"ragd {name} {'passed' if passed else 'FAILED'}" for name, passed in restored.checks.items())
    )

    took, _ = timed(lambda: restore_server(repository, top / "before", until=moment, check=False))
    with psycopg.connect(embedded.ensure_running(top / "before").url) as other:
        (found,) = other.execute("SELECT count(*) FROM documents WHERE doc_id = %s", [gone]).fetchone() or (0,)
    embedded.stop(top / "before")
    print(f"restore to a moment, unchecked: {took:.1f} s; {found} of 1 deleted documents is there again (target: 1)")


if __name__ == "__main__":
    main()
