"""Metrics that leave for a collector, read with OpenTelemetry's own parser."""

from __future__ import annotations

import gzip
import http.server
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

from evaluation_app.telemetry.metrics.instruments import Instruments
from ragd.telemetry import metrics
from ragd_site.observability import tracing
from tests.fakes.serving import Serving


class Collector(http.server.ThreadingHTTPServer):
    """Keeps the requests that it takes; refuses them while `status` is not 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.taken: list[tuple[str, ExportMetricsServiceRequest]] = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.server.status == 200:
            self.server.taken.append((self.path, ExportMetricsServiceRequest.FromString(body)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    server = Collector()
    with Serving(server) as serving:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", serving.address)
        yield server


def by_name(request: ExportMetricsServiceRequest) -> dict[str, Metric]:
    [resource] = request.resource_metrics
    [scope] = resource.scope_metrics
    names = {item.key: item.value.string_value for item in resource.resource.attributes}
    assert (names["service.name"], scope.scope.name) == ("ragd-web", "ragd")
    return {metric.name: metric for metric in scope.metrics}


@pytest.fixture
def exporter(collector: Collector) -> tracing.CountingExporter:
    return tracing.CountingExporter()


def test_a_collector_gets_cumulative_counts_and_misses_nothing(
    collector: Collector, exporter: tracing.CountingExporter
) -> None:
    provider = tracing.build_provider(exporter, tracing.build_resource("web"))
    counts = Instruments(provider.get_meter("ragd"))
    exporter.count_failure = lambda: counts.add(metrics.OTLP_FAILURES, 1, {metrics.SIGNAL: "metrics"})
    counts.add(metrics.COST, 0.5, {"gen_ai.request.model": "gpt-4o"})
    counts.observe(metrics.TOKEN_USAGE, 5, {metrics.TOKEN_TYPE: "input"})
    collector.status = 400  # refused for good: an exporter does not ask again within one export
    provider.force_flush()
    assert collector.taken == []
    collector.status = 200
    counts.add(metrics.COST, 0.25, {"gen_ai.request.model": "gpt-4o"})
    provider.force_flush()
    [(path, request)] = collector.taken
    assert path == "/v1/metrics"
    found = by_name(request)
    cost = found["aitf.cost.total"]
    [point] = cost.sum.data_points
    assert (cost.unit, cost.sum.is_monotonic, point.as_double) == ("USD", True, 0.75)
    assert [(item.key, item.value.string_value) for item in point.attributes] == [("gen_ai.request.model", "gpt-4o")]
    assert cost.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert 0 < point.start_time_unix_nano < point.time_unix_nano
    [tokens] = found["gen_ai.client.token.usage"].histogram.data_points
    assert (tokens.count, tokens.sum, list(tokens.bucket_counts)) == (1, 5, [0, 0, 1, *[0] * 12])
    assert tuple(tokens.explicit_bounds) == metrics.TOKEN_BUCKETS
    assert found["ragd.otlp.failures"].sum.data_points[0].as_int == 1
    provider.shutdown()


def test_the_end_of_a_process_sends_once_more(
    collector: Collector, exporter: tracing.CountingExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
    meter = tracing.ReportingMeter(Instruments())
    meter.provider = tracing.build_provider(exporter, tracing.build_resource("web"))
    Instruments(meter.provider.get_meter("ragd")).add(metrics.QUERIES, 1)
    assert collector.taken == []
    meter.shutdown()
    assert [list(by_name(request)) for _, request in collector.taken] == [["ragd.queries"]]


def test_nothing_is_sent_without_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tracing.ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert not tracing.sends_metrics()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:9/v1/metrics")
    assert tracing.sends_metrics()
