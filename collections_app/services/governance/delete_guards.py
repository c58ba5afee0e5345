"""Documents that somebody counts on, as a higher floor says; taking them out of results asks first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from collections_app.models import Collection

DeleteGuard = Callable[[Collection, Sequence[str]], bool]

_GUARDS: dict[str, DeleteGuard] = {}


def register_delete_guard(name: str, awaits: DeleteGuard) -> None:
    """Ask this too from now on: whether any of these documents is counted on. A second of the name replaces it."""
    _GUARDS[name] = awaits


def is_guarded(collection: Collection, doc_ids: Sequence[str]) -> bool:
    """Whether anybody counts on any of these documents; nobody, where nothing is registered."""
    return any(awaits(collection, doc_ids) for awaits in _GUARDS.values())
