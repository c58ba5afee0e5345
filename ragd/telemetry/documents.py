"""The spans that carry documents: retrieval and reranking, in three vocabularies.

The spans of evaluation: one that stands in its pipeline, and one that comes later and points at what it judges.

What spans say of threats: a risk score on the root and on model calls, and an event per finding, never its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, TraceFlags

from ragd.telemetry import names
from ragd.telemetry.content import Value, redacted_text
from ragd.telemetry.records import attributes_of
from ragd.telemetry.spans import EVALUATION, add_event, environment, open_span, reach_stage, set_attributes, sharing
from ragd.types import Candidate, Filters, canonical_json

SNIPPET_CHARS = 200


@contextmanager
def retrieve_span(
    *,
    query: str,
    top_k: int,
    index: str | None = None,
    filters: Filters | None = None,
    database: str = names.DATABASE,
    embedding_model: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Iterator[Span]:
    """Retrieval as a whole: `rag.retrieve {database}`. Call `record_results` before it closes; 0 results until then.

    metadata: facts of the search without any text of a user, such as its mode and its pool.
    """
    reach_stage("retrieve")
    attributes: dict[str, Value | None] = {
        names.RETRIEVE_DATABASE: database, names.RAG_QUERY: query, names.RETRIEVE_INDEX: index,
        names.RETRIEVE_TOP_K: top_k,
        names.RETRIEVE_FILTER: canonical_json(filters.as_dict()) if filters else None, names.RETRIEVE_RESULTS_COUNT: 0,
        names.OI_KIND: "RETRIEVER", names.INPUT_VALUE: query, names.INPUT_MIME_TYPE: "text/plain",
        names.OPERATION_NAME: "retrieval", names.DATA_SOURCE_ID: index, names.RETRIEVAL_QUERY_TEXT: query,
        names.REQUEST_TOP_K: top_k, names.REQUEST_MODEL: embedding_model, names.DB_SYSTEM_NAME: "postgresql",
        names.METADATA: canonical_json(dict(metadata)) if metadata else None,
    }  # fmt: skip
    with open_span(f"{names.RETRIEVE} {database}", SpanKind.CLIENT, attributes) as span:
        yield span


CELLS = "cells"  # of a chunk's attributes: an entry for each line, too long for a span


def record_results(span: Span, candidates: Sequence[Candidate]) -> None:
    """Put the retrieved documents on a retrieve span, best first, in all three vocabularies. Empty: a count of 0.

    A document's metadata is that of its chunk, and what the chunk's attributes say besides.
    """
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
    scored = canonical_json([{"id": _doc_id(item), "score": _unit(item)} for item in candidates])
    attributes |= {
        names.RETRIEVAL_DOCUMENTS: scored,
        names.OUTPUT_VALUE: scored,
        names.OUTPUT_MIME_TYPE: "application/json",
    }
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
        known = {name: value for name, value in item.attributes.items() if name != CELLS}
        attributes[f"{base}.metadata"] = json.dumps(known | dict(item.metadata), sort_keys=True, default=str)
    return attributes


def _document_event(candidate: Candidate, provenance: str, rank: int) -> dict[str, Value | None]:
    event: dict[str, Value | None] = {
        names.DOC_ID: _doc_id(candidate), names.DOC_SCORE: _unit(candidate), names.DOC_PROVENANCE: provenance,
        names.DOC_RANK: rank, names.DOC_SCORE_RAW: float(candidate.score), names.DOC_SCORE_KIND: candidate.score_kind,
    }  # fmt: skip
    for name, list_rank in candidate.ranks.items():
        event[f"{names.DOC_LIST}.{name}.rank"] = list_rank.rank
        event[f"{names.DOC_LIST}.{name}.score"] = float(list_rank.score)
    return event


@contextmanager
def rerank_span(*, model: str, query: str, candidates: Sequence[Candidate], top_k: int | None = None) -> Iterator[Span]:
    """Reranking: `rag.rerank {model}`. Call `record_reranked` before it closes; an output count of 0 until then."""
    reach_stage("rerank", len(candidates))
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


Annotator = Literal["HUMAN", "LLM", "CODE"]
UNSCORED = "unscored"
TRACE_CHARS, SPAN_CHARS = 32, 16


@contextmanager
def evaluate_span(name: str, *, query: str | None = None) -> Iterator[Span]:
    """Quality of one answer while its pipeline runs: `rag.evaluate {name}`. Scores come with `record_evaluation`."""
    reach_stage("evaluate")
    with open_span(f"{names.EVALUATE} {name}", SpanKind.INTERNAL, _attributes(name, query)) as span:
        yield span


@contextmanager
def evaluate_later_span(
    name: str,
    *,
    trace_id: str,
    span_id: str,
    query: str | None = None,
    run_id: str | None = None,
    api_key: str | None = None,
) -> Iterator[Span]:
    """Quality of an answer whose trace has ended: a trace of its own with exactly one link, to the span it judges.

    name: the pipeline's. trace_id: 32 hex digits and span_id: 16, of the root or of the model call. Raises ValueError
    for ids that are none: a judgement of nothing must not be kept.
    """
    target = _target(trace_id, span_id)
    shared: dict[str, Value | None] = {names.RUN_ID: run_id, names.COLLECTION: name, names.API_KEY: api_key or None}
    with (
        environment(EVALUATION, marks_parent=False),
        sharing(shared),
        open_span(
            f"{names.EVALUATE} {name}",
            SpanKind.INTERNAL,
            _attributes(name, query),
            context=Context(),
            links=[Link(target, {names.LINK_KIND: "evaluated"})],
        ) as span,
    ):
        yield span


def _attributes(name: str, query: str | None) -> dict[str, Value | None]:
    return {
        names.PIPELINE_NAME: name, names.PIPELINE_STAGE: "evaluate", names.OI_KIND: "EVALUATOR",
        names.INPUT_VALUE: query, names.INPUT_MIME_TYPE: "text/plain" if query is not None else None,
    }  # fmt: skip


def _target(trace_id: str, span_id: str) -> SpanContext:
    try:
        if (len(trace_id), len(span_id)) != (TRACE_CHARS, SPAN_CHARS):
            raise ValueError
        span_context = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(1))
    except ValueError:
        span_context = trace.INVALID_SPAN_CONTEXT
    if not span_context.is_valid:
        raise ValueError(
            f"a later evaluation needs the span it judges: {TRACE_CHARS} and {SPAN_CHARS} hex digits, not "
            f"{trace_id!r} and {span_id!r}"
        )
    return span_context


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One metric of an answer: its name ("faithfulness") and its score 0..1 or None.

    A metric without a score needs a label that says why, "unscored" when none is given, or error_type when judging
    failed. annotator: who judged. identifier: which judge in which version. response_id: of the answer judged.
    """

    name: Annotated[str, names.EVALUATION_NAME]
    score: Annotated[float | None, names.EVALUATION_SCORE] = None
    label: str | None = None
    explanation: Annotated[str | None, names.EVALUATION_EXPLANATION] = None
    annotator: Annotator = "CODE"
    identifier: str | None = None
    metadata: Mapping[str, Any] | None = None
    response_id: Annotated[str | None, names.RESPONSE_ID] = None
    error_type: Annotated[str | None, names.ERROR_TYPE] = None

    @property
    def reason(self) -> Annotated[str | None, "gen_ai.evaluation.score.label"]:
        return self.label or (UNSCORED if self.score is None and self.error_type is None else None)


