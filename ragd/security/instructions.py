"""Texts that try to steer a model: injected instructions, jailbreaks, requests for its prompt, ways to carry data out.

Each rule wants the shape of an order to the model, not a word: a text that documents such orders, quotes them or shows
them as code is left alone (`quoted_places`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

from ragd.security.findings import Finding

SOURCE = files("ragd.security").joinpath("instructions.toml")
FRAGMENT = re.compile(r"<<([A-Z]+)>>")


@dataclass(frozen=True, slots=True)
class Rule:
    """needs: lower-case texts of which each match has one; () for a rule that is always tried."""

    family: str
    name: str
    confidence: float
    needs: tuple[str, ...]
    pattern: re.Pattern[str]


def read_rules() -> tuple[Rule, ...]:
    """The rules in the order of the file."""
    data = tomllib.loads(SOURCE.read_text("utf-8"))
    fragments: dict[str, str] = data["fragments"]
    return tuple(
        Rule(
            rule["family"],
            rule["name"],
            rule["confidence"],
            tuple(rule.get("needs", ())),
            re.compile(FRAGMENT.sub(lambda match: fragments[match[1]], rule["pattern"]), re.IGNORECASE | re.MULTILINE),
        )
        for rule in data["rules"]
    )


RULES = read_rules()
FENCED = re.compile(r"(?:^|\n)[ \t]*(```|~~~).*?(?:\n[ \t]*\1|\Z)", re.DOTALL)
INLINE = re.compile(r"`[^`\n]{1,400}`")
QUOTED = re.compile(r"\"[^\"\n]{1,400}\"|“[^”\n]{1,400}”|„[^“\n]{1,400}“|«[^»\n]{1,400}»|(?<!\w)'[^'\n]{8,400}'(?!\w)")
# What is said about an order when it is only talked of.
TALK = re.compile(
    r"\b(?:prompt[\s-]?injections?|injection\s+(?:attacks?|attempts?|payloads?)|jail\s?break(?:s|ing)?|attack(?:s|er|ers|ing)?|adversar\w+|"
    r"malicious|red[\s-]?team\w*|payloads?|exploit\w*|e\.g\.|for\s+(?:example|instance)|such\s+as|examples?|phrases?\s+like|"
    r"strings?\s+(?:like|such)|detect\w*|filter(?:s|ed|ing)?\s+(?:out|for)|block(?:s|ed|ing)?|classif\w+|test\s+(?:case|prompt|that)|owasp|says?|said|"
    r"asks?|titled|called|means?|what\s+does|tell(?:s|ing)?\s+(?:it|the\s+model)\s+to|vulnerab\w+|mitigat\w+|defen[cs]e\w*|guardrails?)\b",
    re.IGNORECASE,
)
TALK_BEFORE = 160
TALK_AFTER = 80


def find_instructions(text: str) -> Iterator[Finding]:
    """Every place that a rule matches and that is not only talked of, by rule and place."""
    quoted = quoted_places(text)
    lowered = text.lower()
    for rule in RULES:
        if rule.needs and not any(need in lowered for need in rule.needs):
            continue
        for match in rule.pattern.finditer(text):
            if not _only_talked_of(text, match.start(), match.end(), quoted):
                yield Finding(rule.family, rule.name, match.start(), match.end(), rule.confidence)


def quoted_places(text: str) -> list[tuple[int, int]]:
    """(start, end) of fenced code, inline code and quotations."""
    return [match.span() for pattern in (FENCED, INLINE, QUOTED) for match in pattern.finditer(text)]


def _only_talked_of(text: str, start: int, end: int, quoted: list[tuple[int, int]]) -> bool:
    """In quotes or code, with words around it that speak about such orders."""
    for opening, closing in quoted:
        if opening <= start and end <= closing:
            around = text[max(0, opening - TALK_BEFORE) : opening] + " " + text[closing : closing + TALK_AFTER]
            if TALK.search(around):
                return True
    return False
