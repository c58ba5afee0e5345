"""`/metrics`: what all processes of this machine counted, and what the database says now, for Prometheus.

Where spans are sent to: set here or by the environment, and one span sent on request, with what came back.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection, transaction
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

from collections_app.access.auth import bearer_secret
from collections_app.access.context import system_access
from collections_app.access.rules import ADMINISTER, needs
from collections_app.domain.senders import foreign_sender
from collections_app.http.page_requests import PageRequest, field_of, render_page, submit_form
from collections_app.jobs.operation_models import SILENT_AFTER
from collections_app.jobs.workers import backup_state
from collections_app.models import IngestJob, Status
from collections_app.sources.records import count_states
from evaluation_app.models import Alert, AlertRule
from evaluation_app.runs.requests import quality_scores
from evaluation_app.telemetry.metrics.instruments import prometheus_name
from evaluation_app.telemetry.store.collector import PROTOCOLS, REFRESH_S, name_endpoint, read_collector, send_test_span
from evaluation_app.telemetry.store.span_store import collector_state
from evaluation_app.telemetry.store.stored_collector import (
    ENDPOINT_CHARS_MAX,
    CollectorSetting,
    CollectorValues,
    as_collector,
    draft_collector,
    read_headers,
    remove_collector,
    save_collector,
    stored_collector,
)
from ragd.store.store import execute
from ragd.telemetry import metrics

READ_BRIEFLY = "SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = '8s'"  # a scraper asks again soon
LANES = {0: "first", 1: "bulk", 2: "again"}

Rows = Iterable[tuple[tuple[str, ...], float]]


def read_metrics() -> bytes:
    """The counts of the processes, then what the database says. Raises DatabaseError, soon when a table is locked."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(settings.RAGD_METRICS_FOLDER))  # type: ignore[no-untyped-call]
    registry.register(DatabaseCollector())
    with system_access():  # numbers of the whole server, for whoever may read this page
        return generate_latest(registry)


class DatabaseCollector:
    """Jobs by state, the queue by lane, its oldest job, live workers, backups, firing alerts, evaluation scores."""

    def describe(self) -> list[GaugeMetricFamily]:
        return []  # nothing is read before the first scrape

    def collect(self) -> Iterable[GaugeMetricFamily]:
        with transaction.atomic():
            execute(connection, READ_BRIEFLY)
            return [
                *_queue_gauges(),
                _family(metrics.BACKUP_AGE, (((part,), age_s) for part, age_s in backup_state().ages_s().items())),
                _family(metrics.ALERTS, _firing()),
                _family(metrics.EVALUATION_SCORE, quality_scores()),
            ]


def _queue_gauges() -> list[GaugeMetricFamily]:
    now = timezone.now()
    states = dict(IngestJob.objects.listed().order_by().values_list("state").annotate(total=Count("pk")))
    waiting = IngestJob.objects.filter(state=IngestJob.State.QUEUED)
    lanes = dict(waiting.order_by().values_list("lane").annotate(total=Count("pk")))
    oldest = waiting.order_by("created_at").values_list("created_at", flat=True).first()
    workers = Status.objects.alive(SILENT_AFTER).count()
    return [
        _family(metrics.JOBS, (((state,), states.get(state, 0)) for state in IngestJob.State.values)),
        _family(metrics.QUEUE_DEPTH, (((name,), lanes.get(lane, 0)) for lane, name in LANES.items())),
        _family(metrics.QUEUE_OLDEST, [((), (now - oldest).total_seconds() if oldest else 0)]),
        _family(metrics.WORKERS, [((), workers)]),
        _family(metrics.SOURCES, (((state,), total) for state, total in count_states().items())),
    ]


def _firing() -> Rows:
    """Every enabled rule has a series, so that an alert that is resolved falls to 0."""
    firing = Count("alerts", filter=Q(alerts__state=Alert.State.FIRING))
    rules = AlertRule.objects.filter(is_enabled=True).order_by("kind").values_list("kind").annotate(total=firing)
    return [((kind,), total) for kind, total in rules]


