"""What a process counts: in files that all processes of a machine share, for Prometheus, and in OpenTelemetry's meter.

The files are those of prometheus-client's multiprocess mode, one set for each process. They outlive their process, so
a counter does not fall when a worker ends. Their name holds the host, since several containers may share a folder.

Metrics from finished spans: one processor, so that a number and the spans behind it never disagree.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

import prometheus_client
from opentelemetry.metrics import Meter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import StatusCode

from ragd import telemetry
from ragd.telemetry import metrics, names
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
        self._series: dict[str, dict[tuple[str, ...], Any]] = {}  # by name of the metric
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
        texts, series = self._find_series(metric, tuple(_text(labels.get(name)) for name in metric.labels))
        series.inc(value) if metric.kind == "counter" else series.observe(value)
        if metric in self._otel:
            self._otel[metric](value, {name: text for name, text in zip(metric.labels, texts, strict=True) if text})

    def _find_series(self, metric: Metric, texts: tuple[str, ...]) -> tuple[tuple[str, ...], Any]:
        """The labels and their series, or those of the one that takes what is too many to tell apart."""
        with self._lock:
            known = self._series.setdefault(metric.name, {})
            if texts not in known and len(known) >= SERIES_MAX:
                texts = (OVERFLOW,) * len(metric.labels)
            if texts not in known:
                instrument = self._prometheus[metric]
                known[texts] = instrument.labels(*texts) if texts else instrument
            return texts, known[texts]


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


CALLS = (telemetry.CHAT, telemetry.EMBEDDINGS)
STAGES = frozenset(
    {
        telemetry.QUERY, telemetry.LEXICAL, telemetry.VECTOR, telemetry.HOP, telemetry.FUSE, telemetry.COMPRESS,
        telemetry.RERANK, telemetry.EVALUATE, telemetry.PARSE, telemetry.CHUNK, telemetry.STORE,
    }
)  # fmt: skip

log = logging.getLogger(__name__)

Values = Mapping[str, Any]


class SpanMeter(SpanProcessor):
    """Counts what spans tell, when they end.

    totals: counters that somebody else keeps for this process; what they grew by is added whenever a span ends that
    stands in no other of this process, and at the shutdown.
    """

    def __init__(
        self, instruments: Instruments, totals: Mapping[metrics.Metric, Callable[[], int]] | None = None
    ) -> None:
        self.instruments = instruments
        self._totals = totals or {}
        self._added = dict.fromkeys(self._totals, 0)
        self._lock = threading.Lock()

    def on_end(self, span: ReadableSpan) -> None:
        if span.parent is None or span.parent.is_remote:
            self._add_totals()
        try:
            self._count(span)
        except Exception:  # a foreign value on one span must not end the counting of the others
            log.exception("the span %r could not be counted", span.name)

    def shutdown(self) -> None:
        self._add_totals()

    def _add_totals(self) -> None:
        with self._lock:
            for metric, read in self._totals.items():
                total = read()
                if total > self._added[metric]:
                    self.instruments.add(metric, total - self._added[metric])
                    self._added[metric] = total
                elif total == 0:  # a forked child counts from nothing
                    self._added[metric] = 0

    def _count(self, span: ReadableSpan) -> None:
        scope = span.instrumentation_scope
        if scope is None or scope.name != "ragd" or span.start_time is None or span.end_time is None:
            return
        values: Values = span.attributes or {}
        duration_ms = (span.end_time - span.start_time) / 1e6
        kind = span.name.partition(" ")[0]
        if kind in CALLS:
            self._count_call(values, duration_ms, _error(span, values))
        elif kind == telemetry.RETRIEVE:
            self._count_retrieval(values, duration_ms, _error(span, values))
        elif kind == telemetry.PIPELINE:
            self._count_query(span, values, duration_ms)
        elif kind == telemetry.INGEST:
            self._count_ingest(span, values, duration_ms)
        elif kind in STAGES:
            self._count_stage(kind, values, duration_ms)
        for event in span.events:
            self._count_finding(event.name, event.attributes or {})

    def _count_call(self, values: Values, duration_ms: float, error: str | None) -> None:
        add, observe = self.instruments.add, self.instruments.observe
        call = {name: values.get(name) for name in metrics.CALL}
        failed = {telemetry.ERROR_TYPE: error}
        observe(metrics.OPERATION_DURATION, duration_ms / 1000, call | failed)
        for name, direction in ((telemetry.USAGE_INPUT_TOKENS, "input"), (telemetry.USAGE_OUTPUT_TOKENS, "output")):
            if (tokens := values.get(name)) is not None:
                estimated = {telemetry.USAGE_ESTIMATED: values.get(telemetry.USAGE_ESTIMATED)}
                observe(metrics.TOKEN_USAGE, tokens, call | estimated | {metrics.TOKEN_TYPE: direction})
        few = {name: call[name] for name in metrics.MODEL}
        add(metrics.INFERENCE_REQUESTS, 1, few)
        if error:
            add(metrics.INFERENCE_ERRORS, 1, few | failed)
        if (first_s := values.get(telemetry.TIME_TO_FIRST_CHUNK)) is not None:
            observe(metrics.OPERATION_FIRST_CHUNK, first_s, call)
        for name, metric in (
            (telemetry.LATENCY_FIRST_TOKEN_MS, metrics.INFERENCE_FIRST_TOKEN),
            (telemetry.LATENCY_TOKENS_PER_SECOND, metrics.INFERENCE_TOKENS_PER_SECOND),
        ):
            if (value := values.get(name)) is not None:
                observe(metric, value, few)
        self._count_cost(values, few)

    def _count_cost(self, values: Values, call: Labels) -> None:
        spent = values.get(telemetry.COST_TOTAL)
        if spent is not None:
            whose = {name: values.get(name) for name in (telemetry.COLLECTION, telemetry.API_KEY)}
            self.instruments.add(metrics.COST, spent, {**call, **whose})
        elif not telemetry.is_local(str(values.get(telemetry.GEN_AI_SYSTEM, ""))):
            self.instruments.add(metrics.UNPRICED, 1, call)

    def _count_retrieval(self, values: Values, duration_ms: float, error: str | None) -> None:
        database = {name: values.get(name) for name in metrics.RETRIEVAL}
        pipeline = database | {telemetry.PIPELINE_NAME: values.get(telemetry.COLLECTION)}
        self.instruments.add(metrics.RETRIEVALS, 1, pipeline | {telemetry.ERROR_TYPE: error})
        self.instruments.observe(metrics.RETRIEVAL_DURATION, duration_ms, database | {telemetry.ERROR_TYPE: error})
        if error is None:
            self.instruments.observe(
                metrics.RETRIEVAL_RESULTS, values.get(telemetry.RETRIEVE_RESULTS_COUNT, 0), pipeline
            )

    def _count_query(self, span: ReadableSpan, values: Values, duration_ms: float) -> None:
        labels = {name: values.get(name) for name in metrics.QUERY} | {metrics.STATUS: _status(span)}
        self.instruments.add(metrics.QUERIES, 1, labels)
        self.instruments.observe(metrics.QUERY_DURATION, duration_ms, labels)
        for step in values.get(f"{names.OWN}degraded") or ():
            whose = {name: values.get(name) for name in (telemetry.COLLECTION, telemetry.ENVIRONMENT)}
            self.instruments.add(metrics.DEGRADED, 1, whose | {metrics.STEP: step})
        if values.get(telemetry.SECURITY_BLOCKED) is True:
            self.instruments.add(metrics.BLOCKED, 1, {telemetry.COLLECTION: values.get(telemetry.COLLECTION)})

    def _count_ingest(self, span: ReadableSpan, values: Values, duration_ms: float) -> None:
        labels = {telemetry.COLLECTION: values.get(telemetry.COLLECTION), metrics.STATUS: _status(span)}
        self.instruments.add(metrics.INGESTS, 1, labels)
        self._count_stage(telemetry.INGEST, values, duration_ms)

    def _count_stage(self, stage: str, values: Values, duration_ms: float) -> None:
        labels = {metrics.STAGE: stage, telemetry.ENVIRONMENT: values.get(telemetry.ENVIRONMENT)}
        self.instruments.observe(metrics.STAGE_DURATION, duration_ms, labels)

    def _count_finding(self, event: str, values: Values) -> None:
        if event == telemetry.SECURITY_THREAT_DETECTED:
            names = (telemetry.SECURITY_THREAT_TYPE, telemetry.SECURITY_OWASP)
            self.instruments.add(metrics.THREATS, 1, {name: values.get(name) for name in names})
        elif event == telemetry.PII_EVENT:
            types = values.get(telemetry.PII_TYPES) or ("unknown",)
            for match in [types] if isinstance(types, str) else types:
                self.instruments.add(metrics.PII, 1, {telemetry.PII_TYPES: match})


def _error(span: ReadableSpan, values: Values) -> str | None:
    return str(values.get(telemetry.ERROR_TYPE, "error")) if _status(span) == "error" else None


def _status(span: ReadableSpan) -> str:
    return "error" if span.status.status_code is StatusCode.ERROR else "ok"
