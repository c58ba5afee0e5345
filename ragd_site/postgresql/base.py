"""Django's PostgreSQL backend with one thing more: each statement runs as who asks (`collections_app.access.context`).

The server itself runs as the login role. Everybody else runs as `ragd_reader`, which row-level security binds, with the
setting ragd.access. Both are set when they differ from what the connection has, before the first statement after that.
On the coordinator of a cluster the setting reaches the nodes only within a transaction that says it again; a statement
over chunks that lacks it finds none there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from django.conf import settings
from django.db.backends.postgresql import base
from psycopg import ClientCursor
from psycopg import Cursor as ServerCursor
from psycopg.pq import TransactionStatus

from collections_app.access.context import bind, current_setting, tell_nodes
from ragd.store.placement import HAS_CITUS
from ragd_site.broker import describe_broker
from ragd_site.embedded import USER, Cluster, ensure_running
from ragd_site.runtime.programs import EmbeddedError

CHUNKS = "chunks_c"  # how the names of all tables of chunks begin
PREPARED_AFTER = 3  # executions of a statement on one connection


@cache
def start_embedded(var: Path) -> Cluster:
    """Start the embedded PostgreSQL of the folder, once in a process; end the process with a sentence if it cannot."""
    try:
        cluster = ensure_running(var)
    except EmbeddedError as error:
        sys.exit(f"ragd does not start.\n{error}")
    if cluster.url != settings.DATABASE_URL:  # it is new, or its port was taken
        if settings.CELERY_BROKER_TRANSPORT_OPTIONS.get("conn_string") == settings.DATABASE_URL:
            broker = describe_broker("", cluster.url)
            settings.CELERY_BROKER_URL, settings.CELERY_BROKER_TRANSPORT_OPTIONS = broker
        settings.DATABASE_URL = cluster.url
    return cluster


class Cursor(base.Cursor):
    """Django's cursor, which writes values into the text of a statement. With `prepares` the driver's own, which sends
    them beside it, so that the database keeps the plan of a statement that comes again."""

    prepares = False

    @property
    def _driver(self) -> Any:
        return ServerCursor if self.prepares else ClientCursor

    @property
    def _query_cls(self) -> Any:
        return self._driver._query_cls

    def _get_prepared(self, *args: Any, **kwargs: Any) -> Any:
        return self._driver._get_prepared(self, *args, **kwargs)

    def _execute_send(self, *args: Any, **kwargs: Any) -> None:
        self._driver._execute_send(self, *args, **kwargs)


class DatabaseWrapper(base.DatabaseWrapper):
    """_bound: the access that the driver's connection has, kept with it while it waits in the pool; None: not known,
    as after a rollback, which takes settings back.

    coordinators: (host, port, database) -> whether it has Citus, asked once in a process.
    """

    coordinators: ClassVar[dict[tuple[str, int, str], bool]] = {}

    @property
    def _bound(self) -> str | None:
        return getattr(self.connection, "ragd_bound", None)

    @_bound.setter
    def _bound(self, value: str | None) -> None:
        if self.connection is not None:
            self.connection.ragd_bound = value

    def get_connection_params(self) -> dict[str, Any]:
        """The same, with the embedded PostgreSQL running where it is the database."""
        if var := self.settings_dict.get("EMBEDDED"):
            cluster = start_embedded(var)
            self.settings_dict |= {"USER": USER, "PASSWORD": cluster.password, "PORT": str(cluster.port)}
        params: dict[str, Any] = super().get_connection_params()
        return params | {"cursor_factory": Cursor, "prepare_threshold": PREPARED_AFTER}

    def create_cursor(self, name: str | None = None) -> Any:
        wanted = current_setting()
        if wanted != self._bound:
            self._bound = None
            bind(self.connection, wanted)
            self._bound = wanted
        return super().create_cursor(name)

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        connection = super().get_new_connection(conn_params)
        database = (connection.info.host, connection.info.port, connection.info.dbname)
        if database not in self.coordinators:
            self.coordinators[database] = connection.execute(HAS_CITUS).fetchone()[0]
            connection.rollback()
        if self.coordinators[database] and self._on_nodes not in self.execute_wrappers:
            self.execute_wrappers.append(self._on_nodes)
        return connection

    def _on_nodes(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        if not self._bound or CHUNKS not in str(sql):
            return execute(sql, params, many, context)
        if self.connection.info.transaction_status != TransactionStatus.IDLE:
            tell_nodes(self.connection, self._bound)
            return execute(sql, params, many, context)
        with self.connection.transaction():
            tell_nodes(self.connection, self._bound)
            return execute(sql, params, many, context)

    def _close(self) -> Any:
        """The pool rolls back what is open."""
        if self.connection is not None and self.connection.info.transaction_status != TransactionStatus.IDLE:
            self._bound = None
        return super()._close()  # type: ignore[misc]  # Django's stubs leave it out

    def _rollback(self) -> None:
        self._bound = None
        super()._rollback()  # type: ignore[misc]  # Django's stubs leave it out

    def _savepoint_rollback(self, sid: str) -> None:
        """Without a cursor, which would bind first: a broken transaction takes nothing but its end."""
        with self.wrap_database_errors:
            self.connection.execute(self.ops.savepoint_rollback_sql(sid))
        self._bound = None
