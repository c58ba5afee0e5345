"""The kinds of alert rules: what each measures, from what, and the threshold that it begins with."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from django.conf import settings
from django.db import connection
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from collections_app.index.measurements import serving_recalls
from collections_app.jobs.operation_models import SILENT_AFTER
from collections_app.jobs.workers import backup_state
from collections_app.models import IngestJob, WorkerHeartbeat
from collections_app.sources.records import count_states
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.models import AlertRule, GoldenSet
from evaluation_app.telemetry.metrics.quality import newest_serving_runs
from evaluation_app.telemetry.overview.figures import FigureFilter, consumption, period_until
from ragd import telemetry

QUERIES_MIN = 10  # a share or a percentile of fewer says too little
Unit = Literal["share", "ms", "s", "count", "usd"]

QUERIES = """
SELECT count(*), count(*) FILTER (WHERE status = 'error'),
       count(*) FILTER (WHERE degraded <> '[]'),
       percentile_disc(0.95) WITHIN GROUP (ORDER BY (timings_ms->>'total')::float8)
FROM retrieval_app_queryrun
WHERE environment = %(environment)s AND created_at >= %(since)s
  AND (%(collection_id)s = 0 OR collection_id = %(collection_id)s)
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """A value now. subject: whose it is, where a rule measures several; "" else."""

    value: float
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """below: whether it fires under the threshold, not over it. window: whether the rule has a time of its own that it
    looks back over. of_collection: whether it can be asked of one collection. view: the page that explains it."""

    name: str
    title: str | Promise
    about: str | Promise
    unit: Unit
    threshold: float
    read: Callable[[AlertRule], Sequence[Reading]]
    view: str
    for_minutes: int = 0
    below: bool = False
    window: bool = False
    of_collection: bool = False

    def is_exceeded(self, value: float, threshold: float) -> bool:
        return value < threshold if self.below else value > threshold

    def worse(self, one: float, other: float) -> float:
        return min(one, other) if self.below else max(one, other)


def _queries(rule: AlertRule) -> tuple[int, int, int, float | None]:
    """(queries of production in the window, failed ones, degraded ones, 95th percentile in ms)."""
    values: dict[str, Any] = {
        "environment": telemetry.PRODUCTION,
        "since": timezone.now() - timedelta(minutes=rule.window_minutes),
        "collection_id": rule.collection_id,
    }
    with connection.cursor() as cursor:
        cursor.execute(QUERIES, values)
        total, failed, degraded, percentile = cursor.fetchone()
    return total, failed, degraded, percentile


def _error_rate(rule: AlertRule) -> list[Reading]:
    total, failed, _, _ = _queries(rule)
    return [Reading(failed / total)] if total >= QUERIES_MIN else []


def _degraded(rule: AlertRule) -> list[Reading]:
    total, _, degraded, _ = _queries(rule)
    return [Reading(degraded / total)] if total else []


def _latency(rule: AlertRule) -> list[Reading]:
    total, _, _, percentile = _queries(rule)
    return [Reading(percentile)] if total >= QUERIES_MIN and percentile is not None else []


def _queue_age(rule: AlertRule) -> list[Reading]:
    waiting = IngestJob.objects.filter(state=IngestJob.State.QUEUED).order_by("created_at")
    oldest = waiting.values_list("created_at", flat=True).first()
    return [Reading((timezone.now() - oldest).total_seconds() if oldest else 0.0)]


def _workers(rule: AlertRule) -> list[Reading]:
    return [Reading(WorkerHeartbeat.objects.filter(beat_at__gt=timezone.now() - SILENT_AFTER).count())]


def _failing_sources(rule: AlertRule) -> list[Reading]:
    return [Reading(count_states()["failed"])]


def _recall(rule: AlertRule) -> list[Reading]:
    means = [(recall["plain"]["mean"], collection.name) for collection, recall in serving_recalls()]
    return [Reading(mean, name) for mean, name in means if mean is not None]


