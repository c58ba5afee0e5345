"""What a database holds: for every table its rows, and a hash over all of them in no order.

The hash is the sum of 64 bits of SHA-256 of the rows, column by column in the form in which PostgreSQL sends values.
So it depends on every column of every row, and not on where the rows lie or on which server. It finds what was lost or
changed by mistake; against intent there is the key.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from ragd_site.backup.programs import BackupError

Facts = dict[str, dict[str, Any]]

QUIET_WITHIN_S = 600.0
LOOK_EVERY_S = 0.02
# unlogged tables are empty after any restore
TABLES = """
SELECT n.nspname, c.relname,
       coalesce(array_agg(a.attname ORDER BY a.attnum) FILTER (WHERE a.attname IS NOT NULL), '{}'),
       coalesce(array_agg(nullif(t.typsend::oid, 0)::regproc::text ORDER BY a.attnum)
                FILTER (WHERE a.attname IS NOT NULL), '{}')
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
GROUP BY n.nspname, c.relname ORDER BY n.nspname, c.relname
"""
FACTS = """
SELECT count(*), coalesce(sum(('x' || left(encode(sha256({row}), 'hex'), 16))::bit(64)::bigint::numeric), 0)::text
FROM ONLY {table}
"""
# of a column: a null is told from an empty value
SENT = "coalesce('\\x01'::bytea || {send}({column}), '\\x00')"
SHOWN = "coalesce('\\x01'::bytea || convert_to({column}::text, 'UTF8'), '\\x00')"
SNAPSHOT = "SELECT pg_current_snapshot()::text"
# every transaction that changed something holds a lock on its number until nobody can see it running any more
WRITERS = "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted"


def fetch_value(connection: psycopg.Connection[Any], statement: str, *values: object) -> Any:
    """The first column of the first row; None when there is none."""
    row = connection.execute(statement, values).fetchone()
    return row[0] if row else None


def read_facts(connection: psycopg.Connection[Any]) -> Facts:
    """Name of a table with its schema -> {"rows": number, "hash": decimal digits}, in one snapshot where the
    connection is in a transaction of REPEATABLE READ."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        facts: Facts = {}
        for schema, table, columns, sends in cursor.execute(TABLES).fetchall():
            parts = [
                sql.SQL(SENT if send else SHOWN).format(column=sql.Identifier(column), send=sql.SQL(send or ""))
                for column, send in zip(columns, sends, strict=True)
            ]
            row = sql.SQL(" || ").join(parts) if parts else sql.SQL("'\\x'::bytea")
            statement = sql.SQL(FACTS).format(row=row, table=sql.Identifier(schema, table))
            rows, digest = cursor.execute(statement).fetchone() or (0, "0")
            facts[f"{schema}.{table}"] = {"rows": rows, "hash": digest}
    return facts


def differences(expected: Mapping[str, Mapping[str, Any]], found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One sentence per table that is not as it was; [] when all are."""
    result = []
    for name in sorted({*expected, *found}):
        before, after = expected.get(name), found.get(name)
        if before is None or after is None:
            result.append(f"{name} is {'new' if before is None else 'missing'}")
        elif before["rows"] != after["rows"]:
            result.append(f"{name} has {after['rows']:,} rows in place of {before['rows']:,}")
        elif before["hash"] != after["hash"]:
            result.append(f"{name} has {after['rows']:,} rows as before, and not the same content")
    return result


@contextmanager
def moment_with_facts(
    reader: psycopg.Connection[Any], admin: psycopg.Connection[Any], name: str
) -> Iterator[tuple[datetime, str]]:
    """A point of the write-ahead log that a restore can stop at, and a snapshot in `reader` of that very moment.

    Yields (the time, the point's name). reader: a connection that is in no transaction. admin: another, in autocommit.
    Nothing is locked: a point counts when no transaction ended between the snapshot and a look after the point, and
    none that writes was under way; else it is tried again. Raises BackupError when there is no such moment in ten
    minutes.
    """
    ends_at = time.monotonic() + QUIET_WITHIN_S
    for attempt in count():
        point = f"{name}-{attempt}"  # a restore stops at the first point of a name
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            before = fetch_value(reader, SNAPSHOT)
            fetch_value(admin, "SELECT pg_create_restore_point(%s)::text", point)
            writers, after = fetch_value(admin, WRITERS), fetch_value(admin, SNAPSHOT)
            if not writers and before == after:
                yield fetch_value(admin, "SELECT clock_timestamp()"), point
                return
        finally:
            reader.execute("ROLLBACK")
        if time.monotonic() > ends_at:
            raise BackupError(
                f"in {QUIET_WITHIN_S:g} s there was no moment without a transaction that writes, so what the backup "
                "holds cannot be counted; find what holds one open in pg_stat_activity, or take it at a quieter time"
            )
        time.sleep(LOOK_EVERY_S)
