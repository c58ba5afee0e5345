"""What Operations shows of the work: the queue, what is stuck, attempts, endpoints, the last sweep."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count
from django.utils import timezone

from collections_app.models import Collection, Generation, IngestBatch, IngestJob, Report
from collections_app.models.jobs import IngestJobQuerySet
from collections_app.services.endpoints.providers import ProviderState, provider_states
from collections_app.services.governance.audit import Actor
from collections_app.services.jobs.batches import BatchProgress, batch_progress
from collections_app.services.jobs.queue import QueueState, queue_state
from collections_app.services.jobs.retries import retry_collection_jobs
from collections_app.services.worker.maintenance import SWEEP_REPORT

LISTED = 20
BATCHES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Work:
    """queue: the whole of it; bulk_waiting: of these in the bulk lane. stuck: jobs whose worker stopped to hold them.

    A job that waits is never stuck, however long. batches: the newest that are under way.
    """

    queue: QueueState
    bulk_waiting: int
    endpoint_waits: int
    stuck: list[IngestJob]
    quarantined: list[IngestJob]
    batches: list[BatchProgress]
    generations: list[Generation]
    providers: list[ProviderState]
    sweep: Report | None


def work_summary() -> Work:
    """A fixed number of queries."""
    now = timezone.now()
    waiting = IngestJob.objects.filter(state=IngestJob.State.QUEUED)
    lanes = dict(waiting.order_by().values_list("lane").annotate(total=Count("pk")))
    return Work(
        queue=queue_state(),
        bulk_waiting=lanes.get(1, 0),
        endpoint_waits=waiting.filter(error_type="waiting_for_endpoint").count(),
        stuck=list(find_stuck(now)[:LISTED]),
        quarantined=list(IngestJob.objects.filter(state=IngestJob.State.QUARANTINED).newest().listed()[:LISTED]),
        batches=_active_batches(),
        generations=list(
            Generation.objects.filter(state=Generation.State.BUILDING).select_related("collection").order_by("id")
        ),
        providers=provider_states(now),
        sweep=Report.objects.filter(name=SWEEP_REPORT).first(),
    )


def find_stuck(now: datetime) -> IngestJobQuerySet:
    """Jobs that were taken and whose worker gave no sign of life within the lease: the next sweep sends them again."""
    return IngestJob.objects.filter(state=IngestJob.State.RUNNING, lease_until__lt=now).listed().order_by("lease_until")


def _active_batches() -> list[BatchProgress]:
    active = IngestJob.objects.active().filter(batch__isnull=False).order_by().values("batch").distinct()
    newest = IngestBatch.objects.filter(pk__in=active).select_related("collection").order_by("-created_at", "-id")
    return batch_progress(list(newest[:BATCHES_SHOWN]))


def retry_all_failed(actor: Actor) -> int:
    """What failed in any collection, one job per document; returns how many. ServiceError 429 when that is too many."""
    names = IngestJob.objects.failed().order_by().values("collection").distinct()
    records = Collection.objects.live().filter(pk__in=names).by_name()
    return sum(retry_collection_jobs(collection, actor=actor) for collection in records)
