"""One span sent to a collector on request, and what came back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import urllib3
from django.conf import settings
from django.utils.module_loading import import_string
from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from evaluation_app.spans.store.collector_export import TIMEOUT_S, name_endpoint, post_spans
from ragd.errors import InvalidInput
from ragd.normalization import normalize

SPAN_NAME = "ragd.connection_test"
ANSWER_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class Collector:
    """Where spans go, "" for nowhere. protocol: http/protobuf or http/json. tls: files, as urllib3 calls them."""

    endpoint: str
    protocol: str
    headers: Mapping[str, str]
    tls: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Trial:
    """endpoint: without secrets. status: of the HTTP answer, None where none came. said: how the answer began, or what
    failed. trace_id: of the span, by which the collector finds it."""

    endpoint: str
    protocol: str
    passed: bool
    status: int | None
    said: str
    took_ms: float
    trace_id: str


def read_collector() -> Collector:
    """As the site is set up: a function that the settings name reads the environment."""
    found: Collector = import_string(settings.RAGD_COLLECTOR)()
    return found


def send_test_span(collector: Collector) -> Trial:
    """Send a span without any text of the server to the collector. Nothing is raised for what fails there."""
    spans = _make_span()
    started = time.perf_counter()
    passed, status, said = _send(spans, collector)
    return Trial(
        endpoint=name_endpoint(collector.endpoint),
        protocol=collector.protocol,
        passed=passed,
        status=status,
        said=said,
        took_ms=1000 * (time.perf_counter() - started),
        trace_id=f"{spans[0].context.trace_id:032x}",
    )


def check_endpoint(endpoint: str) -> str:
    """The address that takes spans: of a base address, or of one that ends in /v1/traces.

    Raises InvalidInput (endpoint) for what is no http(s) address.
    """
    try:
        parts = urlsplit(endpoint)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise InvalidInput(
            f"the endpoint must be an address such as http://127.0.0.1:4318; this is {endpoint[:200]!r}",
            field="endpoint",
        )
    return endpoint if parts.path.endswith("/v1/traces") else f"{endpoint.rstrip('/')}/v1/traces"


def host_of(endpoint: str) -> tuple[str, int | None]:
    """Host and port of a checked endpoint."""
    parts = urlsplit(endpoint)
    return parts.hostname or "", parts.port


def _make_span() -> list[ReadableSpan]:
    provider = TracerProvider(resource=Resource.create({"service.name": "ragd"}), shutdown_on_exit=False)
    span = provider.get_tracer("ragd").start_span(SPAN_NAME)
    span.end()
    assert isinstance(span, ReadableSpan)
    return [span]


def _send(spans: Sequence[ReadableSpan], to: Collector) -> tuple[bool, int | None, str]:
    with urllib3.PoolManager(timeout=TIMEOUT_S, retries=False, **dict[str, Any](to.tls)) as pool:
        try:
            answer = post_spans(pool, to.endpoint, spans, headers=to.headers, protocol=to.protocol)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            return False, None, normalize(f"{type(error).__name__}: {error}")[:ANSWER_CHARS_MAX]
        if answer.status >= 300:
            return False, answer.status, _as_text(answer.data)
        rejected = _rejected(answer.data, to.protocol)
        return not rejected, answer.status, rejected


def _rejected(data: bytes, protocol: str) -> str:
    """What the collector says of spans that it did not take; "" where it took them."""
    response = ExportTraceServiceResponse()
    try:
        if protocol == "http/json":
            Parse(data or b"{}", response, ignore_unknown_fields=True)
        else:
            response.ParseFromString(data)
    except (DecodeError, ParseError):
        return f"no answer of OTLP: {_as_text(data)}"
    partial = response.partial_success
    return f"not taken: {normalize(partial.error_message)[:ANSWER_CHARS_MAX]}" if partial.rejected_spans else ""


def _as_text(data: bytes) -> str:
    return normalize(data[: 4 * ANSWER_CHARS_MAX].decode("utf-8", "replace"))[:ANSWER_CHARS_MAX].strip()
