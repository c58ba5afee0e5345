"""Where spans are sent besides the span store, and in which protocol: OpenTelemetry's own variables say it."""

from __future__ import annotations

import logging
import os

from django.conf import settings
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.util.re import parse_env_headers

from evaluation_app.spans.store import collector_export
from evaluation_app.spans.store.collector_trial import Collector

TRACES_PATH = "v1/traces"
TLS = {"ca_certs": "CERTIFICATE", "cert_file": "CLIENT_CERTIFICATE", "key_file": "CLIENT_KEY"}

PROTOBUF, JSON = "http/protobuf", "http/json"

log = logging.getLogger(__name__)


def setting(name: str) -> str:
    """OTEL_EXPORTER_OTLP_TRACES_<name>, else OTEL_EXPORTER_OTLP_<name>, else ""."""
    return os.environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}") or ""


def traces_endpoint() -> str:
    """Where spans go: the variable for traces as it stands, or the common one with the path of traces; "": nowhere."""
    own = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    common = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    return own or (f"{common.rstrip('/')}/{TRACES_PATH}" if common else "")


def request_headers(signal: str) -> dict[str, str]:
    """The headers of what is sent, such as a key. signal: TRACES or METRICS, which may have headers of their own."""
    own = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_HEADERS", "")
    return dict(parse_env_headers(own or settings.OTEL_EXPORTER_OTLP_HEADERS, liberal=True))


def protocol_of() -> str:
    """What OTEL_EXPORTER_OTLP_PROTOCOL names: http/protobuf (the default, and for what is not known) or http/json."""
    protocol = setting("PROTOCOL") or PROTOBUF
    if protocol not in (PROTOBUF, JSON):
        log.warning("OTEL_EXPORTER_OTLP_PROTOCOL must be %s or %s, not %s; taking the first", PROTOBUF, JSON, protocol)
    return protocol if protocol == JSON else PROTOBUF


def tls_of() -> dict[str, str]:
    """Files of certificates, as urllib3 calls them."""
    return {name: path for name, variable in TLS.items() if (path := setting(variable))}


def configured() -> Collector:
    """As the environment says it, for `collector_trial`."""
    return Collector(traces_endpoint(), protocol_of(), request_headers("TRACES"), tls_of())


def build_stored(found: Collector) -> SpanExporter:
    """What sends to a collector that was set on the page *Connections*; files of certificates are the environment's."""
    return collector_export.HttpExporter(
        found.endpoint,
        headers=found.headers,
        compress=setting("COMPRESSION") == "gzip",
        tls=tls_of(),
        protocol=found.protocol,
    )


def build_exporter() -> SpanExporter:
    """What speaks the protocol of `protocol_of`."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    if protocol_of() == JSON:
        return collector_export.HttpExporter(
            traces_endpoint(),
            headers=request_headers("TRACES"),
            compress=setting("COMPRESSION") == "gzip",
            tls=tls_of(),
        )
    return OTLPSpanExporter(timeout=collector_export.TIMEOUT_S, headers=request_headers("TRACES"))
