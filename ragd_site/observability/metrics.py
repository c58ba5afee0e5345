"""Sets the metrics of a process up: what is counted, where the counts go. Called by
`ragd_site.observability.tracing.set_up`."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import values

from evaluation_app.telemetry.metrics.instruments import Instruments, SpanMeter
from evaluation_app.telemetry.store.exporter import CountedExporter
from ragd.telemetry import metrics
from ragd_site.observability import collector

EXPORT_TIMEOUT_S = 5.0
LAST_EXPORT_MS = 2000  # of a process that ends
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
UNSAFE_IN_FILES = re.compile(r"[^a-zA-Z0-9.-]")


class CountingExporter(OTLPMetricExporter):
    """Counts the exports that the collector did not accept. The next export holds what they held."""

    def __init__(self) -> None:
        super().__init__(timeout=EXPORT_TIMEOUT_S, headers=collector.request_headers("METRICS"))
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
