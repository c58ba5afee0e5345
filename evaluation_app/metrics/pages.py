"""`/metrics`: what all processes counted, and what the database says of the queue now, for Prometheus."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection, transaction
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from collections_app.auth import bearer_secret
from collections_app.models import IngestJob, WorkerHeartbeat
from collections_app.models.operations import SILENT_AFTER
from evaluation_app.metrics.registry import Data, Key, add_up, label_key, metric_data
from evaluation_app.metrics.reporting import write_own
from evaluation_app.metrics.text import CONTENT_TYPE, render
from evaluation_app.models import MetricSnapshot
from ragd.store import execute
from ragd.telemetry import metrics

READ_BRIEFLY = "SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = '8s'"  # a scraper asks again soon
LANES = {0: "first", 1: "bulk", 2: "again"}


def read_metrics() -> list[Data]:
    """The sum over all processes, by name, then the gauges. Raises DatabaseError, soon when a table is locked."""
    write_own()
    with transaction.atomic():
        execute(connection, READ_BRIEFLY)
        rows = list(MetricSnapshot.objects.values_list("data", flat=True))
        return add_up(rows) + read_gauges()


def read_gauges() -> list[Data]:
    """What is read from the database at the time: jobs by state, the queue by lane, its oldest job, live workers."""
    now = timezone.now()
    states = dict(IngestJob.objects.order_by().values_list("state").annotate(total=Count("pk")))
    waiting = IngestJob.objects.filter(state=IngestJob.State.QUEUED)
    lanes = dict(waiting.order_by().values_list("lane").annotate(total=Count("pk")))
    oldest = waiting.order_by("created_at").values_list("created_at", flat=True).first()
    workers = WorkerHeartbeat.objects.filter(beat_at__gt=now - SILENT_AFTER).count()
    return [
        _gauge(metrics.JOBS, ((metrics.STATE, state, states.get(state, 0)) for state in IngestJob.State.values)),
        _gauge(metrics.QUEUE_DEPTH, ((metrics.LANE, word, lanes.get(lane, 0)) for lane, word in LANES.items())),
        metric_data(metrics.QUEUE_OLDEST, {(): [(now - oldest).total_seconds() if oldest else 0.0]}),
        metric_data(metrics.WORKERS, {(): [float(workers)]}),
    ]


def _gauge(metric: metrics.Metric, rows: Iterable[tuple[str, str, int]]) -> Data:
    series: dict[Key, list[float]] = {label_key({name: value}): [float(count)] for name, value, count in rows}
    return metric_data(metric, series)


def may_read(request: HttpRequest) -> bool:
    """With RAGD_METRICS_KEY only who sends it as a bearer; without one everybody."""
    wanted = settings.RAGD_METRICS_KEY
    return not wanted or hmac.compare_digest((bearer_secret(request) or "").encode(), wanted.encode())


@login_not_required
@require_safe
def metrics_page(request: HttpRequest) -> HttpResponse:
    if not may_read(request):
        answer = _plain("this needs the key of RAGD_METRICS_KEY: send the header Authorization: Bearer <key>", 401)
        answer["WWW-Authenticate"] = 'Bearer realm="ragd metrics"'
        return answer
    try:
        text = render(read_metrics())
    except DatabaseError:
        return _plain("the metrics cannot be read: the database does not answer", 503)
    return HttpResponse(text, content_type=CONTENT_TYPE)


def _plain(message: str, status: int) -> HttpResponse:
    return HttpResponse(f"{message}\n", status=status, content_type="text/plain; charset=utf-8")
