"""The helpers that open spans, and what carries a trace over a broker.

A block that raises leaves ERROR with a description on its span; Required fields are set when the span opens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ragd.telemetry import names
from ragd.telemetry.content import Value, captured, captured_status, redacted_text
from ragd.types import Candidate, Filters, canonical_json

Attributes = Mapping[str, Value | None]
Stage = Literal["retrieve", "rerank", "generate", "evaluate"]
SNIPPET_CHARS = 200

_tracer = trace.get_tracer("ragd")
_propagator = TraceContextTextMapPropagator()


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
    return {name: captured(name, value) for name, value in attributes.items() if value is not None}


@contextmanager
def open_span(name: str, kind: SpanKind, attributes: Attributes) -> Iterator[Span]:
    """Open a span that carries the run's attributes, ends OK, or ERROR when the block raises."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):  # no SDK: nobody would see it
        yield trace.INVALID_SPAN
        return
    with _tracer.start_as_current_span(name, kind=kind, record_exception=False, set_status_on_exception=False) as span:
        set_attributes(span, {**_shared.get(), **attributes})
        try:
            yield span
        except GeneratorExit:
            raise
        except BaseException as error:
            record_error(span, error)
            raise
        if span.is_recording() and not _has_failed(span):
            span.set_status(Status(StatusCode.OK))


def _has_failed(span: Span) -> bool:
    status = getattr(span, "status", None)
    return status is not None and status.status_code is StatusCode.ERROR


# What every span inside a pipeline or an ingest carries: the run and the collection.
_NOTHING: Attributes = {}
_shared: ContextVar[Attributes] = ContextVar("ragd_shared", default=_NOTHING)
_pipeline: ContextVar[Pipeline | None] = ContextVar("ragd_pipeline", default=None)


@dataclass(slots=True)
class Pipeline:
    """The root span of one query. trace_id: 32 hex digits, "" without an SDK."""

    span: Span
    trace_id: str

    def reach(self, stage: Stage) -> None:
        """The last stage reached. The helpers of the stages call it."""
        set_attributes(self.span, {names.PIPELINE_STAGE: stage})

    def finish(self, answer: str) -> None:
        set_attributes(self.span, {names.OUTPUT_VALUE: answer, names.OUTPUT_MIME_TYPE: "text/plain"})


@contextmanager
def pipeline_span(
    name: str,
    query: str,
    *,
    run_id: str | None = None,
    collection: str | None = None,
    door: str | None = None,
    user_id: str | None = None,
    session_id: str | None = None,
) -> Iterator[Pipeline]:
    """The root of one query: `rag.pipeline {name}`. Every ragd span inside carries run_id and collection (or name)."""
    shared: dict[str, Value | None] = {names.RUN_ID: run_id, names.COLLECTION: collection or name}
    token = _shared.set(shared)
    attributes: dict[str, Value | None] = {
        names.PIPELINE_NAME: name, names.PIPELINE_STAGE: "retrieve", names.RAG_QUERY: query, names.OI_KIND: "CHAIN",
        names.INPUT_VALUE: query, names.INPUT_MIME_TYPE: "text/plain",
        names.DOOR: door, names.USER_ID: user_id, names.SESSION_ID: session_id,
    }  # fmt: skip
    try:
        with open_span(f"{names.PIPELINE} {name}", SpanKind.INTERNAL, attributes) as span:
            pipeline = Pipeline(span, current_trace_id())
            inner = _pipeline.set(pipeline)
            try:
                yield pipeline
            finally:
                _pipeline.reset(inner)
    finally:
        _shared.reset(token)


def reach_stage(stage: Stage) -> None:
    if pipeline := _pipeline.get():
        pipeline.reach(stage)


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