def record_evaluation(span: Span, evaluation: Evaluation, number: int = 0) -> None:
    """One metric on an evaluate span, at its place from 0."""
    event = attributes_of(evaluation)
    base, score = f"{names.OI_EVALUATIONS}.{number}.evaluation", event.get(names.EVALUATION_SCORE)
    set_attributes(
        span,
        {
            names.QUALITY_NAMES.get(evaluation.name, f"{names.OWN}quality.{evaluation.name}"): score,
            f"{base}.name": evaluation.name, f"{base}.score": score,
            f"{base}.label": evaluation.reason or evaluation.error_type,
            f"{base}.explanation": evaluation.explanation, f"{base}.annotator_kind": evaluation.annotator,
            f"{base}.identifier": evaluation.identifier,
            f"{base}.metadata": canonical_json(dict(evaluation.metadata)) if evaluation.metadata else None,
        },
    )  # fmt: skip
    add_event(span, names.EVALUATION_RESULT, event)


Rate = Callable[[str], float]
PATTERN = "pattern"
PROVIDER = "ragd"

_rate: ContextVar[Rate | None] = ContextVar("ragd_rate", default=None)


@contextmanager
def rating(rate: Rate | None) -> Iterator[None]:
    """Inside, every model call carries the risk, 0 to 100, that `rate` gives for the text of its answer."""
    token = _rate.set(rate)
    try:
        yield
    finally:
        _rate.reset(token)


