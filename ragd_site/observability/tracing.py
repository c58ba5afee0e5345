"""Sets the metrics of a process up: what is counted, where the counts go. Called by
`ragd_site.observability.tracing.set_up`.

Sets OpenTelemetry up once per process: what is traced, what is left out, where spans go.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.utils.module_loading import import_string
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.re import parse_env_headers
from opentelemetry.util.types import Attributes
from prometheus_client import values

from evaluation_app.telemetry.metrics.instruments import Instruments, SpanMeter
from evaluation_app.telemetry.store.collector import PROTOBUF, PROTOCOLS, Collector, CollectorExporter
from evaluation_app.telemetry.store.exporter import CountedExporter, CountingProcessor, PostgresSpanExporter
from ragd import SPEC_VERSION, telemetry
from ragd.telemetry import metrics
from ragd.version import product_version

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


EXPORT_TIMEOUT_S = 5.0
LAST_EXPORT_MS = 2000  # of a process that ends
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
UNSAFE_IN_FILES = re.compile(r"[^a-zA-Z0-9.-]")


class CountingExporter(OTLPMetricExporter):
    """Counts the exports that the collector did not accept. The next export holds what they held."""

    def __init__(self) -> None:
        super().__init__(timeout=EXPORT_TIMEOUT_S, headers=request_headers("METRICS"))
        self.count_failure: Callable[[], None] = lambda: None

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: object
    ) -> MetricExportResult:
        result = super().export(metrics_data, timeout_millis, **kwargs)
        if result is not MetricExportResult.SUCCESS:
            self.count_failure()
        return result


class ReportingMeter(SpanMeter):
    """Counts finished spans; at the end of the process its counts are exported once more."""

    provider: MeterProvider | None = None

    def shutdown(self) -> None:
        super().shutdown()
        if self.provider is not None:
            self.provider.shutdown(LAST_EXPORT_MS)


def use_folder(folder: Path) -> None:
    """Count in files of this folder from now on. Call it before the first Instruments of a process is made."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[FOLDER_VARIABLE] = str(folder)
    host = UNSAFE_IN_FILES.sub("-", socket.gethostname())
    values.ValueClass = values.MultiProcessValue(lambda: f"{host}-{os.getpid()}")  # type: ignore[no-untyped-call]


def build_meter(
    service: str,
    folder: Path,
    store: CountedExporter,
    sender: CountedExporter,
    build_resource: Callable[[str], Resource],
) -> ReportingMeter:
    """The processor that counts. store and sender know how many spans they delivered and lost.

    The counts go to files in the folder, and to the OTLP endpoint where one is set.
    """
    use_folder(folder)
    exporter = CountingExporter() if sends_metrics() else None
    provider = build_provider(exporter, build_resource(service)) if exporter else None
    instruments = Instruments(provider.get_meter("ragd") if provider else None)
    if exporter is not None:
        exporter.count_failure = lambda: instruments.add(metrics.OTLP_FAILURES, 1, {metrics.SIGNAL: "metrics"})
    totals: dict[metrics.Metric, Callable[[], int]] = {
        metrics.SPANS_WRITTEN: lambda: store.delivered,
        metrics.SPANS_LOST: lambda: store.lost,
        metrics.OTLP_SPANS_SENT: lambda: sender.delivered,
        metrics.OTLP_SPANS_LOST: lambda: sender.lost,
    }
    meter = ReportingMeter(instruments, totals)
    meter.provider = provider
    return meter


def build_provider(exporter: CountingExporter, resource: Resource) -> MeterProvider:
    """Exports every OTEL_METRIC_EXPORT_INTERVAL milliseconds, 60,000 where that is not set."""
    return MeterProvider([PeriodicExportingMetricReader(exporter)], resource, shutdown_on_exit=False)


def sends_metrics() -> bool:
    """Whether an OTLP endpoint is set, for metrics alone or for everything."""
    return any(os.environ.get(name) for name in ENDPOINT_VARIABLES)


STORE_LIMITS = {"max_queue_size": 4096, "max_export_batch_size": 256, "schedule_delay_millis": 1000}
# of OpenTelemetry; whoever runs the server may set others
DEFAULTS = {
    "OTEL_BSP_MAX_QUEUE_SIZE": "4096",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "5",
    "OTEL_SEMCONV_STABILITY_OPT_IN": "http,database",  # the stable names of attributes
}
CONNECT_TIMEOUT_S = 3
SESSION_OPTIONS = "-c statement_timeout=5000 -c lock_timeout=2000 -c application_name=ragd-spans"

