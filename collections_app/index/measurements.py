"""Measure an index version: what its two lists are worth, and how much its vector index finds. One report each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from collections_app.access.context import require
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.endpoints.providers import ingest_embedder
from collections_app.errors import ServiceError
from collections_app.index.stores import open_store
from collections_app.index.swap import ensure_serving
from collections_app.jobs.attempts import FILE_KINDS, IngestOutcome, JobProgress
from collections_app.jobs.leases import LeaseLostError
from collections_app.jobs.queue import send_jobs
from collections_app.models import Collection, IndexVersion, IngestJob
from ragd import telemetry
from ragd.insight.chunk_map import find_axes
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
from ragd.insight.recall import probe_recall
from ragd.store.store import Store, fetch_all
from ragd.types import Chunk, Vector

MAINTENANCE = "maintenance"
DOCUMENTS_FIRST = "documents_first"
PORTION = 16  # probes that are embedded before it is asked again whether documents wait
GROWTH = 2.0  # so many times more or fewer chunks than were measured: measure again
# While documents are on their way, which a measurement would keep waiting: it embeds as many texts as 300 chunks
BUSY_CHUNKS_MIN, BUSY_GROWTH = 5000, 10.0

# By a hash of their names, which an index holds: no text is read to choose. Open ones: everybody sees weights.
SAMPLE = """
SELECT doc_id, chunk_index, content, context, attributes::text FROM {chunks}
WHERE collection_id = %(collection_id)s AND enabled AND 1 = ANY (access)
ORDER BY md5(doc_id || ' ' || chunk_index), doc_id, chunk_index LIMIT %(most)s
"""

# A job whose time to be sent is to come waits for an endpoint or a site, and brings nothing now.
DUE = """
WITH busy AS (
    SELECT DISTINCT collection_id FROM ingest_jobs
    WHERE state IN ('queued', 'running') AND kind = ANY(%(kinds)s) AND sent_at <= statement_timestamp()
)
SELECT c.id FROM collections c
JOIN chunk_stats s ON s.collection_id = c.id AND s.index_version = c.index_version
LEFT JOIN index_versions g ON g.collection_id = c.id AND g.number = c.index_version
CROSS JOIN LATERAL (SELECT c.id IN (TABLE busy) AS waits) w
CROSS JOIN LATERAL (SELECT CASE WHEN w.waits THEN %(busy_growth)s ELSE %(growth)s END AS growth) f
WHERE c.deleted_at IS NULL AND c.hybrid_enabled
  AND s.open_count >= CASE WHEN w.waits THEN %(busy_least)s ELSE %(least)s END
  AND (g.measured_at IS NULL
       OR s.open_count >= f.growth * (g.measurements->>'chunks')::float
       OR s.open_count * f.growth <= (g.measurements->>'chunks')::float)