def _family(metric: metrics.Metric, rows: Rows) -> GaugeMetricFamily:
    family = GaugeMetricFamily(prometheus_name(metric.name), metric.description, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


def find_obstacle(request: HttpRequest) -> str:
    """Why the sender may not read; "" where it may. With RAGD_METRICS_KEY who sends it as a bearer, without one a
    program on this machine."""
    expected = settings.RAGD_METRICS_KEY
    if expected:
        is_sent = hmac.compare_digest((bearer_secret(request) or "").encode(), expected.encode())
        return "" if is_sent else "this needs the key of RAGD_METRICS_KEY: send the header Authorization: Bearer <key>"
    sender = foreign_sender(request)
    return sender and (
        "without a key the metrics are read from the server's own machine alone, and "
        f"{sender}. Set RAGD_METRICS_KEY on the server, and send the header Authorization: Bearer <key>"
    )


@login_not_required
@require_safe
def metrics_page(request: HttpRequest) -> HttpResponse:
    if obstacle := find_obstacle(request):
        answer = _plain(obstacle, 401)
        answer["WWW-Authenticate"] = 'Bearer realm="ragd metrics"'
        return answer
    try:
        text = read_metrics()
    except DatabaseError:
        return _plain("the metrics cannot be read: the database does not answer", 503)
    return HttpResponse(text, content_type=CONTENT_TYPE_PLAIN_0_0_4)


def _plain(message: str, status: int) -> HttpResponse:
    return HttpResponse(f"{message}\n", status=status, content_type="text/plain; charset=utf-8")


PARTS = {"collector": "evaluation/parts/collector.html"}


class CollectorForm(forms.Form):
    """row: the stored one, whose headers stay where none are entered."""

    endpoint = forms.CharField(
        label=gettext_lazy("Endpoint"),
        max_length=ENDPOINT_CHARS_MAX,
        help_text=gettext_lazy("OTLP over HTTP, such as http://127.0.0.1:4318. gRPC (4317) is not built in."),
    )
    protocol = forms.ChoiceField(label=gettext_lazy("Protocol"), choices=[(name, name) for name in PROTOCOLS])
    headers = forms.CharField(
        label=gettext_lazy("Headers"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "autocomplete": "off", "spellcheck": "false"}),
        help_text=gettext_lazy("One a line, such as api-key: YOUR_KEY. They are stored encrypted and not shown again."),
    )
    forget_headers = forms.BooleanField(label=gettext_lazy("Delete the stored headers"), required=False)
    is_enabled = forms.BooleanField(label=gettext_lazy("Send spans"), required=False)

    def __init__(self, data: Any, row: CollectorSetting | None) -> None:
        shown = {"endpoint": row.endpoint, "protocol": row.protocol} if row else {}
        super().__init__(data, initial={"is_enabled": row.is_enabled if row else True, **shown})
        names = row.header_names if row else []
        if names:
            field_of(self, "headers", forms.CharField).widget.attrs["placeholder"] = "\n".join(
                f"{name}: ••••" for name in names
            )
        else:
            del self.fields["forget_headers"]

    def values(self) -> CollectorValues:
        """Raises InvalidInput (headers) for a line that is no header."""
        data = self.cleaned_data
        stated = read_headers(data["headers"])
        headers = stated if stated or data.get("forget_headers") else None
        return CollectorValues(data["endpoint"], data["protocol"], headers, data["is_enabled"])


@needs(ADMINISTER, everywhere=True, methods="GET POST")
def collector(request: PageRequest) -> HttpResponse:
    """POST with do=save keeps what is filled in, do=remove forgets it, else a test span is sent to it and nothing is
    saved. Where the environment names an endpoint there is no form, and the test span goes there."""
    found, row = read_collector(), stored_collector()
    if found.endpoint:
        trial = send_test_span(found) if request.method == "POST" else None
        stated = {"endpoint": name_endpoint(found.endpoint), "protocol": found.protocol}
        return _show_collector(request, stated | {"header_names": sorted(found.headers), "trial": trial, "row": None})
    do = request.POST.get("do", "")
    if request.method == "POST" and do == "remove":
        remove_collector(actor=request.user)
        return _show_collector(request, {"form": CollectorForm(None, None), "row": None})
    form = CollectorForm(request.POST if request.method == "POST" else None, row)

    def submit() -> HttpResponse:
        if do == "save":
            saved = save_collector(form.values(), actor=request.user)
            return _show_collector(request, {"form": CollectorForm(None, saved), "row": saved, "is_saved": True})
        trial = send_test_span(as_collector(draft_collector(form.values(), row)))
        return _show_collector(request, {"form": form, "row": row, "trial": trial})

    response, status = submit_form(request, form, submit)
    return response or _show_collector(request, {"form": form, "row": row}, status)


def _show_collector(request: PageRequest, context: dict[str, Any], status: int = 200) -> HttpResponse:
    shared = {"texts": settings.RAGD_OTLP_CONTENT, "state": collector_state(), "refresh_s": round(REFRESH_S)}
    return render_page(request, "evaluation/collector.html", shared | context, parts=PARTS, status=status)
