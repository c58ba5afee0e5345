"""Index versions as their callers see them: start one, follow it, let it serve, cancel it, go back, drop it.

Index versions that do not serve, opened to be searched: those that are complete, before or after they served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings
from django.db import connection, transaction

from collections_app.access.context import elevated, require
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.chunks.policies import check_policy, resolve_policy
from collections_app.collections.models import name_actor
from collections_app.collections.services import resolve_model
from collections_app.errors import ServiceError, UnknownError
from collections_app.index.stores import embedder_for, open_rerankers, open_store, reading
from collections_app.index.swap import drop_leftovers, ensure_serving, forget, note_overruled, request_again, spec_of
from collections_app.jobs.models import ACTIVE_STATES
from collections_app.jobs.queue import send_jobs
from collections_app.jobs.recovery import cancel_job
from collections_app.models import Collection, IndexVersion, IngestJob
from ragd.errors import DimensionMismatch, InvalidInput, UnknownCollection
from ragd.store.placement import choose_placement
from ragd.store.store import Store, fetch_all
from ragd.store.tables import IndexVersionSpec, create_index_version, languages, open_index_version
from ragd.types import SPEC_VERSION, VECTOR_TYPES, Placement

State = IndexVersion.State

CHOICES = ("embed_model", "embed_dims", "chunk_policy", "language", "hybrid_enabled", "vector_type")
PLACEMENT = "placement"  # is chosen too, and changes no chunk and no vector
PROBE_TEXT = "How many dimensions has this text?"

DIFFERING = """
SELECT count(*) FILTER (WHERE g.document_id = d.id AND g.revision <> d.revision),
       count(*) FILTER (WHERE g.document_id IS DISTINCT FROM d.id),
       count(*) FILTER (WHERE g.document_id = d.id AND g.enabled <> d.enabled)
