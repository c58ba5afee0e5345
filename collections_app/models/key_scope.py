"""Which collections a key opens, as the queries of everything that belongs to a collection ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q


@dataclass(frozen=True, slots=True)
class CollectionScope:
    """The live collections that a key opens: id -> (name, when it was made). None: the key opens all.

    A name may be used again when its collection was deleted. What is kept by name alone, such as a span, belongs to the
    collection only if it came after that was made.
    """

    opened: Mapping[int, tuple[str, datetime]] | None = None

    @property
    def ids(self) -> list[int] | None:
        return None if self.opened is None else list(self.opened)

    @property
    def names(self) -> list[str] | None:
        return None if self.opened is None else [name for name, _ in self.opened.values()]

    def by_id(self, field: str) -> Q:
        """The rows whose `field` is the id of an opened collection."""
        return Q() if self.opened is None else Q(**{f"{field}__in": list(self.opened)})

    def by_name(self, name: str, moment: str) -> Q:
        """The rows whose field `name` is an opened collection's, and `moment` not before that was made."""
        if self.opened is None:
            return Q()
        result = Q(pk__in=[])
        for each, made_at in self.opened.values():
            result |= Q(**{name: each, f"{moment}__gte": made_at})
        return result


EVERYTHING = CollectionScope()
