"""A finding, what a set of findings amounts to, and a text without what was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of threat. owasp: its row of the OWASP Top 10 for LLM applications. score: the risk of one, 0 to 100."""

    name: str
    owasp: str
    severity: str
    score: float


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family("prompt_injection", "LLM01", "high", 80.0),
        Family("jailbreak", "LLM01", "critical", 95.0),
        Family("data_exfiltration", "LLM02", "high", 85.0),
        Family("system_prompt_request", "LLM07", "medium", 60.0),
        Family("system_prompt_leak", "LLM07", "high", 75.0),
        Family("secret", "LLM02", "critical", 90.0),
        Family("personal_data", "LLM02", "medium", 50.0),
    )
}
ORDERS = frozenset({"prompt_injection", "jailbreak", "data_exfiltration", "system_prompt_request"})  # to a model
HIDDEN = frozenset({"secret", "personal_data"})  # what a text is better read without
COVER = "\u00b7"
COVER_WORDS = {"secret": "secret", "personal_data": "personal", "system_prompt_leak": "prompt"}


@dataclass(frozen=True, slots=True)
class Finding:
    """text[start:end] is what the rule found. confidence: 0 to 1, as the rule states it."""

    family: str
    rule: str
    start: int
    end: int
    confidence: float

    @property
    def owasp(self) -> str:
        return FAMILIES[self.family].owasp

    @property
    def severity(self) -> str:
        return FAMILIES[self.family].severity

    @property
    def score(self) -> float:
        """0 to 100: the family's risk, weighed by the confidence."""
        return round(FAMILIES[self.family].score * self.confidence, 1)

    def as_dict(self) -> dict[str, Any]:
        """Without the text: a secret must not travel with the news of it."""
        return asdict(self) | {"owasp": self.owasp, "severity": self.severity, "score": self.score}


def risk_score(findings: Iterable[Finding]) -> float:
    """`combine_scores` of what was found."""
    return combine_scores((finding.family, finding.score) for finding in findings)


def combine_scores(scores: Iterable[tuple[str, float]]) -> float:
    """0 to 100 of (family, score of 0 to 100) pairs; 0.0 for none.

    100 * (1 - product of (1 - score / 100)) over the highest score of each family: one finding counts as it is, and a
    second family only adds to it.
    """
    highest: dict[str, float] = {}
    for name, score in scores:
        highest[name] = max(highest.get(name, 0.0), score)
    rest = 1.0
    for family in sorted(highest):
        rest *= 1 - highest[family] / 100
    return round(100 * (1 - rest), 1)


def redact(text: str, findings: Iterable[Finding], families: Iterable[str] = ("secret", "personal_data")) -> str:
    """The text with what findings of these families hold replaced by "[secret]", "[personal data]", ...

    Findings that overlap are replaced as one, under the name of the one that begins first. No such finding: the text.
    """
    requested = set(families)
    positions = sorted((item.start, -item.end, item.family) for item in findings if item.family in requested)
    parts: list[str] = []
    done = 0
    for start, negative_end, family in positions:
        if start >= done:
            parts += [text[done:start], f"[{family.replace('_', ' ')}]"]
        done = max(done, -negative_end)
    return "".join([*parts, text[done:]])


def mask(text: str, findings: Iterable[Finding], families: Iterable[str] = HIDDEN) -> str:
    """The text with what findings of these families hold hidden behind signs of the same number.

    "[secret···]" where the family's word fits in, else "···": nothing moves, so that places in the text (of citations,
    of spans) stay right. Findings that overlap are hidden as one. No such finding: the text.
    """
    requested = set(families)
    done = 0
    parts: list[str] = []
    for finding in sorted(findings, key=lambda item: (item.start, -item.end)):
        start = max(finding.start, done)
        if finding.family not in requested or finding.end <= start:
            continue
        parts += [text[done:start], _cover(finding.family, finding.end - start)]
        done = finding.end
    return "".join([*parts, text[done:]])


def _cover(family: str, length: int) -> str:
    word = COVER_WORDS.get(family, "hidden")
    return f"[{word}{COVER * (length - len(word) - 2)}]" if length >= len(word) + 2 else COVER * length
