"""Read from OpenTelemetry's own variables where spans and metrics are sent."""

from __future__ import annotations

import logging
import os

from django.conf import settings
from opentelemetry.util.re import parse_env_headers

from evaluation_app.telemetry.store.collector import PROTOBUF, PROTOCOLS, Collector

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
