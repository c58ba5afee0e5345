"""Fusion weights of a collection: measured on its own sentences in the worker, kept with the generation, read back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from collections_app.access_context import require
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models import Collection, Generation, IngestJob
from collections_app.models.library import name_actor
from collections_app.services.endpoints.providers import ingest_embedder
from collections_app.services.generations.swap import ensure_serving
from collections_app.services.governance import audit
from collections_app.services.jobs.attempts import IngestOutcome, JobProgress
from collections_app.services.jobs.queue import send_jobs
from collections_app.stores import open_store
from ragd import telemetry
from ragd.insight.list_weights import (
    CHUNKS,
    CHUNKS_MIN,
    EVEN,
    KINDS,
    Probe,
    embed_probes,
    make_probes,
    measure_list_weights,
)
from ragd.store.store import Store, fetch_all
from ragd.types import Chunk

GROWTH = 2.0  # so many times more or fewer chunks than were measured: measure again

# By a hash of their names, which an index holds: no text is read to choose. Open ones: everybody sees weights.
SAMPLE = """
SELECT doc_id, chunk_index, content, context, attributes::text FROM {chunks}
WHERE collection_id = %(collection_id)s AND enabled AND 1 = ANY (access)
ORDER BY md5(doc_id || ' ' || chunk_index), doc_id, chunk_index LIMIT %(most)s
"""

DUE = """
SELECT c.id FROM collections c
JOIN chunk_stats s ON s.collection_id = c.id AND s.generation = c.generation
LEFT JOIN generations g ON g.collection_id = c.id AND g.number = c.generation
WHERE c.deleted_at IS NULL AND c.hybrid_enabled AND s.open_count >= %(least)s
  AND (g.list_weights_measured_at IS NULL
       OR s.open_count >= %(growth)s * (g.list_weights_report->>'chunks')::float
       OR s.open_count * %(growth)s <= (g.list_weights_report->>'chunks')::float)
