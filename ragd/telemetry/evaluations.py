"""The spans of evaluation: one that stands in its pipeline, and one that comes later and points at what it judges.

What spans say of threats: a risk score on the root and on model calls, and an event per finding, never its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, TraceFlags

from ragd.telemetry import names
from ragd.telemetry.content import Value
from ragd.telemetry.records import attributes_of
from ragd.telemetry.spans import EVALUATION, add_event, environment, open_span, reach_stage, set_attributes, sharing
from ragd.types import canonical_json

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
