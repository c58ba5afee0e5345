"""What Home and Operations show, each from a fixed number of queries: work, storage, workers, spans.

The four numbers of Home with what they were: documents, runs, median time, share of questions answered.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Count, Min
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from collections_app.audit.services import Actor
from collections_app.endpoints.providers import ProviderState, provider_states
from collections_app.jobs.batches import BatchProgress, batch_progress
from collections_app.jobs.maintenance import MAINTENANCE_REPORT
from collections_app.jobs.models import IngestJobQuerySet
from collections_app.jobs.queue import QueueState, queue_state
from collections_app.jobs.recovery import can_succeed, retry_jobs
from collections_app.models import Collection, IndexVersion, IngestBatch, IngestJob, Status
from evaluation_app.models import GoldenSet, Span
from evaluation_app.telemetry.store.span_store import SentSpans, stored_spans
from ragd.store.placement import ask_nodes, bytes_on_nodes, count_nodes
from ragd.store.store import fetch_all
from retrieval_app.models import QueryRun

DATABASE_SIZE = "SELECT pg_database_size(current_database())"
# partitions count for the table they belong to, tables on nodes of a cluster for all chunks
TABLE_SIZES = """
SELECT coalesce(parent.relname, CASE WHEN %(nodes)s::jsonb ? child.relname THEN 'chunks' END, child.relname) AS name,
       sum(coalesce((%(nodes)s::jsonb ->> child.relname)::bigint, pg_total_relation_size(child.oid)))::bigint AS bytes
FROM pg_class child
LEFT JOIN pg_inherits link ON link.inhrelid = child.oid
LEFT JOIN pg_class parent ON parent.oid = link.inhparent
WHERE child.relkind = 'r' AND child.relnamespace = 'public'::regnamespace
GROUP BY 1 ORDER BY 2 DESC NULLS LAST, 1 LIMIT %(rows)s
"""
INDEX_BUILDS = """
SELECT coalesce(index.relname, '') AS index, progress.phase, progress.blocks_done, progress.blocks_total,
       progress.tuples_done, progress.tuples_total
FROM pg_stat_progress_create_index progress
LEFT JOIN pg_class index ON index.oid = progress.index_relid
WHERE progress.datname = current_database() ORDER BY progress.pid
"""
BUILDS_AS_JSON = f"SELECT coalesce(json_agg(to_json(build)), '[]') FROM ({INDEX_BUILDS}) AS build"  # noqa: S608  (a constant)
# What PostgreSQL compressed or moved out of line counts as it is stored.
COLLECTION_SIZES = """
WITH tables AS (
    SELECT split_part(substr(relname, 9), '_', 1)::bigint AS collection_id,
           sum(coalesce((%(nodes)s::jsonb ->> relname)::bigint, pg_total_relation_size(oid))) AS bytes,
           bool_or(%(nodes)s::jsonb -> relname = 'null') AS unknown
    FROM pg_class WHERE relkind = 'r' AND relname ~ '^chunks_c[0-9]+_g[0-9]+$'
      AND relnamespace = 'public'::regnamespace
    GROUP BY 1
), files AS (
    SELECT collection_id, sum(size_bytes) AS bytes FROM uploads GROUP BY 1
), past AS (
    SELECT collection_id, count(*) AS rows, sum(pg_column_size(text) + pg_column_size(chunks)) AS bytes
    FROM document_revisions GROUP BY 1
)
SELECT c.name, CASE WHEN t.unknown THEN NULL ELSE coalesce(t.bytes, 0)::bigint END, coalesce(f.bytes, 0)::bigint,
       coalesce(p.rows, 0), coalesce(p.bytes, 0)::bigint
