"""Generations as their callers see them: start one, follow it, let it serve, cancel it, go back, drop it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from collections_app.access_context import elevated, require
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models import Collection, Generation, IngestJob
from collections_app.models.jobs import ACTIVE_STATES
from collections_app.models.library import name_actor
from collections_app.policies import check_policy, resolve_policy
from collections_app.services.endpoints.embedding_model import resolve_model
from collections_app.services.generations.promotion_gate import note_overruled, request_again
from collections_app.services.generations.swap import drop_leftovers, ensure_serving, forget
from collections_app.services.governance import audit
from collections_app.services.jobs.cancellation import cancel_job
from collections_app.services.jobs.queue import send_jobs
from collections_app.stores import embedder_for
from ragd.errors import DimensionMismatch, InvalidInput, UnknownCollection
from ragd.store.generations import GenerationSpec, create_generation
from ragd.store.placement import choose_placement
from ragd.store.store import fetch_all
from ragd.store.tables import languages
from ragd.types import SPEC_VERSION, VECTOR_TYPES, Placement

State = Generation.State

CHOICES = ("embed_model", "embed_dims", "chunk_policy", "language", "hybrid_enabled", "vector_type")
PLACEMENT = "placement"  # is chosen too, and changes no chunk and no vector
PROBE_TEXT = "How many dimensions has this text?"

DIFFERING = """
SELECT count(*) FILTER (WHERE g.document_id = d.id AND g.revision <> d.revision),
       count(*) FILTER (WHERE g.document_id IS DISTINCT FROM d.id),
       count(*) FILTER (WHERE g.document_id = d.id AND g.enabled <> d.enabled)
