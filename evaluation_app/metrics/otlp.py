"""The metrics of this process in OpenTelemetry's own shape, sent to a collector now and then."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from evaluation_app.metrics.registry import Data, Registry
from ragd.telemetry.metrics import OTLP_FAILURES, SIGNAL

LAST_WAIT_S = 2.0  # for the last export of a process that ends

log = logging.getLogger(__name__)


class OtlpReporter:
    """Sends the registry every interval, in a thread that begins with the first `wake`. Failures are counted.

    open_exporter and resource are called in the process that sends, so a forked child has its own.
    """

    def __init__(
        self,
        registry: Registry,
        open_exporter: Callable[[], MetricExporter],
        resource: Callable[[], Resource],
        interval_s: float,
    ) -> None:
        self.registry, self.open_exporter = registry, open_exporter
        self.resource, self.interval_s = resource, interval_s
        self._begin()
        begin = weakref.WeakMethod(self._begin)
        os.register_at_fork(after_in_child=lambda: (anew := begin()) and anew())

    def _begin(self) -> None:
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._exporter: MetricExporter | None = None

    def wake(self) -> None:
        """See that the thread runs. Cheap: called whenever something was counted."""
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._stop.is_set():
                    self._thread = threading.Thread(target=self._run, name="ragd-otlp-metrics", daemon=True)
                    self._thread.start()

    def stop(self) -> None:
        """Send once more and end. A collector that does not answer holds nobody up for more than LAST_WAIT_S."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(LAST_WAIT_S)

    def send(self) -> bool:
        """Whether the collector took it. What it did not take is in the next export too."""
        if self._exporter is None:
            self._exporter = self.open_exporter()
        data = to_otlp(self.registry.snapshot(), self.resource(), self.registry.started_ns)
        try:
            has_gone = self._exporter.export(data) is MetricExportResult.SUCCESS
        except Exception as error:
            log.info("the metrics could not be sent: %s", error)
            has_gone = False
        if not has_gone:
            self.registry.add(OTLP_FAILURES, 1, {SIGNAL: "metrics"})
        return has_gone

    def _run(self) -> None:
        while not self._stop.wait(self.interval_s):
            self.send()
        self.send()


def to_otlp(metrics: Sequence[Data], resource: Resource, started_ns: int) -> MetricsData:
    """Cumulative counts since started_ns (nanoseconds of the epoch) until now."""
    now_ns = time.time_ns()
    found = [
        Metric(data["name"], data["description"], data["unit"], _points(data, started_ns, now_ns)) for data in metrics
    ]
    scope = InstrumentationScope("ragd")
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, found, "")], "")])


def _points(data: Data, started_ns: int, now_ns: int) -> Histogram | Sum | Gauge:
    if data["kind"] == "histogram":
        points = [_histogram_point(point, data["buckets"], started_ns, now_ns) for point in data["points"]]
        return Histogram(points, AggregationTemporality.CUMULATIVE)
    numbers = [NumberDataPoint(point["labels"], started_ns, now_ns, point["value"]) for point in data["points"]]
    if data["kind"] == "gauge":
        return Gauge(numbers)
    return Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)


def _histogram_point(
    point: Mapping[str, Any], buckets: Sequence[float], started_ns: int, now_ns: int
) -> HistogramDataPoint:
    """Without min and max, which nobody counts here."""
    return HistogramDataPoint(
        attributes=point["labels"],
        start_time_unix_nano=started_ns,
        time_unix_nano=now_ns,
        count=sum(point["counts"]),
        sum=point["sum"],
        bucket_counts=point["counts"],
        explicit_bounds=buckets,
        min=None,  # type: ignore[arg-type]
        max=None,  # type: ignore[arg-type]
    )
