"""What Home and Operations show, each from a fixed number of queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Max, Min, Sum
from django.utils import timezone

from collections_app.models import Collection, IngestJob, WorkerHeartbeat
from evaluation_app.models import GoldenSet, Span, SpanWriter
from retrieval_app.models import QueryRun

ALIVE_S = 30.0
RECENT_RUNS = 8
RECENT_JOBS = 8
FAILED_JOBS = 20
ACTIVE_JOBS = 8  # what runs first, then what waits longest
RUN_WINDOW = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class HomeSummary:
    """collections carry the counts of `CollectionQuerySet.with_counts`; runs and jobs are newest first."""

    collections: list[Collection]
    runs: list[QueryRun]
    jobs: list[IngestJob]
    active_jobs_count: int
    failed_jobs_count: int
    workers_alive_count: int


@dataclass(frozen=True, slots=True)
class WorkerState:
    """job: what it works on, where it does."""

    worker: WorkerHeartbeat
    alive: bool
    silent_s: float
    job: IngestJob | None = None


@dataclass(frozen=True, slots=True)
class SpanState:
    """How the span store fares. lost_count: spans that could not be stored, over the writers of the last days."""

    written_count: int
    lost_count: int
    last_error: str
    last_error_at: datetime | None
    newest_at: datetime | None
    oldest_at: datetime | None


@dataclass(frozen=True, slots=True)
class OperationsSummary:
    """jobs_by_state has every state, 0 included. oldest_queued_s is None when nothing waits."""

    workers: list[WorkerState]
    jobs_by_state: dict[str, int]
    oldest_queued_s: float | None
    active_jobs: list[IngestJob]
    failed_jobs: list[IngestJob]
    runs_by_status: dict[str, int]
    spans: SpanState
    golden_sets: list[GoldenSet]


def home_summary() -> HomeSummary:
    states = _jobs_by_state()
    return HomeSummary(
        collections=list(Collection.objects.live().with_counts().by_name()),
        runs=list(QueryRun.objects.of_people().for_lists()[:RECENT_RUNS]),
        jobs=list(IngestJob.objects.newest().listed()[:RECENT_JOBS]),
        active_jobs_count=states["queued"] + states["running"],
        failed_jobs_count=states["failed"] + states["quarantined"],
        workers_alive_count=WorkerHeartbeat.objects.filter(beat_at__gte=_alive_since()).count(),
    )


def operations_summary() -> OperationsSummary:
    now = timezone.now()
    queued_at = IngestJob.objects.filter(state=IngestJob.State.QUEUED).aggregate(first=Min("created_at"))["first"]
    return OperationsSummary(
        workers=_workers(now),
        jobs_by_state=_jobs_by_state(),
        oldest_queued_s=(now - queued_at).total_seconds() if queued_at else None,
        active_jobs=list(IngestJob.objects.active().listed().order_by("-state", "created_at", "id")[:ACTIVE_JOBS]),
        failed_jobs=list(IngestJob.objects.failed().newest().listed()[:FAILED_JOBS]),
        runs_by_status=_runs_by_status(now),
        spans=_span_state(),
        golden_sets=list(GoldenSet.objects.annotate(questions_total=Count("questions"))),
    )


def _alive_since() -> datetime:
    return timezone.now() - timedelta(seconds=ALIVE_S)


def _workers(now: datetime) -> list[WorkerState]:
    """By their last sign of life, newest first."""
    workers = list(WorkerHeartbeat.objects.order_by("-beat_at", "name"))
    running = IngestJob.objects.filter(state=IngestJob.State.RUNNING).listed()
    jobs = {job.worker: job for job in running.filter(worker__in=[worker.name for worker in workers])}
    return [_worker_state(worker, jobs.get(worker.name), now) for worker in workers]


def _worker_state(worker: WorkerHeartbeat, job: IngestJob | None, now: datetime) -> WorkerState:
    silent_s = (now - worker.beat_at).total_seconds()
    return WorkerState(worker, silent_s <= ALIVE_S, silent_s, job)


def _jobs_by_state() -> dict[str, int]:
    rows = IngestJob.objects.order_by().values_list("state").annotate(total=Count("pk"))
    return dict.fromkeys(IngestJob.State.values, 0) | dict(rows)


def _runs_by_status(now: datetime) -> dict[str, int]:
    """Runs of the last 24 hours by status, every status included."""
    rows = QueryRun.objects.filter(created_at__gte=now - RUN_WINDOW).order_by().values_list("status")
    return dict.fromkeys(QueryRun.Status.values, 0) | dict(rows.annotate(total=Count("pk")))


def _span_state() -> SpanState:
    sums = SpanWriter.objects.aggregate(written=Sum("written"), lost=Sum("lost"))
    failed = SpanWriter.objects.exclude(last_error_at=None).order_by("-last_error_at").first()
    times = Span.objects.aggregate(newest=Max("started_at"), oldest=Min("started_at"))
    return SpanState(
        written_count=sums["written"] or 0,
        lost_count=sums["lost"] or 0,
        last_error=failed.last_error if failed else "",
        last_error_at=failed.last_error_at if failed else None,
        newest_at=times["newest"],
        oldest_at=times["oldest"],
    )
