"""Binding a database connection to who asks: the role and the setting that row-level security reads."""

from __future__ import annotations

from typing import Any

from collections_app.access_context import current_access
from ragd.store.placement import set_everywhere

READER = "ragd_reader"
BIND = "SELECT set_config('role', %(role)s, false), set_config('ragd.access', %(access)s, false)"


def bind(connection: Any, setting: str) -> None:
    """Let later statements of a psycopg connection run with that access; "" as the server itself."""
    connection.execute(BIND, {"role": READER if setting else "none", "access": setting})


def tell_nodes(connection: Any, setting: str) -> None:
    """The same for what this transaction does on the nodes of a cluster. The role goes along by itself."""
    set_everywhere(connection, {"ragd.access": setting})


def current_setting() -> str:
    """The access of who asks, as `bind` takes it."""
    access = current_access()
    return "" if access.unbound else access.setting
