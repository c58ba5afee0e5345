"""Metrics from finished spans: one processor, so that a number and the spans behind it never disagree."""

from __future__ import annotations

import logging
import os
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import StatusCode

from evaluation_app.metrics.registry import Labels, Registry
from ragd import telemetry
from ragd.telemetry import metrics

CALLS = (telemetry.CHAT, telemetry.EMBEDDINGS)
STAGES = frozenset(
    {
        telemetry.QUERY, telemetry.LEXICAL, telemetry.VECTOR, telemetry.FUSE, telemetry.COMPRESS, telemetry.RERANK,
        telemetry.EVALUATE, telemetry.PARSE, telemetry.CHUNK, telemetry.STORE,
    }
)  # fmt: skip

FEW = (telemetry.OPERATION_NAME, telemetry.PROVIDER_NAME, telemetry.REQUEST_MODEL)

WAITING_MAX = 2000

log = logging.getLogger(__name__)

Values = Mapping[str, Any]


class SpanMeter(SpanProcessor):
    """Counts what spans tell, beside the work: a span that ends only waits here until somebody asks for the counts.

    `count_waiting` is called before every snapshot of the registry, and by a reporter's thread.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._waiting: deque[ReadableSpan] = deque()
        registry.before_snapshot(self.count_waiting)
        forget = weakref.WeakMethod(self._forget)
        os.register_at_fork(after_in_child=lambda: (clear := forget()) and clear())

    def on_end(self, span: ReadableSpan) -> None:
        self._waiting.append(span)
        if len(self._waiting) > WAITING_MAX:  # nobody came: what waits holds whole texts
            self.count_waiting()

    def count_waiting(self) -> None:
        """Count what has ended since. Several threads may call it: each span is counted once."""
        for _ in range(len(self._waiting)):
            try:
                span = self._waiting.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                self._count(span)
            except Exception:  # a foreign value on one span must not end the counting of the others
                log.exception("the span %r could not be counted", span.name)

    def _forget(self) -> None:
        """In a forked child: what ended in the parent is counted there."""
        self._waiting.clear()

    def _count(self, span: ReadableSpan) -> None:
        scope = span.instrumentation_scope
        if scope is None or scope.name != "ragd" or span.start_time is None or span.end_time is None:
            return
        values: Values = span.attributes or {}
        took_ms = (span.end_time - span.start_time) / 1e6
        kind = span.name.partition(" ")[0]
        if kind in CALLS:
            self._count_call(values, took_ms, _error(span, values))
        elif kind == telemetry.RETRIEVE:
            self._count_retrieval(values, took_ms, _error(span, values))
        elif kind == telemetry.PIPELINE:
            self._count_query(span, values, took_ms)
        elif kind == telemetry.INGEST:
            self._count_ingest(span, values, took_ms)
        elif kind in STAGES:
            self.registry.observe(metrics.STAGE_DURATION, took_ms, {metrics.STAGE: kind})
        for event in span.events:
            self._count_finding(event.name, event.attributes or {})

    def _count_call(self, values: Values, took_ms: float, error: str | None) -> None:
        add, observe = self.registry.add, self.registry.observe
        call = {
            name: values.get(name)
            for name in (
                telemetry.OPERATION_NAME, telemetry.PROVIDER_NAME, telemetry.REQUEST_MODEL, telemetry.RESPONSE_MODEL,
                telemetry.SERVER_ADDRESS, telemetry.SERVER_PORT,
            )
        }  # fmt: skip
        failed = {telemetry.ERROR_TYPE: error}
        observe(metrics.OPERATION_DURATION, took_ms / 1000, call | failed)
        for name, direction in ((telemetry.USAGE_INPUT_TOKENS, "input"), (telemetry.USAGE_OUTPUT_TOKENS, "output")):
            if (tokens := values.get(name)) is not None:
                estimated = {telemetry.USAGE_ESTIMATED: values.get(telemetry.USAGE_ESTIMATED)}
                observe(metrics.TOKEN_USAGE, tokens, call | estimated | {metrics.TOKEN_TYPE: direction})
        few = {name: call[name] for name in FEW}
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
            self.registry.add(metrics.COST, spent, {**call, **whose})
        elif not telemetry.is_local(str(values.get(telemetry.GEN_AI_SYSTEM, ""))):
            self.registry.add(metrics.UNPRICED, 1, call)

    def _count_retrieval(self, values: Values, took_ms: float, error: str | None) -> None:
        database = {telemetry.RETRIEVE_DATABASE: values.get(telemetry.RETRIEVE_DATABASE)}
        pipeline = database | {telemetry.PIPELINE_NAME: values.get(telemetry.COLLECTION)}
        self.registry.add(metrics.RETRIEVALS, 1, pipeline | {telemetry.ERROR_TYPE: error})
        self.registry.observe(metrics.RETRIEVAL_DURATION, took_ms, database | {telemetry.ERROR_TYPE: error})
        if error is None:
            self.registry.observe(metrics.RETRIEVAL_RESULTS, values.get(telemetry.RETRIEVE_RESULTS_COUNT, 0), pipeline)

    def _count_query(self, span: ReadableSpan, values: Values, took_ms: float) -> None:
        whose = {telemetry.COLLECTION: values.get(telemetry.COLLECTION), telemetry.DOOR: values.get(telemetry.DOOR)}
        self.registry.add(metrics.QUERIES, 1, whose | {metrics.STATUS: _status(span)})
        self.registry.observe(metrics.QUERY_DURATION, took_ms, whose | {metrics.STATUS: _status(span)})
        if values.get(telemetry.SECURITY_BLOCKED) is True:
            self.registry.add(metrics.BLOCKED, 1, {telemetry.COLLECTION: values.get(telemetry.COLLECTION)})

    def _count_ingest(self, span: ReadableSpan, values: Values, took_ms: float) -> None:
        labels = {telemetry.COLLECTION: values.get(telemetry.COLLECTION), metrics.STATUS: _status(span)}
        self.registry.add(metrics.INGESTS, 1, labels)
        self.registry.observe(metrics.STAGE_DURATION, took_ms, {metrics.STAGE: telemetry.INGEST})

    def _count_finding(self, event: str, values: Values) -> None:
        if event == telemetry.SECURITY_THREAT_DETECTED:
            names = (telemetry.SECURITY_THREAT_TYPE, telemetry.SECURITY_OWASP)
            self.registry.add(metrics.THREATS, 1, {name: values.get(name) for name in names})
        elif event == telemetry.PII_EVENT:
            types = values.get(telemetry.PII_TYPES) or ("unknown",)
            for found in [types] if isinstance(types, str) else types:
                self.registry.add(metrics.PII, 1, {telemetry.PII_TYPES: found})


def _error(span: ReadableSpan, values: Values) -> str | None:
    return str(values.get(telemetry.ERROR_TYPE, "error")) if _status(span) == "error" else None


def _status(span: ReadableSpan) -> str:
    return "error" if span.status.status_code is StatusCode.ERROR else "ok"