ORDER BY c.id
"""


def submit_measurement(collection: Collection, *, actor: services.Actor = None, created_by: str = "") -> IngestJob:
    """Queue a measurement of what serves, or return the one that is under way. ServiceError 409 where there is neither
    a keyword index, whose list is weighed, nor an HNSW index, whose recall is measured."""
    require(Permission.WRITE, collection.pk)
    if not collection.hybrid_enabled and not open_store(collection).state().vector_index:
        raise ServiceError(
            f"collection {collection.name!r} has no keyword index and no HNSW index, so no lists are fused and every"
            " search is exact; build an index version with keyword search first",
            type="nothing_to_measure",
        )
    job = IngestJob(
        collection=collection,
        kind=IngestJob.Kind.MEASURE,
        traceparent=telemetry.current_traceparent(),
        created_by=created_by or name_actor(actor),
    )
    with transaction.atomic():
        IngestJob.objects.bulk_create([job], ignore_conflicts=True)
        if not IngestJob.objects.filter(pk=job.pk).exists():
            return IngestJob.objects.active().get(collection=collection, kind=IngestJob.Kind.MEASURE)
        send_jobs([job.pk])
    return job


def submit_due_measurements() -> int:
    """Queue one for each collection of two lists that was never measured, or has grown or shrunk since by GROWTH;
    returns how many. While documents are on their way, only from BUSY_CHUNKS_MIN chunks on and by BUSY_GROWTH.

    Where the last one failed or somebody cancelled it, none is queued before somebody asks for one.
    """
    queued, least = 0, {"least": CHUNKS_MIN, "busy_least": BUSY_CHUNKS_MIN}
    due = least | {"growth": GROWTH, "busy_growth": BUSY_GROWTH, "kinds": list(FILE_KINDS)}
    for (pk,) in fetch_all(connection, DUE, due):
        last = IngestJob.objects.filter(collection_id=pk, kind=IngestJob.Kind.MEASURE).first()
        if last is None or last.state == IngestJob.State.SUCCEEDED or last.error_type == DOCUMENTS_FIRST:
            submit_measurement(Collection.objects.get(pk=pk), created_by=MAINTENANCE)
            queued += 1
    return queued


def run_measurement(collection: Collection, job: IngestJob, progress: JobProgress) -> None:
    """The job: measure what serves, and keep the report together with the end of the job.

    One that nobody asked for ends, cancelled, as soon as a document waits for a worker.
    """
    progress.enter(IngestJob.Stage.PROBE)

    def give_way(chunks: int) -> None:
        if job.created_by == MAINTENANCE and chunks < BUSY_CHUNKS_MIN and _documents_wait():
            reason = {"error_type": DOCUMENTS_FIRST, "error": "documents came first; it is made when none wait"}
            progress.lease.release(state=IngestJob.State.CANCELLED, finished_at=timezone.now(), **reason)
            raise LeaseLostError

    measure_serving(collection, lambda: progress.finish(IngestOutcome(0, 0, False, 0)), give_way)


def _documents_wait() -> bool:
    queued = IngestJob.objects.filter(state=IngestJob.State.QUEUED, kind__in=FILE_KINDS)
    return bool(queued.filter(sent_at__lte=Now()).exists())


def measure_serving(
    collection: Collection,
    finish: Callable[[], object] = lambda: None,
    pause: Callable[[int], object] = lambda chunks: None,
) -> None:
    """Measure what serves and keep the report, with the audit event of other weights and what finish writes.

    A measurement that began later, over what had been added meanwhile, is never replaced. pause: as of `measure`.
    """
    store = open_store(collection)
    values = measure(store, pause)
    with transaction.atomic():
        ensure_serving(Collection.objects.get(pk=collection.pk))
        rows = IndexVersion.objects.filter(collection=collection, number=store.collection.index_version)
        row = rows.select_for_update().first()
        if row is not None and not (row.measured_at is not None and row.measured_at > values["measured_at"]):
            rows.update(**values)
            _record_change(collection, row.list_weights or EVEN, values["list_weights"] or EVEN)
        finish()


def _record_change(collection: Collection, before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """Weights of what serves never change without an event."""
    if dict(before) != dict(after):
        services.record(
            None,
            [collection],
            "collection.measure_weights",
            f"measured fusion weights: vector {after['vector']:g}, keyword {after['lexical']:g}",
            before={"list_weights": dict(before)},
            after={"list_weights": dict(after)},
        )


def measure(store: Store, pause: Callable[[int], object] = lambda chunks: None) -> dict[str, Any]:
    """What is kept of a measurement, as fields of the index version, with the time at which it began. Raises what the
    embedder raises, and pause, which is called between texts that are embedded with the number of open chunks."""
    began, state = timezone.now(), store.state()
    report: dict[str, Any] = {"chunks": state.open_count}
    weights: dict[str, float] = {}
    if store.collection.hybrid_enabled:
        weights, report["weights"] = _measure_weights(store, lambda: pause(state.open_count))
    if store.state().vector_index:  # by now; it may have been built meanwhile
        with transaction.atomic():
            recall = probe_recall(store).as_dict()
        del recall["chunk_count"]  # with those that only some may read
        report["recall"] = recall
    return {"list_weights": weights, "measurements": report, "map_axes": find_axes(store), "measured_at": began}


def _measure_weights(store: Store, pause: Callable[[], object]) -> tuple[dict[str, float], dict[str, Any]]:
    embedder = ingest_embedder(store.collection.embed_model, store.collection.embed_dims)
    probes = sample_probes(store)
    if len(probes) < CHUNKS_MIN * len(KINDS):
        return {}, {"probes": len(probes)}
    chunks: list[Chunk] = []
    questions: list[Vector] = []
    for first in range(0, len(probes), PORTION):
        pause()
        embedded = embed_probes(probes[first : first + PORTION], embedder)
        chunks += embedded[0]
        questions += embedded[1]
    with transaction.atomic():
        result = measure_list_weights(probes, chunks, questions, store)
    return ({}, {"probes": len(probes)}) if result is None else (dict(result.weights), result.as_dict())


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


@dataclass(frozen=True, slots=True)
class Measurements:
    """For people: what was measured of the index version that serves, and the weights that hold where none are stated.

    weights: `ragd.insight.list_weights.ListWeights`, or {"probes"} where there was too little text. recall:
    `ragd.insight.recall.RecallProbe`. Each {} where it was not measured. chunks: those that everybody could read.
    """

    used: dict[str, float]
    weights: dict[str, Any]
    recall: dict[str, Any]
    chunks: int | None
    measured_at: datetime | None
    least: int = CHUNKS_MIN

    @property
    def warning(self) -> str:
        """What to say of a recall under RAGD_RECALL_WARNING; "" when there is nothing to say."""
        level = settings.RAGD_RECALL_WARNING
        if not _is_low(self.recall, level):
            return ""
        plain, filtered = self.recall["plain"]["mean"], self.recall["filtered"]["mean"]
        return (
            f"The vector index found {_share(plain)} of the exact neighbours, and {_share(filtered)} under a filter, "
            f"which is less than {_share(level)} (RAGD_RECALL_WARNING). Raise ef_search in the plan, or search with "
            "exact set to always."
        )


def measurements_of(collection: Collection) -> Measurements:
    """Of the index version that serves."""
    row = IndexVersion.objects.filter(collection=collection, number=collection.index_version).first() or IndexVersion()
    report = row.measurements
    return Measurements(
        row.list_weights or dict(EVEN),
        report.get("weights", {}),
        report.get("recall", {}),
        report.get("chunks"),
        row.measured_at,
    )


def serving_recalls() -> list[tuple[Collection, dict[str, Any]]]:
    """The recall of what serves of each live collection that has one, by name; one query."""
    rows = (
        IndexVersion.objects.filter(
            collection__deleted_at=None, number=F("collection__index_version"), measurements__has_key="recall"
        )
        .select_related("collection")
        .order_by("collection__name")
    )
    return [(row.collection, row.measurements["recall"]) for row in rows]


def low_recalls() -> list[tuple[Collection, dict[str, Any]]]:
    """Those under RAGD_RECALL_WARNING."""
    return [each for each in serving_recalls() if _is_low(each[1], settings.RAGD_RECALL_WARNING)]


def _is_low(recall: Mapping[str, Any], level: float) -> bool:
    means = (recall[name]["mean"] for name in ("plain", "filtered") if recall)
    return any(mean is not None and mean < level for mean in means)


def _share(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.1f} %"