# A pool of 200 documents is 800 attributes and 200 events; a rerank span holds it twice.
LIMITS = SpanLimits(
    max_span_attributes=20_000, max_events=5_000, max_links=1_000, max_event_attributes=1_000, max_link_attributes=1_000
)
UNTRACED_URLS = ("/v1/health", "/static/", "/favicon.ico", "/jobs/running/", r"^https?://[^/]+/metrics$")
UNTRACED_TASKS = ("maintain", "heartbeat")
CLIENT_PATHS = ("/v1/", "/mcp")  # of programs; other requests are those of pages
STAGE_PREFIX = "rag."
STATEMENTS_KNOWN = 200  # of each connection
OWN_PREFIXES = (f"{telemetry.CHAT} ", f"{telemetry.EMBEDDINGS} ", STAGE_PREFIX, telemetry.OWN)

_provider: TracerProvider | None = None
_exporters: list[Any] = []  # to the span store, and to the collector


def set_up(service: str) -> TracerProvider:
    """Trace this process. service: "web", "worker" or "cli". Call after Django's settings are known and before the
    first request or task, in every process that does work: gunicorn's post_fork, Celery's worker_process_init.

    A second call in the same process, or in a child of it, changes nothing: the processors restart after a fork.
    """
    global _provider
    if _provider is not None:
        return _provider
    from django.conf import settings

    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    _provider = TracerProvider(
        resource=build_resource(service), sampler=RagdSampler(), span_limits=LIMITS, shutdown_on_exit=True
    )
    store = local_processor(service, settings.RAGD_CAPTURE_CONTENT)
    _provider.add_span_processor(EnvironmentProcessor())
    _provider.add_span_processor(store)
    sender = otlp_processor(settings.RAGD_OTLP_CONTENT)
    _provider.add_span_processor(sender)
    # last, so that what it tells of the store and the sender at the end is the whole of it
    meter = build_meter(service, settings.RAGD_METRICS_FOLDER, store.exporter, sender.exporter, build_resource)
    _provider.add_span_processor(meter)
    _exporters[:] = [store.exporter, sender.exporter]
    follow_settings()
    trace.set_tracer_provider(_provider)
    instrument()
    return _provider


def follow_settings() -> None:
    """Record of texts what the settings say by now."""
    from django.conf import settings

    if not _exporters:
        return
    switches: list[telemetry.Capture] = [settings.RAGD_CAPTURE_CONTENT, settings.RAGD_OTLP_CONTENT]
    telemetry.configure(capture=widest(*switches), pricer=find_cost, vectors=settings.RAGD_CAPTURE_VECTORS)
    for exporter, capture in zip(_exporters, switches, strict=True):
        exporter.capture = capture


def find_cost(
    system: str, model: str, input_tokens: int, output_tokens: int, cached_tokens: int
) -> telemetry.Cost | None:
    """`prices.find_cost`, loaded at the first call: spans are set up before the models."""
    pricer: telemetry.Pricer = import_string("collections_app.endpoints.prices.find_cost")
    return pricer(system, model, input_tokens, output_tokens, cached_tokens)


def shut_down() -> None:
    """Write what is queued and stop. For the end of a process."""
    if _provider is not None:
        _provider.shutdown()


def build_resource(service: str) -> Resource:
    return Resource.create(
        {
            "service.name": f"ragd-{service}",
            "service.namespace": "ragd",
            "service.version": product_version(),
            telemetry.SPEC: SPEC_VERSION,
            "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
            "openinference.project.name": "ragd",
        }
    )


def instrument() -> None:
    """Requests, SQL inside ragd's own spans, and tasks."""
    from opentelemetry.instrumentation import psycopg as statements
    from opentelemetry.instrumentation.celery import CeleryInstrumentor
    from opentelemetry.instrumentation.django import DjangoInstrumentor

    tracer = trace.get_tracer(statements.__name__)

    class StageTracer(statements.CursorTracer):
        """Looks only at statements inside the stages of a query: the sampler would drop the spans of all others."""

        def traced_execution(self, cursor: Any, query_method: Any, *args: Any, **kwargs: Any) -> Any:
            if not _is_stage(trace.get_current_span()):
                return query_method(*args, **kwargs)
            # nothing stands below it, so it is not made the current one
            span = self._begin(cursor, *args)
            try:
                return query_method(*args, **kwargs)
            except Exception as error:
                span.record_exception(error)
                span.set_status(trace.Status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}"))
                raise
            finally:
                span.end()

        def _begin(self, cursor: Any, statement: Any, *args: Any) -> trace.Span:
            """A span whose name and attributes are worked out once for each text."""
            known: dict[str, tuple[str, Attributes]] = self.__dict__.setdefault("_known", {})
            if isinstance(statement, str) and statement in known:
                name, attributes = known[statement]
                return tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)
            name = self.get_operation_name(cursor, [statement]) or "SQL"
            span = tracer.start_span(name, kind=SpanKind.CLIENT)
            self._populate_span(span, cursor, statement, *args)
            if isinstance(span, SdkSpan) and isinstance(statement, str) and len(known) < STATEMENTS_KNOWN:
                known[statement] = name, dict(span.attributes or {})
            return span

    statements.CursorTracer = StageTracer  # type: ignore[misc]  # there is no setting for it
    DjangoInstrumentor().instrument(excluded_urls=",".join(UNTRACED_URLS))
    statements.PsycopgInstrumentor().instrument()
    CeleryInstrumentor().instrument()  # type: ignore[no-untyped-call]


