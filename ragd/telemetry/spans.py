"""The helpers that open spans, and what carries a trace over a broker.

A block that raises leaves ERROR with a description on its span; Required fields are set when the span opens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ragd.telemetry import names
from ragd.telemetry.content import Value, captured, captured_status, lets_all_through
from ragd.types import canonical_json

Attributes = Mapping[str, Value | None]
Stage = Literal["retrieve", "rerank", "generate", "evaluate"]
LEFT = "Cancelled"
# Who spans are of: clients and people, evaluation, the playground, or the interface itself.
PRODUCTION = "production"
EVALUATION = "evaluation"
PLAYGROUND = "playground"
INTERFACE = "interface"
ENVIRONMENTS = (PRODUCTION, EVALUATION, PLAYGROUND, INTERFACE)

_environment: ContextVar[str] = ContextVar("ragd_environment", default="")
_tracer = trace.get_tracer("ragd")
_propagator = TraceContextTextMapPropagator()
_OK = Status(StatusCode.OK)


def current_environment() -> str:
    """That of the innermost `environment` around this code, "" outside of any."""
    return _environment.get()


@contextmanager
def environment(name: str, *, marks_parent: bool = True) -> Iterator[None]:
    """Every span that is opened inside is of this environment.

    marks_parent: so is the span that is open here, such as the request or the task that does the work. Raises
    ValueError for a name that is not in ENVIRONMENTS.
    """
    if name not in ENVIRONMENTS:
        raise ValueError(f"the environment must be one of {', '.join(ENVIRONMENTS)}, not {name!r}")
    parent = trace.get_current_span()
    if marks_parent and parent.is_recording():
        parent.set_attribute(names.ENVIRONMENT, name)
    token = _environment.set(name)
    try:
        yield
    finally:
        _environment.reset(token)


def set_attributes(span: Span, attributes: Attributes) -> None:
    """Set what is not None, through the content switch. Every attribute of ragd goes through here or `add_event`."""
    if span.is_recording():
        span.set_attributes(_let_through(attributes))


def add_event(span: Span, name: str, attributes: Attributes) -> None:
    """Add an event, through the content switch. None values are left out."""
    if span.is_recording():
        span.add_event(name, _let_through(attributes))


def record_error(span: Span, error: BaseException) -> None:
    """ERROR with a description, error.type and an exception event; the message goes through the content switch."""
    if not span.is_recording():
        return
    kind = type(error).__name__
    message = str(error)
    span.set_status(Status(StatusCode.ERROR, captured_status(f"{kind}: {message}") if message else kind))
    set_attributes(span, {names.ERROR_TYPE: kind})
    add_event(span, names.EXCEPTION, {names.EXCEPTION_TYPE: kind, names.EXCEPTION_MESSAGE: message})


def _let_through(attributes: Attributes) -> dict[str, Value]:
    if lets_all_through():
        return {name: value for name, value in attributes.items() if value is not None}
    return {name: captured(name, value) for name, value in attributes.items() if value is not None}


class _SpanBlock(AbstractContextManager[Span]):
    """A block with a span. A class, since what a request opens most costs least this way."""

    __slots__ = ("attributes", "begin", "span", "token")

    def __init__(self, begin: Callable[[dict[str, Value]], Span], attributes: Attributes) -> None:
        self.begin, self.attributes = begin, attributes

    def __enter__(self) -> Span:
        carried: dict[str, Value] = {}
        for part in ({names.ENVIRONMENT: current_environment() or None}, _shared.get(), self.attributes):
            carried |= _let_through(part)
        self.span = self.begin(carried)
        self.token = otel_context.attach(trace.set_span_in_context(self.span))
        return self.span

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, place: object) -> None:
        if isinstance(error, GeneratorExit):
            _mark_left(self.span)
        elif error is not None:
            record_error(self.span, error)
        elif self.span.is_recording() and not _has_failed(self.span):
            self.span.set_status(_OK)
        otel_context.detach(self.token)
        self.span.end()


def open_span(
    name: str, kind: SpanKind, attributes: Attributes, *, context: Context | None = None, links: Sequence[Link] = ()
) -> AbstractContextManager[Span]:
    """Open a span that carries the run's attributes, ends OK, or ERROR when the block raises or is left early.

    context: what it stands in, where that is not the span that is open here.
    """
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):  # no SDK: nobody would see it
        return nullcontext(trace.INVALID_SPAN)
    return _SpanBlock(
        lambda carried: _tracer.start_span(
            name, context, kind, carried, links, record_exception=False, set_status_on_exception=False
        ),
        attributes,
    )


def _mark_left(span: Span) -> None:
    """Whoever asked went away before the end, so that nothing was wrong and yet nothing is whole."""
    if span.is_recording() and not _has_failed(span):
        span.set_status(Status(StatusCode.ERROR, f"{LEFT}: the caller went away before the end"))
        set_attributes(span, {names.ERROR_TYPE: LEFT})


def _has_failed(span: Span) -> bool:
    status = getattr(span, "status", None)
    return status is not None and status.status_code is StatusCode.ERROR


# What every span inside a pipeline or an ingest carries: the run and the collection.
_NOTHING: Attributes = {}
_shared: ContextVar[Attributes] = ContextVar("ragd_shared", default=_NOTHING)
_pipeline: ContextVar[Pipeline | None] = ContextVar("ragd_pipeline", default=None)
_watch: ContextVar[Callable[[Stage, int | None], object] | None] = ContextVar("ragd_watch", default=None)


@contextmanager
def sharing(attributes: Attributes) -> Iterator[None]:
    """Every ragd span that is opened inside carries these, in place of those that it would carry outside."""
    token = _shared.set(attributes)
    try:
        yield
    finally:
        _shared.reset(token)


@dataclass(slots=True)
class Pipeline:
    """The root span of one query. trace_id: 32 hex digits, "" without an SDK."""

    span: Span
    trace_id: str

    @property
    def span_id(self) -> str:
        """16 hex digits, "" without an SDK."""
        context = self.span.get_span_context()
        return trace.format_span_id(context.span_id) if context.is_valid else ""

    def reach(self, stage: Stage) -> None:
        """The last stage reached. The helpers of the stages call it."""
        set_attributes(self.span, {names.PIPELINE_STAGE: stage})

    def finish(self, answer: str) -> None:
        set_attributes(self.span, {names.OUTPUT_VALUE: answer, names.OUTPUT_MIME_TYPE: "text/plain"})


@dataclass(frozen=True, slots=True)
class QueryOrigin:
    """Of which run a query is, and who asked it over what. collection: None for the pipeline's name. session_id: the
    conversation. api_key: a key's label."""

    run_id: str | None = None
    collection: str | None = None
    channel: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    api_key: str | None = None