ORDER BY c.id
"""


def submit_measurement(collection: Collection, *, actor: audit.Actor = None, created_by: str = "") -> IngestJob:
    """Queue a measurement, or return the one that is under way. ServiceError 409 where there are no two lists."""
    require(Permission.WRITE, collection.pk)
    if not collection.hybrid_enabled:
        raise ServiceError(
            f"collection {collection.name!r} has no keyword index, so no lists are fused; build an index version with"
            " keyword search first",
            type="no_lexical_index",
            status=409,
        )
    job = IngestJob(
        collection=collection,
        kind=IngestJob.Kind.MEASURE_WEIGHTS,
        traceparent=telemetry.current_traceparent(),
        created_by=created_by or name_actor(actor),
    )
    with transaction.atomic():
        IngestJob.objects.bulk_create([job], ignore_conflicts=True)
        if not IngestJob.objects.filter(pk=job.pk).exists():
            return IngestJob.objects.active().get(collection=collection, kind=IngestJob.Kind.MEASURE_WEIGHTS)
        send_jobs([job.pk])
    return job


def submit_due_measurements() -> int:
    """Queue one for each collection that was never measured or has grown or shrunk since by GROWTH; returns how many.

    Where the last one failed or was cancelled, none is queued before somebody asks for one.
    """
    queued = 0
    for (pk,) in fetch_all(connection, DUE, {"least": CHUNKS_MIN, "growth": GROWTH}):
        last = IngestJob.objects.filter(collection_id=pk, kind=IngestJob.Kind.MEASURE_WEIGHTS).first()
        if last is None or last.state == IngestJob.State.SUCCEEDED:
            submit_measurement(Collection.objects.get(pk=pk), created_by="maintenance")
            queued += 1
    return queued


def run_measurement(collection: Collection, job: IngestJob, progress: JobProgress) -> None:
    """The job: measure what serves, and keep the weights together with the end of the job."""
    progress.enter(IngestJob.Stage.EMBED)
    measure_serving(collection, lambda: progress.finish(IngestOutcome(0, 0, False, 0)))


def measure_serving(collection: Collection, finish: Callable[[], object] = lambda: None) -> None:
    """Measure what serves and keep the weights, with the audit event and together with what finish writes.

    A measurement that began later, over what had been added meanwhile, is never replaced. Nothing is measured where
    there are no two lists.
    """
    store = open_store(collection)
    values = measure(store) if collection.hybrid_enabled else {}
    with transaction.atomic():
        ensure_serving(Collection.objects.get(pk=collection.pk))
        rows = Generation.objects.filter(collection=collection, number=store.collection.generation)
        row = rows.select_for_update().first()
        if values and row is not None and not _began_later(row, values["list_weights_measured_at"]):
            rows.update(**values)
            _record_change(collection, row.list_weights or EVEN, values["list_weights"] or EVEN)
        finish()


def _began_later(row: Generation, moment: datetime) -> bool:
    return row.list_weights_measured_at is not None and row.list_weights_measured_at > moment


def _record_change(collection: Collection, before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """Weights of what serves never change without an event."""
    if dict(before) != dict(after):
        audit.record(
            None,
            [collection],
            audit.CHANGE,
            f"measured fusion weights: vector {after['vector']:g}, keyword {after['lexical']:g}",
            action="collection.measure_weights",
            before={"list_weights": dict(before)},
            after={"list_weights": dict(after)},
        )


def measure(store: Store) -> dict[str, Any]:
    """What is kept of a measurement, as fields of the generation, with the time at which it began. Raises what the
    embedder raises."""
    began = timezone.now()
    embedder = ingest_embedder(store.collection.embed_model, store.collection.embed_dims)
    chunk_count = store.state().open_count
    probes = sample_probes(store)
    measured = None
    if len(probes) >= CHUNKS_MIN * len(KINDS):
        chunks, questions = embed_probes(probes, embedder)
        with transaction.atomic():
            measured = measure_list_weights(probes, chunks, questions, store)
    report: dict[str, Any] = {"probes": len(probes)} if measured is None else measured.as_dict()
    return {
        "list_weights": {} if measured is None else dict(measured.weights),
        "list_weights_report": report | {"chunks": chunk_count},
        "list_weights_measured_at": began,
    }


def sample_probes(store: Store) -> list[Probe]:
    """Probes of at most CHUNKS chunks that are searched, the same ones while the collection holds the same chunks."""
    sql = SAMPLE.format(chunks=store.collection.partition)
    rows = fetch_all(store.connection, sql, {"collection_id": store.collection.id, "most": CHUNKS})
    return make_probes(
        [
            Chunk(doc_id, number, content, 0, len(content), context=context, attributes=json.loads(attributes))
            for doc_id, number, content, context, attributes in rows
        ]
    )


def probes_of(chunks: Iterable[Chunk]) -> list[Probe]:
    """What `sample_probes` would make of a collection of these chunks."""
    searched = (chunk for chunk in chunks if chunk.enabled)
    return make_probes(nsmallest(CHUNKS, searched, key=_draw_order))


def _draw_order(chunk: Chunk) -> tuple[str, bytes, int]:
    name = f"{chunk.doc_id} {chunk.chunk_index}".encode()
    return hashlib.md5(name, usedforsecurity=False).hexdigest(), chunk.doc_id.encode(), chunk.chunk_index


def list_weights(collections: Iterable[Collection]) -> dict[int, dict[str, float]]:
    """Collection id -> the weights of what serves, even ones where nothing was measured; one query for all."""
    numbers = {collection.pk: collection.generation for collection in collections}
    rows = Generation.objects.filter(collection_id__in=numbers).exclude(list_weights={})
    measured = {
        pk: dict(weights)
        for pk, number, weights in rows.values_list("collection_id", "number", "list_weights")
        if numbers[pk] == number
    }
    return {pk: measured.get(pk, dict(EVEN)) for pk in numbers}


@dataclass(frozen=True, slots=True)
class UsedWeights:
    """For people: the weights that hold where none are stated, what they rest on ({}: never measured), and when."""

    used: dict[str, float]
    report: dict[str, Any]
    measured_at: datetime | None
    least: int = CHUNKS_MIN


def used_weights(collection: Collection) -> UsedWeights:
    """Of the generation that serves."""
    row = Generation.objects.filter(collection=collection, number=collection.generation).first()
    if row is None:
        return UsedWeights(dict(EVEN), {}, None)
    return UsedWeights(row.list_weights or dict(EVEN), row.list_weights_report, row.list_weights_measured_at)