@contextmanager
def retrieve_span(
    *,
    query: str,
    top_k: int,
    index: str | None = None,
    filters: Filters | None = None,
    database: str = names.DATABASE,
    embedding_model: str | None = None,
) -> Iterator[Span]:
    """Retrieval as a whole: `rag.retrieve {database}`. Call `record_results` before it closes; 0 results until then."""
    reach_stage("retrieve")
    attributes: dict[str, Value | None] = {
        names.RETRIEVE_DATABASE: database, names.RAG_QUERY: query, names.RETRIEVE_INDEX: index,
        names.RETRIEVE_TOP_K: top_k,
        names.RETRIEVE_FILTER: canonical_json(filters.as_dict()) if filters else None, names.RETRIEVE_RESULTS_COUNT: 0,
        names.OI_KIND: "RETRIEVER", names.INPUT_VALUE: query, names.INPUT_MIME_TYPE: "text/plain",
        names.OPERATION_NAME: "retrieval", names.DATA_SOURCE_ID: index, names.RETRIEVAL_QUERY_TEXT: query,
        names.REQUEST_TOP_K: top_k, names.REQUEST_MODEL: embedding_model, names.DB_SYSTEM_NAME: "postgresql",
    }  # fmt: skip
    with open_span(f"{names.RETRIEVE} {database}", SpanKind.CLIENT, attributes) as span:
        yield span


def record_results(span: Span, candidates: Sequence[Candidate]) -> None:
    """Put the retrieved documents on a retrieve span, best first, in all three vocabularies. Empty: a count of 0."""
    if not span.is_recording():
        return
    attributes: dict[str, Value | None] = {names.RETRIEVE_RESULTS_COUNT: len(candidates)}
    index = str((getattr(span, "attributes", None) or {}).get(names.RETRIEVE_INDEX) or "")
    documents = [(item, _provenance(item, index)) for item in candidates]
    attributes[names.RETRIEVAL_DOCS] = canonical_json(
        [
            {"id": _doc_id(item), "score": _unit(item), "snippet": _snippet(item), "provenance": origin}
            for item, origin in documents
        ]
    )
    attributes[names.RETRIEVAL_DOCUMENTS] = canonical_json(
        [{"id": _doc_id(item), "score": _unit(item)} for item in candidates]
    )
    if candidates:
        scores = [_unit(item) for item in candidates]
        attributes |= {names.RETRIEVE_MIN_SCORE: min(scores), names.RETRIEVE_MAX_SCORE: max(scores)}
    set_attributes(span, attributes | _documents(names.OI_RETRIEVAL_DOCUMENTS, candidates))
    for rank, (item, origin) in enumerate(documents, 1):
        add_event(span, names.DOC_RETRIEVED, _document_event(item, origin, rank))


def _doc_id(candidate: Candidate) -> str:
    return f"{candidate.doc_id}#{candidate.chunk_index}"


def _snippet(candidate: Candidate) -> str:
    return redacted_text(candidate.content)[:SNIPPET_CHARS]


def _unit(candidate: Candidate) -> float:
    return min(1.0, max(0.0, float(candidate.unit_score)))


def _provenance(candidate: Candidate, index: str) -> str:
    source = candidate.metadata.get("source")
    if isinstance(source, str) and source:
        return source
    return f"{index}/{candidate.doc_id}" if index else candidate.doc_id


def _documents(prefix: str, candidates: Sequence[Candidate]) -> dict[str, Value | None]:
    attributes: dict[str, Value | None] = {}
    for number, item in enumerate(candidates):
        base = f"{prefix}.{number}.document"
        attributes[f"{base}.id"] = _doc_id(item)
        attributes[f"{base}.content"] = item.content
        attributes[f"{base}.score"] = _unit(item)
        attributes[f"{base}.metadata"] = json.dumps(dict(item.metadata), sort_keys=True, default=str)
    return attributes


def _document_event(candidate: Candidate, provenance: str, rank: int) -> dict[str, Value | None]:
    event: dict[str, Value | None] = {
        names.DOC_ID: _doc_id(candidate), names.DOC_SCORE: _unit(candidate), names.DOC_PROVENANCE: provenance,
        names.DOC_RANK: rank, names.DOC_SCORE_RAW: float(candidate.score), names.DOC_SCORE_KIND: candidate.score_kind,
    }  # fmt: skip
    for name, place in candidate.ranks.items():
        event[f"{names.DOC_LIST}.{name}.rank"] = place.rank
        event[f"{names.DOC_LIST}.{name}.score"] = float(place.score)
    return event