@contextmanager
def pipeline_span(
    name: str,
    query: str,
    origin: QueryOrigin = QueryOrigin(),
    *,
    metadata: Mapping[str, Any] | None = None,
    tags: Sequence[str] = (),
    own_trace: bool = False,
) -> Iterator[Pipeline]:
    """The root of one query: `rag.pipeline {name}`.

    Every ragd span inside carries run_id, collection, api_key and session_id of the origin. metadata: facts of the run
    without any text of a user, such as its mode. tags: a few words.
    Outside of any `environment` it is of production, and so is the request around it. own_trace: it begins a trace,
    linked to the span that is open here, such as the task of an evaluation run that asks many questions.
    """
    shared: dict[str, Value | None] = {
        names.RUN_ID: origin.run_id, names.COLLECTION: origin.collection or name, names.API_KEY: origin.api_key or None,
        names.SESSION_ID: origin.session_id or None, names.CONVERSATION_ID: origin.session_id or None,
    }  # fmt: skip
    attributes: dict[str, Value | None] = {
        names.PIPELINE_NAME: name, names.PIPELINE_STAGE: "retrieve", names.RAG_QUERY: query, names.OI_KIND: "CHAIN",
        names.INPUT_VALUE: query, names.INPUT_MIME_TYPE: "text/plain",
        names.CHANNEL: origin.channel, names.USER_ID: origin.user_id,
        names.METADATA: canonical_json(dict(metadata)) if metadata else None, names.TAGS: list(tags) or None,
    }  # fmt: skip
    with (
        environment(current_environment() or PRODUCTION),
        sharing(shared),
        open_span(f"{names.PIPELINE} {name}", SpanKind.INTERNAL, attributes, **_apart() if own_trace else {}) as span,
    ):
        pipeline = Pipeline(span, current_trace_id())
        inner = _pipeline.set(pipeline)
        try:
            yield pipeline
        finally:
            _pipeline.reset(inner)


class _Apart(TypedDict, total=False):
    context: Context
    links: Sequence[Link]


def _apart() -> _Apart:
    """Where a span begins a trace of its own, linked to the span that is open here; nothing where none is recorded."""
    here = trace.get_current_span().get_span_context()
    if not here.is_valid or not here.trace_flags.sampled:
        return {}
    return {
        "context": trace.set_span_in_context(trace.INVALID_SPAN),
        "links": [Link(here, {names.LINK_KIND: "asked_by"})],
    }


