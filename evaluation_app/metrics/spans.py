"""Metrics from finished spans: one processor, so that a number and the spans behind it never disagree."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import StatusCode

from evaluation_app.metrics.instruments import Instruments, Labels
from ragd import telemetry
from ragd.telemetry import metrics, names

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

    totals: counters that somebody else keeps for this process; what they grew by is added whenever a span ends and at
    the shutdown.
    """

    def __init__(
        self, instruments: Instruments, totals: Mapping[metrics.Metric, Callable[[], int]] | None = None
    ) -> None:
        self.instruments = instruments
        self._totals = totals or {}
        self._added = dict.fromkeys(self._totals, 0)
        self._lock = threading.Lock()

    def on_end(self, span: ReadableSpan) -> None:
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