def _evaluation(rule: AlertRule) -> list[Reading]:
    """By how much the newest run of what serves is below the baseline of its test set: the headline metric that lost
    the most. Sets without a baseline, and those whose newest run is the baseline, are left out."""
    sets = GoldenSet.objects.exclude(baseline=None).select_related("baseline").in_bulk()
    result = []
    for run in newest_serving_runs():
        known = sets.get(run.golden_set_id or 0)
        if known is None or known.baseline is None or known.baseline_id == run.pk:
            continue
        before, after = (each.summary.get("measures", {}) for each in (known.baseline, run))
        drops = [
            (before[name]["value"] - figure["value"]) * (1 if measure_of(name).higher_is_better else -1)
            for name, figure in after.items()
            if measure_of(name).is_headline
            and figure["value"] is not None
            and before.get(name, {}).get("value") is not None
        ]
        if drops:
            result.append(Reading(max(drops), f"{known.collection_name}: {known.name}"))
    return result


def _cost(rule: AlertRule) -> list[Reading]:
    rows = consumption(FigureFilter(period_until("24h")), "model")
    return [Reading(sum(row.cost_usd or 0.0 for row in rows))]


def _disk(rule: AlertRule) -> list[Reading]:
    usage = shutil.disk_usage(settings.RAGD_VAR)
    return [Reading(usage.used / usage.total, socket.gethostname())]


def _backup(rule: AlertRule) -> list[Reading]:
    ages_s = backup_state().ages_s()
    return [Reading(ages_s["backup"])] if "backup" in ages_s else []


def _restore_drill(rule: AlertRule) -> list[Reading]:
    drill = backup_state().drill
    return [Reading(0.0 if drill.values["passed"] else 1.0)] if drill else []


KINDS = {
    kind.name: kind
    for kind in (
        Kind("error_rate", gettext_lazy("Error rate"),
             gettext_lazy("Share of queries in production that failed, from 10 queries on."),
             "share", 0.05, _error_rate, "evaluation:activity", 5, window=True, of_collection=True),
        Kind("degraded", gettext_lazy("Degraded queries"),
             gettext_lazy("Share of queries in production that went on without embedder, reranker, model or replica."),
             "share", 0.0, _degraded, "evaluation:activity", 1, window=True, of_collection=True),
        Kind("latency", gettext_lazy("Latency (p95)"),
             gettext_lazy("95th percentile of queries in production, from 10 queries on."),
             "ms", 10_000, _latency, "evaluation:traces", 10, window=True, of_collection=True),
        Kind("queue_age", gettext_lazy("Queue age"), gettext_lazy("Age of the oldest queued job."),
             "s", 900, _queue_age, "operations:operations", 5),
        Kind("workers", gettext_lazy("Workers"), gettext_lazy("Workers with a recent heartbeat."),
             "count", 1, _workers, "operations:operations", 2, below=True),
        Kind("failing_sources", gettext_lazy("Failing sources"),
             gettext_lazy("Sources whose last sync failed."), "count", 0, _failing_sources, "collections:list"),
        Kind("recall", gettext_lazy("Index recall"),
             gettext_lazy("Recall of the vector index in the newest probe of each collection."),
             "share", 0.95, _recall, "operations:operations", below=True),
        Kind("evaluation", gettext_lazy("Evaluation below baseline"),
             gettext_lazy("How far a headline metric of the newest evaluation is below the test set's baseline."),
             "share", 0.05, _evaluation, "evaluation:index"),
        Kind("cost", gettext_lazy("Cost per day"),
             gettext_lazy("Cost of model calls with a known price in the last 24 hours."),
             "usd", 25, _cost, "collections:models"),
        Kind("disk", gettext_lazy("Disk"), gettext_lazy("Used share of the disk that holds RAGD_VAR, on the worker."),
             "share", 0.9, _disk, "operations:operations", 5),
        Kind("backup", gettext_lazy("Backup age"), gettext_lazy("Age of the last backup, once there was one."),
             "s", 93_600, _backup, "operations:operations"),
        Kind("restore_drill", gettext_lazy("Failed restore drill"),
             gettext_lazy("1 where the last restore drill failed, once there was one."),
             "count", 0, _restore_drill, "operations:operations"),
    )
}  # fmt: skip