def local_processor(service: str, capture: telemetry.Capture) -> CountingProcessor:
    exporter = PostgresSpanExporter(connect, name=f"{service}@{socket.gethostname()}", capture=capture)
    return CountingProcessor(exporter, **STORE_LIMITS)


def otlp_processor(capture: telemetry.Capture) -> CountingProcessor:
    """To the endpoint of the environment, else to the one that is stored, whenever there is one."""
    name = f"{os.environ.get('RAGD_PROCESS', 'command')}@{socket.gethostname()}"
    return CountingProcessor(CollectorExporter(connect, name=name, capture=capture))


def connect() -> psycopg.Connection[Any]:
    """A connection of its own to Django's default database, outside its transactions, with short timeouts."""
    from django.db import connections

    values = connections["default"].settings_dict
    payload = {"host": values["HOST"], "port": values["PORT"], "user": values["USER"], "password": values["PASSWORD"]}
    known = {name: value for name, value in payload.items() if value}
    return psycopg.connect(
        dbname=values["NAME"],
        autocommit=True,
        connect_timeout=CONNECT_TIMEOUT_S,
        options=SESSION_OPTIONS,
        prepare_threshold=None,
        **known,
    )


def widest(local: telemetry.Capture, remote: telemetry.Capture) -> telemetry.Capture:
    """What the spans must hold in memory so that each exporter can apply its own switch."""
    return min(local, remote, key=telemetry.CAPTURES.index)


class RagdSampler(Sampler):
    """Keeps requests, tasks and everything of ragd; keeps SQL and HTTP client spans only inside the stages of a query.

    So a run's waterfall shows the statements of its stages, and session look-ups, page queries, polling and the many
    statements of an ingest leave none.
    A child of a span that was left out is left out; what a client says about sampling does not count.
    """

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        parent = trace.get_current_span(parent_context)
        context = parent.get_span_context()
        keep = context.trace_flags.sampled if context.is_valid and kind is not SpanKind.SERVER else True
        if keep and kind is SpanKind.CLIENT and not name.startswith(OWN_PREFIXES):
            keep = _is_stage(parent)
        if keep and kind in (SpanKind.PRODUCER, SpanKind.CONSUMER):
            keep = not any(word in name for word in UNTRACED_TASKS)
        return SamplingResult(Decision.RECORD_AND_SAMPLE if keep else Decision.DROP, attributes, trace_state)

    def get_description(self) -> str:
        return "RagdSampler"


def _is_stage(span: trace.Span) -> bool:
    return isinstance(span, SdkSpan) and span.name.startswith(STAGE_PREFIX)


class EnvironmentProcessor(SpanProcessor):
    """Every span says of which environment it is: that of the code around it, else that of the span that it stands in,
    else interface for the request of a page, else production."""

    def on_start(self, span: SdkSpan, parent_context: Context | None = None) -> None:
        if telemetry.ENVIRONMENT in (span.attributes or ()):  # that of the code around it
            return
        parent = trace.get_current_span(parent_context)
        inherited = (parent.attributes or {}).get(telemetry.ENVIRONMENT) if isinstance(parent, SdkSpan) else None
        span.set_attribute(
            telemetry.ENVIRONMENT, telemetry.current_environment() or inherited or _default_environment(span)
        )


def _default_environment(span: SdkSpan) -> str:
    path = str((span.attributes or {}).get("url.path", ""))
    is_page = span.kind is SpanKind.SERVER and not path.startswith(CLIENT_PATHS)
    return telemetry.INTERFACE if is_page else telemetry.PRODUCTION
