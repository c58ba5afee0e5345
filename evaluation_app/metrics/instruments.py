"""What a process counts: in files that all processes of a machine share, for Prometheus, and in OpenTelemetry's meter.

The files are those of prometheus-client's multiprocess mode, one set for each process. They outlive their process, so
a counter does not fall when a worker ends. Their name holds the host, since several containers may share a folder.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

import prometheus_client
from opentelemetry.metrics import Meter

from ragd.telemetry.metrics import COUNTED, OVERFLOW, Metric

SERIES_MAX = 2000  # of one metric and process; callers name models and so could make any number of series
NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")

Labels = Mapping[str, str | int | float | bool | None]


def prometheus_name(name: str) -> str:
    """A point becomes an underscore. No unit is added: dashboards for these conventions ask for
    gen_ai_client_operation_duration_bucket and aitf_cost_total."""
    return NOT_IN_NAMES.sub("_", name)


class Instruments:
    """The metrics of `ragd.telemetry.metrics.COUNTED`. Threads and forked children may share it.

    meter: takes the same measurements, for a collector; None for none. A metric has SERIES_MAX series at most: what
    comes after them is counted in one series that says so.
    """

    def __init__(self, meter: Meter | None = None) -> None:
        self._lock = threading.Lock()
        self._series: dict[Metric, set[tuple[str, ...]]] = {}
        self._prometheus = {metric: _prometheus_metric(metric) for metric in COUNTED}
        self._otel: dict[Metric, Callable[..., None]] = {}
        if meter is not None:
            self._otel = {metric: _otel_record(metric, meter) for metric in COUNTED}

    def add(self, metric: Metric, value: float = 1.0, labels: Labels | None = None) -> None:
        """Count. A negative value is left out: counters only grow."""
        if value >= 0:
            self._record(metric, value, labels or {})

    def observe(self, metric: Metric, value: float, labels: Labels | None = None) -> None:
        """One measurement of a histogram."""
        self._record(metric, value, labels or {})

    def _record(self, metric: Metric, value: float, labels: Labels) -> None:
        """Raises ValueError for a value that is no number and for a label that the metric does not have."""
        if not isinstance(value, int | float):
            raise ValueError(f"{metric.name} takes a number, not {value!r}")
        if unknown := labels.keys() - {*metric.labels}:
            raise ValueError(f"{metric.name} has no label {', '.join(sorted(unknown))}")
        texts = self._limited(metric, tuple(_text(labels.get(name)) for name in metric.labels))
        instrument = self._prometheus[metric]
        series = instrument.labels(*texts) if texts else instrument
        series.inc(value) if metric.kind == "counter" else series.observe(value)
        if metric in self._otel:
            self._otel[metric](value, {name: text for name, text in zip(metric.labels, texts, strict=True) if text})

    def _limited(self, metric: Metric, texts: tuple[str, ...]) -> tuple[str, ...]:
        """The labels, or those of the one series that takes what is too many to tell apart."""
        with self._lock:
            series = self._series.setdefault(metric, set())
            if texts not in series and len(series) >= SERIES_MAX:
                return (OVERFLOW,) * len(metric.labels)
            series.add(texts)
            return texts


def _prometheus_metric(metric: Metric) -> Any:
    labels = [prometheus_name(name) for name in metric.labels]
    name = prometheus_name(metric.name)
    if metric.kind == "counter":
        return prometheus_client.Counter(name, metric.description, labels, registry=None)
    return prometheus_client.Histogram(name, metric.description, labels, registry=None, buckets=metric.buckets)


def _otel_record(metric: Metric, meter: Meter) -> Callable[..., None]:
    if metric.kind == "counter":
        return meter.create_counter(metric.name, unit=metric.unit, description=metric.description).add
    histogram = meter.create_histogram(
        metric.name,
        unit=metric.unit,
        description=metric.description,
        explicit_bucket_boundaries_advisory=metric.buckets,
    )
    return histogram.record


def _text(value: str | int | float | bool | None) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
