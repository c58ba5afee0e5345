"""What spans say of threats: a risk score on the root and on model calls, and an event per finding, never its text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, ClassVar

from opentelemetry.trace import Span

from ragd.telemetry import names
from ragd.telemetry.records import attributes_of
from ragd.telemetry.spans import add_event, set_attributes

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
