"""Sets the metrics of a process up: what is counted, where the counts go. Called by `ragd_site.telemetry.set_up`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import psycopg
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from evaluation_app.metrics.otlp import OtlpReporter
from evaluation_app.metrics.registry import Registry, registry
from evaluation_app.metrics.reporting import Reporter, use_reporter
from evaluation_app.metrics.spans import SpanMeter
from evaluation_app.span_store.exporter import PostgresSpanExporter
from evaluation_app.span_store.sending import SendingExporter
from ragd.telemetry import metrics

EXPORT_TIMEOUT_S = 5.0
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
INTERVAL_VARIABLE = "OTEL_METRIC_EXPORT_INTERVAL"
DEFAULT_INTERVAL_MS = 60_000


class ReportingMeter(SpanMeter):
    """Counts finished spans, and has the counts written and sent once there are any."""

    def __init__(self, counts: Registry, reporters: list[Reporter | OtlpReporter]) -> None:
        super().__init__(counts)
        self.reporters = reporters

    def on_end(self, span: ReadableSpan) -> None:
        super().on_end(span)
        for reporter in self.reporters:
            reporter.wake()

    def shutdown(self) -> None:
        for reporter in self.reporters:
            reporter.stop()


def build_meter(
    service: str,
    store: PostgresSpanExporter,
    sender: SendingExporter | None,
    connect: Callable[[], psycopg.Connection[Any]],
    build_resource: Callable[[str], Resource],
) -> ReportingMeter:
    """The processor that counts. store and sender tell of spans that they took and lost.

    The counts go to the database, and to the OTLP endpoint where one is set.
    """
    registry.watch(metrics.SPANS_WRITTEN, lambda: store.written)
    registry.watch(metrics.SPANS_LOST, lambda: store.lost)
    if sender is not None:
        registry.watch(metrics.OTLP_SPANS_SENT, lambda: sender.sent)
        registry.watch(metrics.OTLP_SPANS_LOST, lambda: sender.lost)
    reporter = Reporter(registry, connect, service)
    use_reporter(reporter)
    reporters: list[Reporter | OtlpReporter] = [reporter]
    if sends_metrics():
        reporters.append(OtlpReporter(registry, open_exporter, lambda: build_resource(service), interval_s()))
    return ReportingMeter(registry, reporters)


def sends_metrics() -> bool:
    """Whether an OTLP endpoint is set, for metrics alone or for everything."""
    return any(os.environ.get(name) for name in ENDPOINT_VARIABLES)


def interval_s() -> float:
    """Seconds between two exports: OTEL_METRIC_EXPORT_INTERVAL, in milliseconds, as OpenTelemetry names it."""
    stated = os.environ.get(INTERVAL_VARIABLE, "")
    return max(1.0, int(stated) / 1000) if stated.isdigit() else DEFAULT_INTERVAL_MS / 1000


def open_exporter() -> MetricExporter:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter(timeout=EXPORT_TIMEOUT_S)