def reach_stage(stage: Stage, count: int | None = None) -> None:
    """count: of what the stage works on, for who watches."""
    if pipeline := _pipeline.get():
        pipeline.reach(stage)
    if watch := _watch.get():
        watch(stage, count)


@contextmanager
def watching_stages(watch: Callable[[Stage, int | None], object]) -> Iterator[None]:
    """Tell of every stage that is reached in the block, when it is: its name, and on how much it works."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


@contextmanager
def query_span(name: str, query: str, model: str | None = None, dims: int | None = None) -> Iterator[Span]:
    """Query processing and its embedding: `rag.query {name}`, name is the pipeline's."""
    attributes: dict[str, Value | None] = {
        names.RAG_QUERY: query, names.QUERY_EMBEDDING_MODEL: model, names.QUERY_EMBEDDING_DIMENSIONS: dims,
        names.PIPELINE_NAME: name, names.OI_KIND: "CHAIN",
        names.INPUT_VALUE: query, names.INPUT_MIME_TYPE: "text/plain",
    }  # fmt: skip
    with open_span(f"{names.QUERY} {name}", SpanKind.INTERNAL, attributes) as span:
        yield span


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """One attempt at a job. attempt: from 1. queue_ms: how long the job waited before it."""

    job_id: str
    kind: str | None = None
    attempt: int | None = None
    queue_ms: float | None = None


@contextmanager
def ingest_span(
    *, collection: str, doc_id: str, job: JobAttempt | None = None, api_key: str | None = None, name: str = names.INGEST
) -> Iterator[Span]:
    """The root of one document's ingest, or of another job over a collection's chunks (`name`).

    Every ragd span inside carries the collection and api_key, the label of the key that asked for it.
    """
    shared: dict[str, Value | None] = {names.COLLECTION: collection, names.API_KEY: api_key or None}
    attributes: dict[str, Value | None] = {
        names.OI_KIND: "CHAIN", names.DOCUMENT_ID: doc_id or None,
        names.INPUT_VALUE: doc_id or None, names.INPUT_MIME_TYPE: "text/plain" if doc_id else None,
    }  # fmt: skip
    if job is not None:
        attributes |= {
            names.JOB_ID: job.job_id, names.JOB_KIND: job.kind, names.JOB_ATTEMPT: job.attempt,
            names.LATENCY_QUEUE_MS: job.queue_ms,
        }  # fmt: skip
    with (
        environment(current_environment() or PRODUCTION),
        sharing(shared),
        open_span(name, SpanKind.INTERNAL, attributes) as span,
    ):
        yield span


def fetch_span(*, address: str) -> AbstractContextManager[Span]:
    """What a job fetches from a site or a bucket. The part of an address after "?" goes through the content switch."""
    return open_span(names.FETCH, SpanKind.INTERNAL, {names.OI_KIND: "CHAIN", names.URL_FULL: address})


def stage(name: str, **attributes: Value | None) -> AbstractContextManager[Span]:
    """An own span, INTERNAL: `with stage(LEXICAL, pool=50) as span`. A keyword becomes `ragd.<keyword>`."""
    own: dict[str, Value | None] = {f"{names.OWN}{key}": value for key, value in attributes.items()}
    return open_span(name, SpanKind.INTERNAL, {names.OI_KIND: "CHAIN"} | own)


def record_counts(span: Span, **counts: Value | None) -> None:
    """Facts known at the end of an own span: `record_counts(span, results_count=3)` sets `ragd.results_count`."""
    set_attributes(span, {f"{names.OWN}{key}": value for key, value in counts.items()})


def current_trace_id() -> str:
    """32 hex digits of the trace that is running here, "" when there is none."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else ""


def current_traceparent() -> str:
    """The W3C traceparent of the current span, to be kept with a job; "" when there is none."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get("traceparent", "")


@contextmanager
def attached(traceparent: str | None) -> Iterator[None]:
    """Spans opened inside become children of `traceparent`, in another process too.

    No effect for None, "" or nonsense, and when a span of the same trace is running already: its place is more exact.
    """
    context = _propagator.extract({"traceparent": traceparent or ""})
    remote = trace.get_current_span(context).get_span_context()
    if not remote.is_valid or trace.get_current_span().get_span_context().trace_id == remote.trace_id:
        yield
        return
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)


@contextmanager
def silenced() -> Iterator[None]:
    """Spans opened inside are left out: what explains a query is no part of it."""
    here = trace.get_current_span().get_span_context()
    ids = (here.trace_id, here.span_id) if here.is_valid else (1, 1)
    token = _pipeline.set(None)
    try:
        with trace.use_span(trace.NonRecordingSpan(trace.SpanContext(*ids, is_remote=False)), end_on_exit=False):
            yield
    finally:
        _pipeline.reset(token)
