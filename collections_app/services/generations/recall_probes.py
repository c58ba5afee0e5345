"""Recall probes: asked for, run in the worker, kept, and read back."""

from __future__ import annotations

from django.conf import settings
from django.db import transaction
from django.db.models import F

from collections_app.access_context import require
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models import Collection, IngestJob, StoredProbe
from collections_app.models.library import name_actor
from collections_app.services.governance import audit
from collections_app.services.jobs.attempts import IngestOutcome, JobProgress
from collections_app.services.jobs.queue import send_jobs
from collections_app.stores import open_store
from ragd import telemetry
from ragd.insight.recall import Recall, probe_recall

KEPT_PROBES = 100


def submit_probe(collection: Collection, *, actor: audit.Actor = None, created_by: str = "") -> IngestJob:
    """Queue a probe, or return the one that is under way. ServiceError 409 when there is no HNSW index to probe."""
    require(Permission.WRITE, collection.pk)
    if not open_store(collection).state().vector_index:
        raise ServiceError(
            f"collection {collection.name!r} has no HNSW index, so every search is exact; an index is built above "
            f"{settings.RAGD_EXACT_THRESHOLD} chunks (RAGD_EXACT_THRESHOLD)",
            type="no_vector_index",
            status=409,
        )
    job = IngestJob(
        collection=collection,
        kind=IngestJob.Kind.PROBE_RECALL,
        traceparent=telemetry.current_traceparent(),
        created_by=created_by or name_actor(actor),
    )
    with transaction.atomic():
        IngestJob.objects.bulk_create([job], ignore_conflicts=True)
        if not IngestJob.objects.filter(pk=job.pk).exists():
            return IngestJob.objects.active().get(collection=collection, kind=IngestJob.Kind.PROBE_RECALL)
        send_jobs([job.pk])
    return job


def run_probe(collection: Collection, job: IngestJob, progress: JobProgress) -> StoredProbe:
    """Measure, and keep the result together with the end of its job. An older result than the last hundred goes."""
    progress.enter(IngestJob.Stage.PROBE)
    with transaction.atomic():  # of its own: a write of progress in it would lock the job's row to the end
        store = open_store(collection)
        result = probe_recall(store)
    plain, filtered = result.plain, result.filtered
    with transaction.atomic():
        stored = StoredProbe.objects.create(
            collection=collection,
            generation=store.collection.generation,
            k=result.k,
            ef_search=result.ef_search,
            chunk_count=result.chunk_count,
            queries=plain.queries,
            recall=plain.mean,
            recall_lowest=plain.lowest,
            selectivity=filtered.selectivity,
            filtered_recall=filtered.mean,
            filtered_lowest=filtered.lowest,
            created_by=job.created_by,
            **_times("", plain),
            **_times("filtered_", filtered),
        )
        existing = StoredProbe.objects.filter(collection=collection).values_list("pk", flat=True)[:KEPT_PROBES]
        StoredProbe.objects.filter(collection=collection).exclude(pk__in=list(existing)).delete()
        progress.finish(IngestOutcome(0, 0, False, 0))
    return stored


def _times(prefix: str, recall: Recall) -> dict[str, float | None]:
    return {f"{prefix}exact_ms": recall.exact_ms, f"{prefix}index_ms": recall.index_ms}


def last_probe(collection: Collection) -> StoredProbe | None:
    """The newest probe of the generation that serves."""
    return StoredProbe.objects.filter(collection=collection, generation=collection.generation).first()


def serving_probes() -> list[StoredProbe]:
    """The newest probe of what serves of each live collection, by name; with `collection`. One query."""
    newest = (
        StoredProbe.objects.filter(collection__deleted_at__isnull=True, generation=F("collection__generation"))
        .select_related("collection")
        .order_by("collection_id", "-created_at", "-id")
        .distinct("collection_id")
    )
    return sorted(newest, key=lambda probe: probe.collection.name)


def collections_with_low_recall() -> list[tuple[Collection, StoredProbe]]:
    """Live collections whose newest probe of what serves is under RAGD_RECALL_WARNING, by name; one query."""
    return [(probe.collection, probe) for probe in serving_probes() if probe.is_low(settings.RAGD_RECALL_WARNING)]


def recall_warning(probe: StoredProbe | None) -> str:
    """What to say of a probe under RAGD_RECALL_WARNING; "" when there is nothing to say."""
    level = settings.RAGD_RECALL_WARNING
    if probe is None or not probe.is_low(level):
        return ""
    return (
        f"The vector index found {_share(probe.recall)} of the exact neighbours, and {_share(probe.filtered_recall)} "
        f"under a filter, which is less than {_share(level)} (RAGD_RECALL_WARNING). Raise ef_search in the plan, or "
        "search with exact set to always."
    )


def _share(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.1f} %"
