"""Who is asking, and what they may do: carried with the request, and applied to the database by its backend.

SYSTEM is the server itself: the worker, commands, migrations. In the web server nothing is allowed until a request says
who it is of; a thread or a stream takes the access of its request along with its context.

Binding a database connection to who asks: the role and the setting that row-level security reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from psycopg import Cursor

from collections_app.access.permissions import ALL_PERMISSIONS, EVERYBODY, Permission, thread_principal
from ragd.errors import RagdError
from ragd.store.placement import set_everywhere

Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True)
class Limit:
    """How much a holder ("key:<id>", "user:<id>") may ask: requests in a minute, tokens in a day; 0: any number."""

    holder: str
    requests_per_minute: int = 0
    tokens_per_day: int = 0


@dataclass(frozen=True)
class Access:
    """What somebody may do.

    everywhere: permissions in all collections. collections: id -> permissions there. principals: as whom they read
    documents with an access list. user_id: the person, None for none. key_id: the API key, None without one.
    name: the user's, or "key <label>", as `name_actor` gives it.
    makes: permissions in a collection that it makes itself, where it may make one and has none in all of them.
    unbound: row-level security does not bind it: the server itself.
    limits: how much the key and the person may ask.
    """

    everywhere: frozenset[Permission] = frozenset()
    collections: Mapping[int, frozenset[Permission]] = field(default_factory=dict)
    principals: tuple[int, ...] = (EVERYBODY,)
    user_id: int | None = None
    key_id: int | None = None
    name: str = ""
    makes: frozenset[Permission] = frozenset()
    unbound: bool = False
    limits: tuple[Limit, ...] = ()

    def may(self, permission: Permission, collection_id: int | None = None) -> bool:
        """In that collection; None: in all of them."""
        if self.unbound or permission in self.everywhere:
            return True
        return collection_id is not None and permission in self.collections.get(collection_id, ())

    def may_anywhere(self, permission: Permission) -> bool:
        """In some collection at least."""
        own = self.may(permission) or permission in self.makes
        return own or any(permission in given for given in self.collections.values())

    @property
    def may_make_collections(self) -> bool:
        return self.may(Permission.WRITE) or Permission.WRITE in self.makes

    @cached_property
    def setting(self) -> str:
        """The setting ragd.access (ragd/schema.sql). runs: where the query runs of everybody are seen."""
        values: dict[str, object] = {"p": list(self.principals)}
        for permission in Permission:
            values[permission] = self._where(permission)
        acts_alone = self.key_id is not None and self.user_id is None
        values["runs"] = values[Permission.READ if acts_alone else Permission.EVALUATE]
        values |= {"user": self.user_id, "key": self.key_id, "name": self.name}
        return json.dumps(values, separators=(",", ":"))

    def _where(self, permission: Permission) -> object:
        if permission in self.everywhere:
            return "*"
        return sorted(pk for pk, given in self.collections.items() if permission in given)

    def within(self, scopes: frozenset[Permission]) -> Access:
        """The same, cut down to some permissions."""
        if scopes >= ALL_PERMISSIONS:
            return self
        everywhere = ALL_PERMISSIONS if self.unbound else self.everywhere
        return replace(
            self,
            everywhere=everywhere & scopes,
            collections={pk: given & scopes for pk, given in self.collections.items()},
            unbound=False,
        )

    def inside(self, collection_ids: list[int]) -> Access:
        """The same, cut down to some collections."""
        everywhere = ALL_PERMISSIONS if self.unbound else self.everywhere
        given = {pk: everywhere | self.collections.get(pk, frozenset()) for pk in collection_ids}
        makes = everywhere if Permission.WRITE in everywhere else frozenset()
        return replace(self, everywhere=frozenset(), collections=given, makes=makes, unbound=False)

    def of_thread(self, pk: UUID) -> Access:
        """The same, and the files of a thread of theirs; bound, so that those of other threads stay hidden."""
        return replace(self, principals=(*self.principals, thread_principal(pk)), unbound=False)

    def of_key(self, pk: int, label: str, limit: Limit) -> Access:
        return replace(self, key_id=pk, name=f"key {label}", limits=(*self.limits, limit))


SYSTEM = Access(everywhere=ALL_PERMISSIONS, unbound=True)
NOBODY = Access(principals=())
PERSONAL = "my-files-"  # how the names of people's own collections begin
_current: ContextVar[Access | None] = ContextVar("ragd_access", default=None)


class Forbidden(RagdError):
    """Who asks may see it and may not do this."""


def current_access() -> Access:
    return _current.get() or (NOBODY if settings.PROCESS == "web" else SYSTEM)


@contextmanager
def using_access(access: Access) -> Iterator[None]:
    token = _current.set(access)
    try:
        yield
    finally:
        _current.reset(token)


def set_access(access: Access) -> None:
    """For the rest of this context, such as a request whose key is known only now. `using_access` around it ends it."""
    _current.set(access)


@contextmanager
def system_access() -> Iterator[None]:
    """Without limits: for what the server does for itself, such as keeping its own books."""
    with using_access(SYSTEM):
        yield


def carried(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """An iterator that is read after the request has ended, with the access that the request has now."""
    return _carry(pieces, current_access())


def _carry(pieces: Iterator[Piece], access: Access) -> Iterator[Piece]:
    while True:
        with using_access(access):
            try:
                piece = next(pieces)
            except StopIteration:
                return
        yield piece


def require_making() -> None:
    """Raise Forbidden unless who asks may make collections."""
    if not current_access().may_make_collections:
        raise Forbidden("making a collection needs the permission 'write' in all collections; ask an administrator")


def require(permission: Permission, collection_id: int | None = None) -> None:
    """Raise Forbidden unless who asks has the permission, in that collection or in all."""
    if not current_access().may(permission, collection_id):
        raise Forbidden(
            f"this needs the permission {permission.value!r}, which you do not have here; ask an administrator for a"
            " role that has it"
        )


@contextmanager
def elevated(permission: Permission, collection_id: int | None = None) -> Iterator[None]:
    """Without limits of rows, for who has the permission: for what the bound role cannot do, such as making tables.

    Raises as `require`. What is done inside must name its rows by what was looked up before.
    """
    require(permission, collection_id)
    with system_access():
        yield


READER = "ragd_reader"
BIND = "SELECT set_config('role', %(role)s, false), set_config('ragd.access', %(access)s, false)"


def bind(connection: Any, setting: str) -> None:
    """Let later statements of a psycopg connection run with that access; "" as the server itself."""
    Cursor(connection).execute(BIND, {"role": READER if setting else "none", "access": setting})


def tell_nodes(connection: Any, setting: str) -> None:
    """The same for what this transaction does on the nodes of a cluster. The role goes along by itself."""
    set_everywhere(connection, {"ragd.access": setting})


def current_setting() -> str:
    """The access of who asks, as `bind` takes it."""
    access = current_access()
    return "" if access.unbound else access.setting
