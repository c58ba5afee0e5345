"""Sets the metrics of a process up: what is counted, where the counts go. Called by
`ragd_site.observability.tracing.set_up`."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.util.re import parse_env_headers
from prometheus_client import values

from evaluation_app.telemetry.metrics.instruments import Instruments, SpanMeter
from evaluation_app.telemetry.store.collector import PROTOBUF, PROTOCOLS, Collector
from evaluation_app.telemetry.store.exporter import CountedExporter
from ragd.telemetry import metrics

TRACES_PATH = "v1/traces"

log = logging.getLogger(__name__)


def traces_endpoint() -> str:
    """Where spans go: the variable for traces as it stands, or the common one with the path of traces; "": nowhere."""
    own = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    common = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    return own or (f"{common.rstrip('/')}/{TRACES_PATH}" if common else "")


def request_headers(signal: str) -> dict[str, str]:
    """The headers of what is sent, such as a key. signal: TRACES or METRICS, which may have headers of their own."""
    own = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_HEADERS", "")
    return dict(parse_env_headers(own or settings.OTEL_EXPORTER_OTLP_HEADERS, liberal=True))


def configured() -> Collector:
    """As the environment says it; a protocol that is not built in is http/protobuf."""
    protocols = [os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL") for signal in ("TRACES_", "")]
    protocol = next(filter(None, protocols), PROTOBUF)
    if protocol not in PROTOCOLS:
        log.warning("OTEL_EXPORTER_OTLP_PROTOCOL must be %s or %s, not %s; taking the first", *PROTOCOLS, protocol)
        protocol = PROTOBUF
    return Collector(traces_endpoint(), protocol, request_headers("TRACES"))


EXPORT_TIMEOUT_S = 5.0
LAST_EXPORT_MS = 2000  # of a process that ends
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
UNSAFE_IN_FILES = re.compile(r"[^a-zA-Z0-9.-]")


class CountingExporter(OTLPMetricExporter):
    """Counts the exports that the collector did not accept. The next export holds what they held."""

    def __init__(self) -> None:
        super().__init__(timeout=EXPORT_TIMEOUT_S, headers=request_headers("METRICS"))
        self.count_failure: Callable[[], None] = lambda: None

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: object
    ) -> MetricExportResult:
        result = super().export(metrics_data, timeout_millis, **kwargs)
        if result is not MetricExportResult.SUCCESS:
            self.count_failure()
        return result


class ReportingMeter(SpanMeter):
    """Counts finished spans; at the end of the process its counts are exported once more."""

    provider: MeterProvider | None = None

    def shutdown(self) -> None:
        super().shutdown()
        if self.provider is not None:
            self.provider.shutdown(LAST_EXPORT_MS)


def use_folder(folder: Path) -> None:
    """Count in files of this folder from now on. Call it before the first Instruments of a process is made."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[FOLDER_VARIABLE] = str(folder)
    host = UNSAFE_IN_FILES.sub("-", socket.gethostname())
    values.ValueClass = values.MultiProcessValue(lambda: f"{host}-{os.getpid()}")  # type: ignore[no-untyped-call]


def build_meter(
    service: str,
    folder: Path,
    store: CountedExporter,
    sender: CountedExporter,
    build_resource: Callable[[str], Resource],
) -> ReportingMeter:
    """The processor that counts. store and sender know how many spans they delivered and lost.

    The counts go to files in the folder, and to the OTLP endpoint where one is set.
    """
    use_folder(folder)
    exporter = CountingExporter() if sends_metrics() else None
    provider = build_provider(exporter, build_resource(service)) if exporter else None
    instruments = Instruments(provider.get_meter("ragd") if provider else None)
    if exporter is not None:
        exporter.count_failure = lambda: instruments.add(metrics.OTLP_FAILURES, 1, {metrics.SIGNAL: "metrics"})
    totals: dict[metrics.Metric, Callable[[], int]] = {
        metrics.SPANS_WRITTEN: lambda: store.delivered,
        metrics.SPANS_LOST: lambda: store.lost,
        metrics.OTLP_SPANS_SENT: lambda: sender.delivered,
        metrics.OTLP_SPANS_LOST: lambda: sender.lost,
    }
    meter = ReportingMeter(instruments, totals)
    meter.provider = provider
    return meter


def build_provider(exporter: CountingExporter, resource: Resource) -> MeterProvider:
    """Exports every OTEL_METRIC_EXPORT_INTERVAL milliseconds, 60,000 where that is not set."""
    return MeterProvider([PeriodicExportingMetricReader(exporter)], resource, shutdown_on_exit=False)


def sends_metrics() -> bool:
    """Whether an OTLP endpoint is set, for metrics alone or for everything."""
    return any(os.environ.get(name) for name in ENDPOINT_VARIABLES)