FROM collections c
LEFT JOIN tables t ON t.collection_id = c.id
LEFT JOIN files f ON f.collection_id = c.id
LEFT JOIN past p ON p.collection_id = c.id
WHERE c.deleted_at IS NULL
ORDER BY coalesce(t.bytes, 0) + coalesce(f.bytes, 0) + coalesce(p.bytes, 0) DESC, c.name LIMIT %(rows)s
"""
TABLES_SHOWN = 8
COLLECTIONS_SHOWN = 20
LISTED = 20
BATCHES_SHOWN = 5
ALIVE_S = 30.0
FAILED_JOBS = 20
ACTIVE_JOBS = 8  # what runs first, then what waits longest
RUN_WINDOW = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class TableSize:
    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class IndexBuild:
    """A CREATE INDEX that runs now. done and total count rows, or blocks until rows are counted; total may be 0."""

    index: str
    phase: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class CollectionSize:
    """chunks_bytes: chunks, vectors and indexes of all index versions, wherever they are; None where a node that holds
    some does not answer. uploads_bytes: of the files that are kept.

    revisions, revisions_bytes: earlier revisions, as they are stored.
    """

    name: str
    chunks_bytes: int | None
    uploads_bytes: int
    revisions: int
    revisions_bytes: int


@dataclass(frozen=True, slots=True)
class StorageSummary:
    """database_bytes: of this database, and of the chunks on nodes that answer."""

    database_bytes: int
    tables: list[TableSize]
    collections: list[CollectionSize]


def index_builds() -> list[IndexBuild]:
    """Those that run now, here and on the nodes of a cluster that answer."""
    rows = fetch_all(connection, INDEX_BUILDS)
    if count_nodes(connection):
        told = ask_nodes(connection, BUILDS_AS_JSON)
        rows += [tuple(build.values()) for answer in told.values() for build in json.loads(answer)]
    return [_build(*row) for row in rows]


def storage_summary() -> StorageSummary:
    """A fixed number of queries. tables and collections: the largest first; tables with indexes and partitions."""
    on_nodes = bytes_on_nodes(connection)
    nodes = json.dumps(on_nodes)
    with connection.cursor() as cursor:
        cursor.execute(DATABASE_SIZE)
        ((database_bytes,),) = cursor.fetchall()
        cursor.execute(TABLE_SIZES, {"rows": TABLES_SHOWN, "nodes": nodes})
        tables = [TableSize(name, size or 0) for name, size in cursor.fetchall()]
        cursor.execute(COLLECTION_SIZES, {"rows": COLLECTIONS_SHOWN, "nodes": nodes})
        collections = [CollectionSize(*row) for row in cursor.fetchall()]
    return StorageSummary(database_bytes + sum(size or 0 for size in on_nodes.values()), tables, collections)


def _build(index: str, phase: str, blocks_done: int, blocks_total: int, rows_done: int, rows_total: int) -> IndexBuild:
    return IndexBuild(index, phase, *((rows_done, rows_total) if rows_total else (blocks_done, blocks_total)))


@dataclass(frozen=True, slots=True)
class WorkSummary:
    """queue: the whole of it; bulk_waiting: of these in the bulk lane. stuck: jobs whose worker stopped to hold them.

    A job that waits is never stuck, however long. batches: the newest that are under way.
    """

    queue: QueueState
    bulk_waiting: int
    endpoint_waits: int
    stuck: list[IngestJob]
    quarantined: list[IngestJob]
    batches: list[BatchProgress]
    index_versions: list[IndexVersion]
    providers: list[ProviderState]
    maintenance: Status | None


def work_summary() -> WorkSummary:
    """A fixed number of queries."""
    now = timezone.now()
    waiting = IngestJob.objects.filter(state=IngestJob.State.QUEUED)
    lanes = dict(waiting.order_by().values_list("lane").annotate(total=Count("pk")))
    builds = IndexVersion.objects.filter(state=IndexVersion.State.BUILDING, collection__deleted_at=None)
    return WorkSummary(
        queue=queue_state(),
        bulk_waiting=lanes.get(1, 0),
        endpoint_waits=waiting.filter(error_type="waiting_for_endpoint").count(),
        stuck=list(find_stuck(now)[:LISTED]),
        quarantined=list(IngestJob.objects.filter(state=IngestJob.State.QUARANTINED).newest().listed()[:LISTED]),
        batches=_active_batches(),
        index_versions=list(builds.select_related("collection").order_by("id")),
        providers=provider_states(now),
        maintenance=Status.objects.results().filter(name=MAINTENANCE_REPORT).first(),
    )


def find_stuck(now: datetime) -> IngestJobQuerySet:
    """Jobs that were taken and whose worker gave no sign of life within the lease: maintenance sends them again."""
    return IngestJob.objects.filter(state=IngestJob.State.RUNNING, lease_until__lt=now).listed().order_by("lease_until")


def _active_batches() -> list[BatchProgress]:
    active = IngestJob.objects.active().filter(batch__isnull=False).order_by().values("batch").distinct()
    newest = IngestBatch.objects.filter(pk__in=active).select_related("collection").order_by("-created_at", "-id")
    return batch_progress(list(newest[:BATCHES_SHOWN]))


def retry_all_failed(actor: Actor) -> int:
    """What failed in any collection, one job per document; returns how many. ServiceError 429 when that is too many."""
    names = can_succeed(IngestJob.objects.all()).order_by().values("collection").distinct()
    records = Collection.objects.live().filter(pk__in=names).by_name()
    return sum(retry_jobs(collection, actor=actor) for collection in records)


@dataclass(frozen=True, slots=True)
class AttentionSummary:
    """Counts behind the warnings of Home."""

    active_jobs_count: int
    failed_jobs_count: int
    workers_alive_count: int


@dataclass(frozen=True, slots=True)
class WorkerState:
    """job: what it works on, where it does."""

    worker: Status
    alive: bool
    silent_s: float
    started_at: datetime | None
    job: IngestJob | None = None


@dataclass(frozen=True, slots=True)
class SpanState:
    """How the span store fares, and when its first and last span began."""

    counts: SentSpans
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


def attention_summary() -> AttentionSummary:
    states = _jobs_by_state()
    return AttentionSummary(
        active_jobs_count=states["queued"] + states["running"],
        failed_jobs_count=states["failed"] + states["quarantined"],
        workers_alive_count=Status.objects.alive(timedelta(seconds=ALIVE_S)).count(),
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


def _workers(now: datetime) -> list[WorkerState]:
    """By their last sign of life, newest first."""
    workers = list(Status.objects.workers().order_by("-made_at", "name"))
    running = IngestJob.objects.filter(state=IngestJob.State.RUNNING).listed()
    jobs = {job.worker: job for job in running.filter(worker__in=[worker.name for worker in workers])}
    return [_worker_state(worker, jobs.get(worker.name), now) for worker in workers]


def _worker_state(worker: Status, job: IngestJob | None, now: datetime) -> WorkerState:
    silent_s = (now - worker.made_at).total_seconds()
    started_at = parse_datetime(worker.values.get("started_at") or "")
    return WorkerState(worker, silent_s <= ALIVE_S, silent_s, started_at, job)


def _jobs_by_state() -> dict[str, int]:
    rows = IngestJob.objects.listed().order_by().values_list("state").annotate(total=Count("pk"))
    return dict.fromkeys(IngestJob.State.values, 0) | dict(rows)


def _runs_by_status(now: datetime) -> dict[str, int]:
    """Runs of the last 24 hours by status, every status included."""
    rows = QueryRun.objects.filter(created_at__gte=now - RUN_WINDOW).order_by().values_list("status")
    return dict.fromkeys(QueryRun.Status.values, 0) | dict(rows.annotate(total=Count("pk")))


def _span_state() -> SpanState:
    moments = Span.objects.order_by("started_at").values_list("started_at", flat=True)
    return SpanState(stored_spans(), newest_at=moments.last(), oldest_at=moments.first())
