"""How long a running server waits while a database of the earliest kept version is upgraded under it.

Run: python -m tests.benchmarks.bench_upgrade [--chunks 1000000]

The dump of tests/data/upgrade is restored and filled up with copies of its chunks, documents, query runs and spans.
Then `migrate` runs, and meanwhile statements as the code of before sends them are sent all the time, each from a
connection of its own. Printed are for each the longest time that it took, before and during, and how many failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import django
import psycopg
from psycopg import sql

REPOSITORY = Path(__file__).resolve().parents[2]
NAME = "bench_upgrade"
BEFORE_S = 5.0
PAUSE_S = 0.01
TARGET_S = 2.0
STATEMENTS = {
    "search chunks": "SELECT doc_id FROM chunks WHERE collection_id = 1 ORDER BY embedding <=> (SELECT embedding FROM"
    " chunks_c1_g2 LIMIT 1) LIMIT 1",
    "read a chunk": "SELECT content FROM chunks WHERE collection_id = 1 AND doc_id = 'made-7' AND chunk_index = 3",
    "change a chunk": "UPDATE chunks SET enabled = enabled WHERE collection_id = 1 AND doc_id = 'made-7' AND"
    " chunk_index = 3",
    "read a document": "SELECT title FROM documents WHERE collection_id = 1 AND doc_id = 'made-7'",
    "change a document": "UPDATE documents SET title = title WHERE collection_id = 1 AND doc_id = 'made-7'",
    "store a run": "",  # made from the columns that the table has before
    "list runs": "SELECT id FROM retrieval_app_queryrun ORDER BY created_at DESC, id DESC LIMIT 50",
}


@dataclass
class Probe:
    """One statement, again and again. longest_s: by phase. errors: those of the second phase."""

    name: str
    statement: str
    longest_s: dict[str, float] = field(default_factory=lambda: {"before": 0.0, "during": 0.0})
    errors: list[str] = field(default_factory=list)
    count: int = 0


def multiply(connection: psycopg.Connection, table: str, number: int, changes: Mapping[str, str]) -> None:
    """So many copies of the first row of a table, g = 1, 2, ... in the changes, but for columns with a sequence."""
    rows = connection.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = %s AND is_identity = 'NO'"
        " AND is_generated = 'NEVER' AND coalesce(column_default, '') NOT LIKE 'nextval%%' ORDER BY ordinal_position",
        [table],
    ).fetchall()
    names = [str(name) for (name,) in rows]
    values = [sql.SQL(changes[name]) if name in changes else sql.Identifier("row", name) for name in names]  # type: ignore[arg-type]
    connection.execute(
        sql.SQL("INSERT INTO {} ({}) SELECT {} FROM (SELECT * FROM {} LIMIT 1) row, generate_series(1, {}) g").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.SQL(", ").join(values),
            sql.Identifier(table),
            sql.Literal(number),
        )
    )


def fill(connection: psycopg.Connection, chunks: int) -> None:
    multiply(connection, "documents", chunks // 20, {"doc_id": "'made-' || g"})
    multiply(connection, "chunks_c1_g2", chunks, {"doc_id": "'made-' || (g + 19) / 20", "chunk_index": "(g - 1) % 20"})
    multiply(connection, "retrieval_app_queryrun", chunks // 20, {"id": "gen_random_uuid()"})
    multiply(connection, "spans", chunks // 5, {"span_id": "lpad(to_hex(g), 16, '0')"})


def store_statement(connection: psycopg.Connection) -> str:
    rows = connection.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'retrieval_app_queryrun'"
    ).fetchall()
    names = ", ".join(f'"{name}"' for (name,) in rows)
    values = ", ".join("gen_random_uuid()" if name == "id" else f'"{name}"' for (name,) in rows)
    return f"INSERT INTO retrieval_app_queryrun ({names}) SELECT {values} FROM retrieval_app_queryrun LIMIT 1"


class Watch:
    """All probes, each in a thread, until `stop`."""

    def __init__(self, address: str, probes: list[Probe]) -> None:
        self.address, self.probes, self.phase = address, probes, "before"
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(probe,)) for probe in probes]
        for thread in self.threads:
            thread.start()

    def _run(self, probe: Probe) -> None:
        with psycopg.connect(self.address, autocommit=True) as connection:
            while not self.stopping.wait(PAUSE_S):
                began, phase = time.monotonic(), self.phase
                try:
                    connection.execute(probe.statement)  # type: ignore[arg-type]
                except psycopg.Error as error:
                    probe.errors.append(str(error).partition("\n")[0])
                took = time.monotonic() - began
                probe.longest_s[phase] = max(probe.longest_s[phase], took)
                probe.count += 1

    def stop(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chunks", type=int, default=1_000_000)
    chunks = parser.parse_args().chunks
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ragd_site.settings")
    django.setup()
    from ragd_site.runtime.programs import find_wheel_binaries
    from tests.upgrade.test_upgrade import DATA, address

    target = address(NAME)
    with psycopg.connect(address("postgres"), autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
        server.execute(f"CREATE DATABASE {NAME} TEMPLATE template0")
        try:
            restore = [find_wheel_binaries() / "pg_restore", "--exit-on-error", "--no-owner", f"--dbname={target}"]
            subprocess.run([*restore, DATA / "ragd.dump"], check=True)
            began = time.monotonic()
            with psycopg.connect(target, autocommit=True) as connection:
                fill(connection, chunks)
                connection.execute("ANALYZE")
                statements = STATEMENTS | {"store a run": store_statement(connection)}
                size = connection.execute("SELECT pg_size_pretty(pg_database_size(current_database()))").fetchone()
            assert size is not None
            print(f"{chunks:,} chunks, {size[0]}, filled in {time.monotonic() - began:.0f} s", flush=True)
            probes = [Probe(name, statement) for name, statement in statements.items()]
            watch = Watch(target, probes)
            try:
                time.sleep(BEFORE_S)
                watch.phase = "during"
                began = time.monotonic()
                with tempfile.TemporaryDirectory() as var:
                    values = os.environ | {
                        "DATABASE_URL": target,
                        "RAGD_VAR": var,
                        "RAGD_SECRET_KEY": "upgrade-fixture",
                    }
                    command = [sys.executable, "manage.py", "migrate", "-v0"]
                    subprocess.run(command, check=True, cwd=REPOSITORY, env=values)
                took = time.monotonic() - began
            finally:
                watch.stop()
        finally:
            server.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
    print(f"migrate took {took:.1f} s\n\n{'statement':20} {'sent':>7} {'before':>10} {'during':>10} {'failed':>7}")
    for probe in probes:
        before, during = (probe.longest_s[phase] * 1000 for phase in ("before", "during"))
        print(f"{probe.name:20} {probe.count:7,} {before:7.0f} ms {during:7.0f} ms {len(probe.errors):7,}")
    longest = max(probes, key=lambda probe: probe.longest_s["during"])
    print(
        f"longest wait {longest.longest_s['during']:.2f} s ({longest.name}), target at most {TARGET_S:g} s;"
        f" statements that failed: {sum(len(probe.errors) for probe in probes)}, target 0"
    )
    for probe in probes:
        for error in dict.fromkeys(probe.errors):
            print(f"    {probe.name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
