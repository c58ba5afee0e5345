"""One moment of the database, read over a connection of its own while writers go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
from django.db import connection as current
from psycopg import IsolationLevel

from collections_app.row_access import bind, current_setting

READER_NAME = "ragd reads {collection}"  # of the connection, so that a deletion can end it
IN_UTC = "SET LOCAL TimeZone = 'UTC'"


class Snapshot:
    """A read-only transaction at REPEATABLE READ, as who opens it. It begins with the first statement; `close` ends it.

    Every reader here holds one row at a time: rows come by COPY, which neither side gathers.
    """

    def __init__(self, collection_id: int) -> None:
        provided = current.get_connection_params()
        selected = {
            name: value for name, value in provided.items() if name not in ("context", "cursor_factory")
        }  # Django's
        selected["application_name"] = READER_NAME.format(collection=collection_id)
        self.connection: psycopg.Connection[Any] = psycopg.connect(**selected, autocommit=True)
        bind(self.connection, current_setting())
        self.connection.autocommit = False
        self.connection.isolation_level = IsolationLevel.REPEATABLE_READ
        self.connection.read_only = True
        self.execute(IN_UTC)

    def close(self) -> None:
        self.connection.close()

    def execute(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        self.connection.execute(sql, params)

    def row(self, sql: str, params: Mapping[str, Any] | None = None) -> tuple[Any, ...] | None:
        """The first row, or None."""
        rows: tuple[Any, ...] | None = self.connection.execute(sql, params).fetchone()
        return rows

    def stream(self, select: str, types: Sequence[str], params: Mapping[str, Any] | None = None) -> Iterator[Any]:
        yield from stream(self.connection, select, types, params)


def stream(
    connection: psycopg.Connection[Any], select: str, types: Sequence[str], params: Mapping[str, Any] | None = None
) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, one at a time. types: PostgreSQL's names of the columns' types; bytea reads any as bytes."""
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY ({select}) TO STDOUT (FORMAT BINARY)", params) as copy,
    ):
        copy.set_types(types)
        yield from copy.rows()