FROM documents d LEFT JOIN generation_documents g ON g.generation_id = %(generation)s AND g.doc_id = d.doc_id
WHERE d.collection_id = %(collection)s
"""

REMOVED = """
SELECT count(*) FROM generation_documents g
WHERE g.generation_id = %(generation)s AND NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = g.document_id)
"""


@dataclass(frozen=True, slots=True)
class Target:
    """What a new generation is to be: its spec, and the chunk policy as it was stated. placement: None for the same."""

    spec: GenerationSpec
    chunk_policy: Mapping[str, Any]
    placement: Placement | None = None


def list_generations(collection: Collection) -> list[Generation]:
    """Every generation of the collection, newest first; at least the one that serves."""
    ensure_serving(collection)
    return list(Generation.objects.filter(collection=collection).newest())


def get_generation(collection: Collection, number: int) -> Generation:
    """Raises ServiceError 404."""
    ensure_serving(collection)
    record = Generation.objects.filter(collection=collection, number=number).first()
    if record is None:
        raise ServiceError(
            f"collection {collection.name!r} has no generation {number}",
            type="unknown_generation",
            status=404,
            field="generation",
        )
    record.collection = collection
    return record


def resolve_target(collection: Collection, choices: Mapping[str, Any]) -> Target:
    """The definition of a new generation: what is chosen, over what the collection has. None counts as not chosen.

    Raises InvalidInput and DimensionMismatch that name the field.
    """
    if unknown := set(choices) - {*CHOICES, PLACEMENT}:
        name = sorted(unknown)[0]
        raise InvalidInput(f"a generation has no {name!r}; it has {', '.join((*CHOICES, PLACEMENT))}", field=name)
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
    return Target(GenerationSpec(model, dims, hybrid, language, policy, vector_type), explicit, placement)


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


def start_generation(
    collection: Collection, choices: Mapping[str, Any], *, automatic: bool = True, actor: audit.Actor = None
) -> Generation:
    """Begin to build a new generation in the background; the present one serves until it is complete.

    choices: CHOICES and PLACEMENT; what is left out stays as it is. With none
    the index is made anew as it is. automatic: it serves as soon as it is complete, else when `activate_generation` is
    called. Raises ServiceError 409 while another one is built or waits, and what `resolve_target` and `check_embedder`
    raise.
    """
    require(Permission.WRITE, collection.pk)
    target = resolve_target(collection, choices)
    check_embedder(target)
    with elevated(Permission.WRITE, collection.pk), transaction.atomic():
        current = _lock(collection)
        ensure_serving(current)
        _refuse_second(current)
        forget(Generation.objects.filter(collection=current, state=State.FAILED))
        generation = _make(current, target, automatic=automatic, actor=actor)
        _queue(generation, actor)
        audit.record(
            actor,
            [current],
            audit.CHANGE,
            f"started generation {generation.number}",
            action="generation.add",
            before={name: getattr(current, name) for name in CHOICES},
            after={name: getattr(target, name) for name in (*CHOICES, PLACEMENT) if getattr(target, name, None)},
        )
    drop_leftovers()
    return generation


def _lock(collection: Collection) -> Collection:
    current = Collection.objects.live().select_for_update(no_key=True).filter(pk=collection.pk).first()
    if current is None:
        raise UnknownCollection(f"collection {collection.name!r} was deleted", field="collection")
    return current


def _refuse_second(collection: Collection) -> None:
    waiting = Generation.objects.filter(collection=collection).next_up().first()
    if waiting is not None:
        what = "is being built; cancel it" if waiting.state == State.BUILDING else "is ready; activate or delete it"
        raise ServiceError(f"generation {waiting.number} {what} first", type="conflict", status=409)
    _refuse_busy(collection)


def _refuse_busy(collection: Collection) -> None:
    busy = IngestJob.objects.active().filter(collection=collection, kind=IngestJob.Kind.GENERATION).first()
    if busy is not None:
        raise ServiceError(f"{busy.title} is being worked on; wait for it, or cancel it", type="conflict", status=409)


def _make(collection: Collection, target: Target, *, automatic: bool, actor: audit.Actor) -> Generation:
    highest = Generation.objects.filter(collection=collection).newest().values_list("number", flat=True)[0]
    spec = target.spec
    return Generation.objects.create(
        collection=collection,
        number=create_generation(connection, collection.pk, spec.embed_dims, highest + 1, target.placement),
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


def _queue(generation: Generation, actor: audit.Actor) -> IngestJob:
    job = IngestJob.objects.create(
        collection_id=generation.collection_id,
        kind=IngestJob.Kind.GENERATION,
        generation=generation,
        title=str(generation),
        created_by=name_actor(actor),
    )
    send_jobs([job.pk])
    return job


def activate_generation(generation: Generation, *, overrule: str = "", actor: audit.Actor = None) -> Generation:
    """Let a generation serve: one that is ready, or, as the way back, one that is retired.

    A job first brings it up to what the documents are now, and asks the gate, if there is one (`promotion`). overrule:
    why one that the gate holds is to serve nevertheless; then the gate is not asked. One that is still built serves
    when it is complete. Raises ServiceError 409 for any other, while another one is worked on, and what
    `note_overruled` raises.
    """
    with elevated(Permission.WRITE, generation.collection_id), transaction.atomic():
        current = _lock(generation.collection)
        record = Generation.objects.select_for_update().get(pk=generation.pk)
        record.collection = current
        if record.state not in (State.BUILDING, State.READY, State.RETIRED):
            raise ServiceError(
                f"generation {record.number} is {record.state}; only a ready or retired one can be let serve",
                type="conflict",
                status=409,
            )
        record.automatic = True
        record.save(update_fields=["automatic"])
        if overrule:
            note_overruled(record, overrule, actor)
            audit.record(
                actor,
                [current],
                audit.CHANGE,
                f"overruled the gate of {record}: {record.gate_reason}",
                action="generation.overrule",
            )
        else:
            request_again(record)
        if record.state != State.BUILDING:
            _refuse_busy(current)
            _queue(record, actor)
        audit.record(
            actor,
            [current],
            audit.CHANGE,
            f"asked for generation {record.number} to serve",
            action="generation.activate",
            before={"generation": current.generation},
            after={"generation": record.number},
        )
    return record


def cancel_generation(generation: Generation, *, actor: audit.Actor = None) -> Generation:
    """End the work on a generation within seconds. One that was being built is gone; a complete one stays as it was.

    Raises ServiceError 409 when nobody works on it.
    """
    require(Permission.WRITE, generation.collection_id)
    job = generation.jobs.active().first()
    if job is None:
        raise ServiceError(
            f"nobody works on generation {generation.number}; it is {generation.state}", type="conflict", status=409
        )
    cancel_job(job, actor=actor)
    Generation.objects.filter(pk=generation.pk, state__in=(State.READY, State.RETIRED)).update(automatic=False)
    drop_leftovers()
    generation.refresh_from_db()
    return generation


def drop_generation(generation: Generation, *, actor: audit.Actor = None) -> Generation:
    """Give up a generation that does not serve, with its table; its row stays, so that runs can name it.

    Raises ServiceError 409 for the one that serves, one that is worked on, and one that is gone.
    """
    with elevated(Permission.WRITE, generation.collection_id), transaction.atomic():
        current = _lock(generation.collection)
        record = Generation.objects.select_for_update().get(pk=generation.pk)
        if record.state not in (State.READY, State.RETIRED, State.FAILED):
            why = "; cancel it first" if record.state == State.BUILDING else ""
            raise ServiceError(f"generation {record.number} is {record.state}{why}", type="conflict", status=409)
        if record.jobs.filter(state__in=ACTIVE_STATES).exists():
            raise ServiceError(
                f"generation {record.number} is being worked on; cancel that first", type="conflict", status=409
            )
        forget([record])
        audit.record(
            actor,
            [current],
            audit.CHANGE,
            f"dropped generation {record.number}",
            action="generation.delete",
            before={"generation": record.number, "state": str(record.state)},
        )
    drop_leftovers()
    generation.refresh_from_db()
    return generation


def count_differences(generation: Generation) -> dict[str, int]:
    """How far documents have gone on since a generation stopped serving: changed, added, removed, switched."""
    values = {"generation": generation.pk, "collection": generation.collection_id}
    ((changed, added, switched),) = fetch_all(connection, DIFFERING, values)
    ((removed,),) = fetch_all(connection, REMOVED, values)
    return {"changed": changed, "added": added, "removed": removed, "switched": switched}
