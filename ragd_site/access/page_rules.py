"""Which collection a page is of, and what its reader may do there, for every template: the rest is not offered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import Model
from django.http import HttpRequest

from collections_app.access.context import Access, current_access
from collections_app.access.permissions import Permission
from collections_app.models import Collection, Operation
from evaluation_app.models import EvaluationRun, Experiment, GoldenSet, ReviewTask
from ragd_site.operations.branding import find_brand
from retrieval_app.models import QueryRun

# How the start of an address says which collection it is of: the argument, the model, the field with its name.
TARGETS: tuple[tuple[str, str, type[Model], str], ...] = (
    ("evaluation/runs/<uuid:pk>", "pk", EvaluationRun, "collection_name"),
    ("evaluation/sets/<int:pk>", "pk", GoldenSet, "collection_name"),
    ("evaluation/experiments/<uuid:pk>", "pk", Experiment, "collection_name"),
    ("evaluation/review/<int:pk>", "pk", ReviewTask, "collection_name"),
    ("runs/<uuid:run_id>", "run_id", QueryRun, "collection_name"),
    ("collections/operation/<uuid:operation_id>", "operation_id", Operation, "subject"),
)


def find_target(route: str, arguments: Mapping[str, Any]) -> tuple[bool, str | None]:
    """(whether the address names something of a collection, the collection's name or None where that is not there)."""
    if route.startswith(("collections/<str:name>", "evaluation/live/<str:name>")):
        return True, str(arguments["name"])
    for start, argument, model, field in TARGETS:
        if route.startswith(start):
            rows = model._default_manager.filter(pk=arguments[argument])
            return True, rows.values_list(field, flat=True).first()
    return False, None


def find_collection_id(name: str) -> int | None:
    return (
        Collection.objects.live().filter(name=name).values_list("pk", flat=True).first() if "\x00" not in name else None
    )


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

    may_make: whether they may make collections. server_name: what an administrator calls this server. brand: its look.
    """
    access = current_access()
    return {
        "may": Rights(access, getattr(request, "page_collection_id", "somewhere")),
        "may_all": Rights(access, None),
        "may_anywhere": Rights(access, "somewhere"),
        "may_make": access.may_make_collections,
        "server_name": settings.RAGD_NAME,
        "brand": find_brand(),
    }
