"""Index versions that do not serve, opened to be searched: those that are complete, before or after they served."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.conf import settings
from django.db import connection

from collections_app.errors import ServiceError
from collections_app.models import Collection, Generation
from collections_app.services.generations.swap import spec_of
from collections_app.stores import embedder_for, open_rerankers, open_store, reading
from ragd.store.generations import open_generation
from ragd.store.store import Store

COMPLETE = (Generation.State.READY, Generation.State.RETIRED)

Found = TypeVar("Found")


def open_version(collection: Collection, generation: Generation, number: int | None = None) -> Store:
    """The store of an index version with its own embedder, to be searched. number: of another table of its spec."""
    store = open_generation(
        connection,
        collection.pk,
        generation.number if number is None else number,
        spec_of(generation),
        embedder_for(generation.embed_model, generation.embed_dims),
        exact_threshold=settings.RAGD_EXACT_THRESHOLD,
    )
    store.rerankers = dict(open_rerankers())
    return store


def complete_versions(collection: Collection) -> list[Generation]:
    """Those that do not serve and can be searched, newest first."""
    return list(Generation.objects.filter(collection=collection, state__in=COMPLETE).newest())


def read_version(collection: Collection, number: int, read: Callable[[Store], Found]) -> Found:
    """read(store) in a transaction over the index version `number`: as it is, which may be behind the documents.

    Raises ServiceError 409 where it does not serve and is not complete, or is gone; and what `read` raises.
    """
    with reading():
        if number == Collection.objects.get(pk=collection.pk).generation:
            return read(open_store(collection))
        found = {each.number: each for each in complete_versions(collection)}
        if number not in found:
            known = ", ".join(map(str, sorted(found))) or "none"
            raise ServiceError(
                f"index version {number} cannot be searched; complete beside the one that serves: {known}",
                type="version_not_complete",
                status=409,
                field="index_version",
            )
        return read(open_version(collection, found[number]))
