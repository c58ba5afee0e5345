"""Collections: made, changed, counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Count

import ragd
from collections_app.access_context import require, require_making, system_access
from collections_app.domain.identity import (
    can_be_stored,
    check_collection_name,
    clean_collection_title,
    clean_starters,
)
from collections_app.domain.permissions import Permission, Role
from collections_app.errors import ServiceError
from collections_app.models import Chunk, Collection, IngestJob
from collections_app.policies import check_policy, window_of
from collections_app.services.collections.retention import check_retention
from collections_app.services.collections.statistics import count_chunk_lengths, count_documents, count_growth
from collections_app.services.documents.readers import follow_metadata
from collections_app.services.endpoints.embedding_model import resolve_model
from collections_app.services.generations.recall_probes import last_probe
from collections_app.services.generations.swap import ensure_serving, redefine_serving
from collections_app.services.governance import audit
from collections_app.services.governance.access import make_administrator
from collections_app.services.governance.api_keys import bind_keys
from collections_app.services.governance.document_access import check_access_from
from collections_app.services.governance.security_policy import check_security
from collections_app.stores import embedder_for
from ragd.errors import InvalidInput, UnknownCollection
from ragd.normalization import normalize
from ragd.store.tables import create_collection as create_rows
from ragd.store.tables import languages
from ragd.text.languages import AUTO

CHANGEABLE = (
    "title",
    "description",
    "starters",
    "chunk_policy",
    "retention",
    "security",
    "hybrid_enabled",
    "language",
    "open_role",
    "access_from",
)
DESCRIPTION_MAX_CHARS = 2000


def get_collection(name: str) -> Collection:
    """The live collection of that name. Raises UnknownCollection."""
    record = Collection.objects.live().filter(name=name).first() if can_be_stored(name) else None
    if record is None:
        raise UnknownCollection(f"there is no collection {name!r}; GET /v1/collections lists them", field="collection")
    return record


def create_collection(
    *,
    name: str,
    hybrid_enabled: bool = True,
    embed_model: str | None = None,
    embed_dims: int | None = None,
    chunk_policy: Mapping[str, Any] | None = None,
    language: str | None = None,
    title: str = "",
    description: str = "",
    starters: Iterable[str] = (),
    open_role: str = "",
    placement: str | None = None,
    actor: audit.Actor = None,
) -> Collection:
    """A new empty collection. What is not given is the server's default; a new generation can change it later.

    open_role: what everybody who is logged in is in it (`Role`); "": private to its administrators and those who are
    granted a role. Whoever makes it administers it. placement: where its chunks are (`ragd.store.placement`).

    Raises ServiceError 409 for a taken name, InvalidInput, DimensionMismatch.
    """
    require_making()
    stored = check_collection_name(name)
    model, dims = resolve_model(embed_model, embed_dims)
    explicit = check_policy(chunk_policy, embedder_for(model, dims).window)
    try:
        with system_access(), transaction.atomic():
            pk = create_rows(
                connection,
                name=stored,
                embed_model=model,
                embed_dims=dims,
                hybrid_enabled=hybrid_enabled,
                language=language or AUTO,
                placement=placement,
            )
            said = {
                "title": clean_collection_title(title),
                "description": check_description(description),
                "starters": clean_starters(starters),
            }
            Collection.objects.filter(pk=pk).update(chunk_policy=explicit, open_role=check_open_role(open_role), **said)
            collection = Collection.objects.get(pk=pk)
            bind_keys(collection, actor=actor)
            make_administrator(actor, collection)
            audit.record(
                actor,
                [collection],
                audit.ADDITION,
                f"made with {model}, {dims} dimensions",
                after={
                    "name": stored,
                    "embed_model": model,
                    "embed_dims": dims,
                    "hybrid_enabled": hybrid_enabled,
                    "language": language or AUTO,
                    "chunk_policy": explicit,
                }
                | said,
            )
    except IntegrityError:
        raise ServiceError(
            f"there is a collection {stored!r} already; choose another name, or use that one",
            type="name_taken",
            status=409,
            field="name",
        ) from None
    return collection


def update_collection(collection: Collection, *, changes: Mapping[str, Any], actor: audit.Actor = None) -> Collection:
    """Change title, description, starters, retention, security and chunk_policy (for what comes from now on).

    While it is empty, the rest too. A new chunk_policy, retention or security takes the place of what was stated.
    """
    require(Permission.WRITE, collection.pk)
    if unknown := set(changes) - set(CHANGEABLE):
        name = sorted(unknown)[0]
        raise InvalidInput(f"{name} cannot be changed; what can is {', '.join(CHANGEABLE)}", field=name)
    with transaction.atomic():
        current = Collection.objects.select_for_update().filter(pk=collection.pk, deleted_at__isnull=True).first()
        if current is None:
            raise UnknownCollection(f"collection {collection.name!r} was deleted", field="collection")
        cleaned = {name: _check_change(current, name, value) for name, value in changes.items()}
        changed = [name for name, value in cleaned.items() if value != getattr(current, name)]
        before = {name: getattr(current, name) for name in changed}
        for name in changed:
            setattr(current, name, cleaned[name])
        if changed:
            current.save(update_fields=[*changed, "updated_at"])
            if not Chunk.objects.of(current).exists():
                redefine_serving(current)
            audit.record(
                actor,
                [current],
                audit.CHANGE,
                f"changed {', '.join(changed)}",
                before=before,
                after={name: cleaned[name] for name in changed},
            )
        if "access_from" in changed:
            follow_metadata(current)
    return current


def _check_change(collection: Collection, name: str, value: Any) -> Any:
    """The value as it is kept."""
    if name == "title":
        return clean_collection_title(value)
    if name == "description":
        return check_description(value)
    if name == "starters":
        return clean_starters(value)
    if name == "retention":
        return check_retention(value)
    if name == "security":
        return check_security(value)
    if name == "open_role":
        require(Permission.ADMINISTER, collection.pk)
        return check_open_role(value)
    if name == "access_from":
        key = check_access_from(value)
        if key != collection.access_from:
            require(Permission.ADMINISTER, collection.pk)  # it decides over documents that a curator may not read
        return key
    if name == "chunk_policy":
        return check_policy(value, window_of(collection))
    if value == getattr(collection, name):
        return value
    if Chunk.objects.of(collection).exists():
        raise ServiceError(
            f"{name} can be changed only while the collection is empty, because its index is built with it; "
            f"build a new generation of it instead (POST /v1/collections/{collection.name}/generations)",
            type="not_empty",
            status=409,
            field=name,
        )
    if name == "language" and value not in (known := languages(connection)):
        raise InvalidInput(f"language must be one of {', '.join(known)}, not {value!r}", field="language")
    return value


def check_open_role(role: str) -> str:
    """A role, or "" for a private collection. Raises InvalidInput."""
    if role and role not in Role.values:
        raise InvalidInput(
            f"open_role must be one of {', '.join(Role.values)}, or empty for a private collection, not {role!r}",
            field="open_role",
        )
    return role


def check_description(text: str) -> str:
    """The description in normalized form."""
    cleaned = normalize(text)
    if len(cleaned) > DESCRIPTION_MAX_CHARS:
        raise InvalidInput(
            f"description must have at most {DESCRIPTION_MAX_CHARS} characters; this one has {len(cleaned)}",
            field="description",
        )
    return cleaned


def collection_statistics(collection: Collection) -> dict[str, Any]:
    """documents, chunks, tokens (words), bytes on disk, disabled chunks, the index's state, and jobs by state.

    And the generation that serves with its hash, its last measured recall, documents by state and type, what is kept
    beside them, lengths of chunks and growth over the last weeks.
    """
    store = ragd.Store(connection, collection.pk, exact_threshold=settings.RAGD_EXACT_THRESHOLD).statistics()
    building = IngestJob.objects.active().filter(collection=collection, kind=IngestJob.Kind.BUILD_INDEX).exists()
    if building and store["vector_index"] != "ready":
        store["vector_index"] = "building"
    jobs = count_jobs([collection.pk])
    serving = ensure_serving(collection)
    probe = last_probe(collection)
    lengths = count_chunk_lengths(collection)
    return (
        store
        | {"jobs": jobs.get(collection.pk, {}), "generation": serving.number, "generation_hash": serving.hash}
        | {"recall": None if probe is None else probe.recall}
        | count_documents(collection)
        | {"chunk_lengths": None if lengths is None else asdict(lengths)}
        | {"growth": [{"week": week.date(), "documents": total} for week, _, total in count_growth(collection).rows]}
    )


def count_jobs(collection_ids: Iterable[int]) -> dict[int, dict[str, int]]:
    """collection id -> state -> how many jobs; one query."""
    rows = (
        IngestJob.objects.filter(collection_id__in=list(collection_ids))
        .order_by()
        .values_list("collection_id", "state")
        .annotate(total=Count("pk"))
    )
    counts: dict[int, dict[str, int]] = {}
    for collection_id, state, total in rows:
        counts.setdefault(collection_id, {})[state] = total
    return counts