@contextmanager
def rerank_span(*, model: str, query: str, candidates: Sequence[Candidate], top_k: int | None = None) -> Iterator[Span]:
    """Reranking: `rag.rerank {model}`. Call `record_reranked` before it closes; an output count of 0 until then."""
    reach_stage("rerank")
    attributes: dict[str, Value | None] = {
        names.RERANK_MODEL: model, names.RERANK_INPUT_COUNT: len(candidates), names.RERANK_OUTPUT_COUNT: 0,
        names.RAG_QUERY: query, names.OI_KIND: "RERANKER",
        names.INPUT_VALUE: query, names.INPUT_MIME_TYPE: "text/plain",
        names.OI_RERANKER_MODEL: model, names.OI_RERANKER_QUERY: query,
        names.OI_RERANKER_TOP_K: top_k or len(candidates),
    }  # fmt: skip
    with open_span(f"{names.RERANK} {model}", SpanKind.CLIENT, attributes) as span:
        if span.is_recording():
            set_attributes(span, _documents(names.OI_RERANKER_INPUT, candidates))
        yield span


def record_reranked(span: Span, candidates: Sequence[Candidate]) -> None:
    """Put the reranked documents on a rerank span, best first."""
    if span.is_recording():
        set_attributes(
            span, {names.RERANK_OUTPUT_COUNT: len(candidates)} | _documents(names.OI_RERANKER_OUTPUT, candidates)
        )


@contextmanager
def evaluate_span(name: str, *, query: str | None = None) -> Iterator[Span]:
    """Quality of one answer: `rag.evaluate {name}`. Scores are added with `record_evaluation`."""
    reach_stage("evaluate")
    attributes: dict[str, Value | None] = {
        names.PIPELINE_NAME: name,
        names.OI_KIND: "EVALUATOR",
        names.INPUT_VALUE: query,
    }
    with open_span(f"{names.EVALUATE} {name}", SpanKind.INTERNAL, attributes) as span:
        yield span


def record_evaluation(
    span: Span,
    name: str,
    *,
    score: float | None = None,
    label: str | None = None,
    explanation: str | None = None,
    number: int = 0,
) -> None:
    """One metric on an evaluate span: its name ("faithfulness"), its score 0..1 or None, its place from 0."""
    base = f"{names.OI_EVALUATIONS}.{number}.evaluation"
    set_attributes(
        span,
        {
            names.QUALITY_NAMES.get(name, f"{names.OWN}quality.{name}"): score,
            f"{base}.name": name, f"{base}.score": score, f"{base}.label": label, f"{base}.explanation": explanation,
        },
    )  # fmt: skip
    values = {names.EVALUATION_NAME: name, names.EVALUATION_SCORE: score, names.EVALUATION_LABEL: label}
    add_event(span, names.EVALUATION_RESULT, {**values, names.EVALUATION_EXPLANATION: explanation})


def stage(name: str, **attributes: Value | None) -> AbstractContextManager[Span]:
    """An own span, INTERNAL: `with stage(LEXICAL, pool=50) as span`. A keyword becomes `ragd.<keyword>`."""
    own: dict[str, Value | None] = {f"{names.OWN}{key}": value for key, value in attributes.items()}
    return open_span(name, SpanKind.INTERNAL, {names.OI_KIND: "CHAIN"} | own)


def lexical_span(*, query: str, pool: int) -> AbstractContextManager[Span]:
    return stage(names.LEXICAL, query=query, pool=pool)


def vector_span(*, pool: int, exact: bool | None = None) -> AbstractContextManager[Span]:
    return stage(names.VECTOR, pool=pool, exact=exact)


def fuse_span(*, method: str, lists_count: int) -> AbstractContextManager[Span]:
    return stage(names.FUSE, method=method, lists_count=lists_count)


def compress_span(*, query: str, input_count: int) -> AbstractContextManager[Span]:
    return stage(names.COMPRESS, query=query, input_count=input_count)


@contextmanager
def ingest_span(*, collection: str, doc_id: str, job_id: str | None = None) -> Iterator[Span]:
    """The root of one document's ingest. Every ragd span inside carries the collection."""
    token = _shared.set({names.COLLECTION: collection})
    try:
        with stage(names.INGEST, doc_id=doc_id, job_id=job_id) as span:
            yield span
    finally:
        _shared.reset(token)


def parse_span(*, name: str, size_bytes: int) -> AbstractContextManager[Span]:
    return stage(names.PARSE, file_name=name, size_bytes=size_bytes)


def chunk_span(*, size_chars: int, kind: str) -> AbstractContextManager[Span]:
    return stage(names.CHUNK, size_chars=size_chars, kind=kind)


def store_span(*, chunks_count: int) -> AbstractContextManager[Span]:
    return stage(names.STORE, chunks_count=chunks_count)


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
