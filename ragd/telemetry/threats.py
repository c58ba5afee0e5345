"""What spans say of threats: a risk score on the root and on model calls, and an event per finding, never its text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry.trace import Span

from ragd.telemetry import names
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


def record_threat(
    span: Span,
    *,
    family: str,
    owasp: str,
    severity: str,
    score: float,
    confidence: float,
    rule: str,
    place: str,
    key: str | None = None,
    count: int = 1,
    blocked: bool = False,
) -> None:
    """One event for what one rule found in one text. place: "query", "source", ...; key: which source."""
    add_event(
        span,
        names.SECURITY_THREAT_DETECTED,
        {
            names.SECURITY_THREAT_DETECTED: True, names.SECURITY_THREAT_TYPE: family, names.SECURITY_OWASP: owasp,
            names.SECURITY_RISK_LEVEL: severity, names.SECURITY_RISK_SCORE: score,
            names.SECURITY_CONFIDENCE: confidence, names.SECURITY_METHOD: PATTERN, names.SECURITY_BLOCKED: blocked,
            names.SECURITY_RULE: rule, names.SECURITY_PLACE: place, names.SECURITY_KEY: key,
            names.SECURITY_COUNT: count,
        },
    )  # fmt: skip


def record_personal(
    span: Span, *, types: Sequence[str], count: int, action: str, place: str, key: str | None = None
) -> None:
    """One event for the personal data of one text. types: each kind once. action: flagged, redacted or allowed."""
    add_event(
        span,
        names.PII_EVENT,
        {
            names.PII_DETECTED: True, names.PII_TYPES: list(types), names.PII_COUNT: count, names.PII_ACTION: action,
            names.SECURITY_METHOD: PATTERN, names.SECURITY_PLACE: place, names.SECURITY_KEY: key,
        },
    )  # fmt: skip


def record_guardrail(span: Span, *, name: str, side: str, result: str, policy: str) -> None:
    """That what was found changed what happens. side: input or output. result: fail (refused) or warn (redacted)."""
    add_event(
        span,
        names.SECURITY_GUARDRAIL_TRIGGERED,
        {
            names.SECURITY_GUARDRAIL_NAME: name, names.SECURITY_GUARDRAIL_TYPE: side,
            names.SECURITY_GUARDRAIL_RESULT: result, names.SECURITY_GUARDRAIL_PROVIDER: PROVIDER,
            names.SECURITY_GUARDRAIL_POLICY: policy,
        },
    )  # fmt: skip
