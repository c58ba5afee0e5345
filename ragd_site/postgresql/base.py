"""Django's PostgreSQL backend with one thing more: each statement runs as who asks (`collections_app.access_context`).

The server itself runs as the login role. Everybody else runs as `ragd_reader`, which row-level security binds, with the
setting ragd.access. Both are set when they differ from what the connection has, before the first statement after that.
"""

from __future__ import annotations

from typing import Any

from django.db.backends.postgresql import base

from collections_app.row_access import bind, current_setting


class DatabaseWrapper(base.DatabaseWrapper):
    """_bound: the access that the connection has; None: not known, as after a rollback, which takes settings back."""

    _bound: str | None = None

    def create_cursor(self, name: str | None = None) -> Any:
        wanted = current_setting()
        if wanted != self._bound:
            bind(self.connection, wanted)
            self._bound = wanted
        return super().create_cursor(name)

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        self._bound = None
        return super().get_new_connection(conn_params)

    def _rollback(self) -> None:
        self._bound = None
        super()._rollback()  # type: ignore[misc]  # Django's stubs leave it out

    def _savepoint_rollback(self, sid: str) -> None:
        super()._savepoint_rollback(sid)  # type: ignore[misc]  # as above
        self._bound = None