def rate_answer(text: str) -> float | None:
    """0 to 100; None outside `rating`."""
    rate = _rate.get()
    return rate(text) if rate else None


def record_risk(span: Span, score: float) -> None:
    """0 to 100, on the span itself."""
    set_attributes(span, {names.SECURITY_RISK_SCORE: score})


@dataclass(frozen=True, slots=True)
class Threat:
    """What one rule found in one text. place: "query", "source", ...; key: which source."""

    family: Annotated[str, names.SECURITY_THREAT_TYPE]
    owasp: Annotated[str, names.SECURITY_OWASP]
    severity: Annotated[str, names.SECURITY_RISK_LEVEL]
    score: Annotated[float, names.SECURITY_RISK_SCORE]
    confidence: Annotated[float, names.SECURITY_CONFIDENCE]
    rule: Annotated[str, "ragd.security.rule"]
    place: Annotated[str, "ragd.security.place"]
    key: Annotated[str | None, "ragd.security.key"] = None
    count: Annotated[int, "ragd.security.count"] = 1
    blocked: Annotated[bool, names.SECURITY_BLOCKED] = False
    method: Annotated[str, names.SECURITY_METHOD] = PATTERN
    detected: Annotated[bool, names.SECURITY_THREAT_DETECTED] = True
    event: ClassVar[str] = names.SECURITY_THREAT_DETECTED


@dataclass(frozen=True, slots=True)
class PersonalData:
    """The personal data of one text. types: each kind once. action: flagged, redacted or allowed."""

    types: Annotated[Sequence[str], names.PII_TYPES]
    count: Annotated[int, names.PII_COUNT]
    action: Annotated[str, "aitf.security.pii.action"]
    place: Annotated[str, "ragd.security.place"]
    key: Annotated[str | None, "ragd.security.key"] = None
    method: Annotated[str, names.SECURITY_METHOD] = PATTERN
    detected: Annotated[bool, "aitf.security.pii.detected"] = True
    event: ClassVar[str] = names.PII_EVENT


@dataclass(frozen=True, slots=True)
class Guardrail:
    """That what was found changed what happens. side: input or output. result: fail (refused) or warn (redacted)."""

    name: Annotated[str, names.SECURITY_GUARDRAIL_NAME]
    side: Annotated[str, "aitf.security.guardrail.type"]
    result: Annotated[str, names.SECURITY_GUARDRAIL_RESULT]
    policy: Annotated[str, "aitf.security.guardrail.policy"]
    provider: Annotated[str, names.SECURITY_GUARDRAIL_PROVIDER] = PROVIDER
    event: ClassVar[str] = names.SECURITY_GUARDRAIL_TRIGGERED


def record_finding(span: Span, finding: Threat | PersonalData | Guardrail) -> None:
    """One event for the finding, without any text."""
    add_event(span, finding.event, attributes_of(finding))