FROM documents d LEFT JOIN index_version_documents g ON g.index_version_id = %(index_version)s AND g.doc_id = d.doc_id
WHERE d.collection_id = %(collection)s
"""

REMOVED = """
SELECT count(*) FROM index_version_documents g
WHERE g.index_version_id = %(index_version)s AND NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = g.document_id)
"""


@dataclass(frozen=True, slots=True)
class Target:
    """What a new index version is to be: its spec, and the chunk policy as it was stated. placement: None for the
    same."""

    spec: IndexVersionSpec
    chunk_policy: Mapping[str, Any]
    placement: Placement | None = None


def list_index_versions(collection: Collection) -> list[IndexVersion]:
    """Every index version of the collection, newest first; at least the one that serves."""
    ensure_serving(collection)
    return list(IndexVersion.objects.filter(collection=collection).newest())


def get_index_version(collection: Collection, number: int) -> IndexVersion:
    """Raises ServiceError 404."""
    ensure_serving(collection)
    record = IndexVersion.objects.filter(collection=collection, number=number).first()
    if record is None:
        raise UnknownError(
            "index_version", f"collection {collection.name!r} has no index version {number}", field="index_version"
        )
    record.collection = collection
    return record


def resolve_target(collection: Collection, choices: Mapping[str, Any]) -> Target:
    """The definition of a new index version: what is chosen, over what the collection has. None counts as not chosen.

    Raises InvalidInput and DimensionMismatch that name the field.
    """
    if unknown := set(choices) - {*CHOICES, PLACEMENT}:
        name = sorted(unknown)[0]
        raise InvalidInput(f"an index version has no {name!r}; it has {', '.join((*CHOICES, PLACEMENT))}", field=name)
    chosen = {name: value for name, value in choices.items() if value is not None}
    model, dims = _resolve_model(collection, chosen)
    language = chosen.get("language", collection.language)
    if language not in (known := languages(connection)):
        raise InvalidInput(f"language must be one of {', '.join(known)}, not {language!r}", field="language")
    window = embedder_for(model, dims).window
    explicit = check_policy(chosen.get("chunk_policy", collection.chunk_policy), window)
    hybrid = bool(chosen.get("hybrid_enabled", collection.hybrid_enabled))
    vector_type = chosen.get("vector_type", collection.vector_type)
    if vector_type not in VECTOR_TYPES:
        raise InvalidInput(
            f"vector_type must be one of {', '.join(VECTOR_TYPES)}, not {vector_type!r}", field="vector_type"
        )
    policy = resolve_policy(explicit, window)
    placement = choose_placement(connection, chosen[PLACEMENT]) if PLACEMENT in chosen else None
    return Target(IndexVersionSpec(model, dims, hybrid, language, policy, vector_type), explicit, placement)


def _resolve_model(collection: Collection, chosen: Mapping[str, Any]) -> tuple[str, int]:
    model, dims = chosen.get("embed_model", collection.embed_model), chosen.get("embed_dims")
    if dims is None and model == collection.embed_model:
        return collection.embed_model, collection.embed_dims
    return resolve_model(model, dims)


def check_embedder(target: Target) -> None:
    """Embed one text, so that a model that does not answer is found before the work begins, not in its middle.

    Raises EmbedderError, and DimensionMismatch for vectors of another length.
    """
    spec = target.spec
    vector = embedder_for(spec.embed_model, spec.embed_dims).embed_query(PROBE_TEXT)
    if len(vector) != spec.embed_dims:
        raise DimensionMismatch(
            f"{spec.embed_model!r} makes {len(vector)} dimensions, not {spec.embed_dims}", field="embed_dims"
        )


def start_index_version(
    collection: Collection, choices: Mapping[str, Any], *, automatic: bool = True, actor: services.Actor = None
) -> IndexVersion:
    """Begin to build a new index version in the background; the present one serves until it is complete.

    choices: CHOICES and PLACEMENT; what is left out stays as it is. With none
    the index is made anew as it is. automatic: it serves as soon as it is complete, else when `activate_index_version`
    is called. Raises ServiceError 409 while another one is built or waits, and what `resolve_target` and
    `check_embedder` raise.
    """
    require(Permission.WRITE, collection.pk)
    target = resolve_target(collection, choices)
    check_embedder(target)
    with elevated(Permission.WRITE, collection.pk), transaction.atomic():
        current = _lock(collection)
        ensure_serving(current)
        _refuse_second(current)
        forget(IndexVersion.objects.filter(collection=current, state=State.FAILED))
        index_version = _make(current, target, automatic=automatic, actor=actor)
        _queue(index_version, actor)
        services.record(
            actor,
            [current],
            "index_version.add",
            f"started index version {index_version.number}",
            before={name: getattr(current, name) for name in CHOICES},
            after={name: getattr(target, name) for name in (*CHOICES, PLACEMENT) if getattr(target, name, None)},
        )
    drop_leftovers()
    return index_version


def _lock(collection: Collection) -> Collection:
    current = Collection.objects.live().select_for_update(no_key=True).filter(pk=collection.pk).first()
    if current is None:
        raise UnknownCollection(f"collection {collection.name!r} was deleted", field="collection")
    return current


def _refuse_second(collection: Collection) -> None:
    waiting = IndexVersion.objects.filter(collection=collection).next_up().first()
    if waiting is not None:
        what = "is being built; cancel it" if waiting.state == State.BUILDING else "is ready; activate or delete it"
        raise ServiceError(f"index version {waiting.number} {what} first")
    _refuse_busy(collection)


def _refuse_busy(collection: Collection) -> None:
    busy = IngestJob.objects.active().filter(collection=collection, kind=IngestJob.Kind.INDEX_VERSION).first()
    if busy is not None:
        raise ServiceError(f"{busy.title} is being worked on; wait for it, or cancel it")


def _make(collection: Collection, target: Target, *, automatic: bool, actor: services.Actor) -> IndexVersion:
    highest = IndexVersion.objects.filter(collection=collection).newest().values_list("number", flat=True)[0]
    spec = target.spec
    return IndexVersion.objects.create(
        collection=collection,
        number=create_index_version(connection, collection.pk, spec.embed_dims, highest + 1, target.placement),
        hash=spec.hash,
        spec_version=SPEC_VERSION,
        embed_model=spec.embed_model,
        embed_dims=spec.embed_dims,
        hybrid_enabled=spec.hybrid_enabled,
        language=spec.language,
        vector_type=spec.vector_type,
        chunk_policy=dict(target.chunk_policy),
        policy=spec.policy.as_dict(),
        automatic=automatic,
        created_by=name_actor(actor),
    )


def _queue(index_version: IndexVersion, actor: services.Actor) -> IngestJob:
    job = IngestJob.objects.create(
        collection_id=index_version.collection_id,
        kind=IngestJob.Kind.INDEX_VERSION,
        index_version=index_version,
        title=str(index_version),
        created_by=name_actor(actor),
    )
    send_jobs([job.pk])
    return job


def activate_index_version(
    index_version: IndexVersion, *, overrule: str = "", actor: services.Actor = None
) -> IndexVersion:
    """Let an index version serve: one that is ready, or, as the way back, one that is retired.

    A job first brings it up to what the documents are now, and asks the gate, if there is one (`promotion`). overrule:
    why one that the gate holds is to serve nevertheless; then the gate is not asked. One that is still built serves
    when it is complete. Raises ServiceError 409 for any other, while another one is worked on, and what
    `note_overruled` raises.
    """
    with elevated(Permission.WRITE, index_version.collection_id), transaction.atomic():
        current = _lock(index_version.collection)
        record = IndexVersion.objects.select_for_update().get(pk=index_version.pk)
        record.collection = current
        if record.state not in (State.BUILDING, State.READY, State.RETIRED):
            raise ServiceError(
                f"index version {record.number} is {record.state}; only a ready or retired one can be let serve"
            )
        record.automatic = True
        record.save(update_fields=["automatic"])
        if overrule:
            note_overruled(record, overrule, actor)
            services.record(
                actor, [current], "index_version.overrule", f"overruled the gate of {record}: {record.gate_reason}"
            )
        else:
            request_again(record)
        if record.state != State.BUILDING:
            _refuse_busy(current)
            _queue(record, actor)
        services.record(
            actor,
            [current],
            "index_version.activate",
            f"asked for index version {record.number} to serve",
            before={"index_version": current.index_version},
            after={"index_version": record.number},
        )
    return record


def cancel_index_version(index_version: IndexVersion, *, actor: services.Actor = None) -> IndexVersion:
    """End the work on an index version within seconds. One that was being built is gone; a complete one stays as it
    was.

    Raises ServiceError 409 when nobody works on it.
    """
    require(Permission.WRITE, index_version.collection_id)
    job = index_version.jobs.active().first()
    if job is None:
        raise ServiceError(f"nobody works on index version {index_version.number}; it is {index_version.state}")
    cancel_job(job, actor=actor)
    IndexVersion.objects.filter(pk=index_version.pk, state__in=(State.READY, State.RETIRED)).update(automatic=False)
    drop_leftovers()
    index_version.refresh_from_db()
    return index_version


def drop_index_version(index_version: IndexVersion, *, actor: services.Actor = None) -> IndexVersion:
    """Give up an index version that does not serve, with its table; its row stays, so that runs can name it.

    Raises ServiceError 409 for the one that serves, one that is worked on, and one that is gone.
    """
    with elevated(Permission.WRITE, index_version.collection_id), transaction.atomic():
        current = _lock(index_version.collection)
        record = IndexVersion.objects.select_for_update().get(pk=index_version.pk)
        if record.state not in (State.READY, State.RETIRED, State.FAILED):
            why = "; cancel it first" if record.state == State.BUILDING else ""
            raise ServiceError(f"index version {record.number} is {record.state}{why}")
        if record.jobs.filter(state__in=ACTIVE_STATES).exists():
            raise ServiceError(f"index version {record.number} is being worked on; cancel that first")
        forget([record])
        services.record(
            actor,
            [current],
            "index_version.delete",
            f"dropped index version {record.number}",
            before={"index_version": record.number, "state": str(record.state)},
        )
    drop_leftovers()
    index_version.refresh_from_db()
    return index_version


def count_differences(index_version: IndexVersion) -> dict[str, int]:
    """How far documents have gone on since an index version stopped serving: changed, added, removed, switched."""
    values = {"index_version": index_version.pk, "collection": index_version.collection_id}
    ((changed, added, switched),) = fetch_all(connection, DIFFERING, values)
    ((removed,),) = fetch_all(connection, REMOVED, values)
    return {"changed": changed, "added": added, "removed": removed, "switched": switched}


COMPLETE = (IndexVersion.State.READY, IndexVersion.State.RETIRED)

Found = TypeVar("Found")


def open_version(collection: Collection, index_version: IndexVersion, number: int | None = None) -> Store:
    """The store of an index version with its own embedder, to be searched. number: of another table of its spec."""
    store = open_index_version(
        connection,
        collection.pk,
        index_version.number if number is None else number,
        spec_of(index_version),
        embedder_for(index_version.embed_model, index_version.embed_dims),
        exact_threshold=settings.RAGD_EXACT_THRESHOLD,
    )
    store.rerankers = dict(open_rerankers())
    return store


def complete_versions(collection: Collection) -> list[IndexVersion]:
    """Those that do not serve and can be searched, newest first."""
    return list(IndexVersion.objects.filter(collection=collection, state__in=COMPLETE).newest())


def read_version(collection: Collection, number: int, read: Callable[[Store], Found]) -> Found:
    """read(store) in a transaction over the index version `number`: as it is, which may be behind the documents.

    Raises ServiceError 409 where it does not serve and is not complete, or is gone; and what `read` raises.
    """
    with reading():
        if number == Collection.objects.get(pk=collection.pk).index_version:
            return read(open_store(collection))
        found = {each.number: each for each in complete_versions(collection)}
        if number not in found:
            known = ", ".join(map(str, sorted(found))) or "none"
            raise ServiceError(
                f"index version {number} cannot be searched; complete beside the one that serves: {known}",
                type="version_not_complete",
                field="index_version",
            )
        return read(open_version(collection, found[number]))
