"""What the reader may do, in every template: what they may not do is not offered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from collections_app.access_context import Access, current_access
from collections_app.domain.permissions import Permission

NAMES = frozenset(Permission)


@dataclass(frozen=True)
class Rights:
    """Permissions as attributes: read, ask, write, evaluate, administer. place: a collection's id, None for all of
    them, or "somewhere"."""

    access: Access
    place: int | str | None

    def __getattr__(self, name: str) -> bool:
        if name not in NAMES:
            raise AttributeError(name)
        permission = Permission(name)
        if isinstance(self.place, str):
            return self.access.may_anywhere(permission)
        return self.access.may(permission, self.place)


def rights(request: HttpRequest) -> dict[str, Any]:
    """may: in the collection of the page, or in some where it is of none. may_all: in all. may_anywhere: in some.

    may_make: whether they may make collections.
    """
    access = current_access()
    return {
        "may": Rights(access, getattr(request, "page_collection_id", "somewhere")),
        "may_all": Rights(access, None),
        "may_anywhere": Rights(access, "somewhere"),
        "may_make": access.may_make_collections,
    }
