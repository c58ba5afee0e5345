"""Texts that try to steer a model: injected instructions, jailbreaks, requests for its prompt, ways to carry data out.

Each rule wants the shape of an order to the model, not a word: a text that documents such orders, quotes them or shows
them as code is left alone (`quoted_places`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.resources import files

from ragd.security.disguises import views_of
from ragd.security.findings import Finding
from ragd.security.prefilter import Index, Needs, Words, shared

SOURCE = files("ragd.security").joinpath("instructions.toml")
FRAGMENT = re.compile(r"<<([A-Z_]+)>>")


@dataclass(frozen=True, slots=True)
class Rule:
    """needs: lists of lower-case texts; each match has one of each list. imperative: reported speech is no match.

    places: where the rule holds, such as "query"; () for everywhere.
    """

    family: str
    name: str
    confidence: float
    needs: tuple[Needs, ...]
    imperative: bool
    places: tuple[str, ...]
    pattern: re.Pattern[str]


def read_rules() -> tuple[Rule, ...]:
    """The rules in the order of the file."""
    data = tomllib.loads(SOURCE.read_text("utf-8"))
    fragments: dict[str, str] = data["fragments"]
    known: dict[tuple[str, ...], Needs] = {}

    def spell_out(pattern: str) -> str:
        while FRAGMENT.search(pattern):
            pattern = FRAGMENT.sub(lambda match: fragments[match[1]], pattern)
        return pattern

    return tuple(
        Rule(
            rule["family"],
            rule["name"],
            rule["confidence"],
            tuple(shared(rule["needs"], known)),
            rule.get("imperative", False),
            tuple(rule.get("places", ())),
            re.compile(spell_out(rule["pattern"]), re.IGNORECASE | re.MULTILINE),
        )
        for rule in data["rules"]
    )


RULES = read_rules()
INDEX = Index(needs for rule in RULES for needs in rule.needs)
BITS = tuple(INDEX.bits(rule.needs) for rule in RULES)
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
REPORT_CHARS = 60
REPORTED = re.compile(
    r"(?:\b(?:to|would|might|could|may|can|will|that|which|who|they|it|he|she|not|never|cannot|does|did|do(?:es)?n'?t|makes?|let|lets|"
    r"(?:how|where|when|why|what)\s+(?:do|does|did|can|could|should|would)\s+(?:i|we|you|one|people|users?)|users?|attackers?|people|models?|"
    r"bots?|git|should\s+i|do\s+i|can\s+i|i|we)\s+(?:\w+ly\s+)?)$",
    re.IGNORECASE,
)
DEMANDED = re.compile(
    r"\b(?:(?:you|assistants?|ai|model)(?:'ll|\s+(?:to|will|must|should|shall|can|could|may|would|have\s+to|need\s+to|are\s+to|ought\s+to))|"
    r"(?:want|need|order|instruct|command|ask|tell|urge|require)\s+you\s+to|(?:time|going|have|need|try|remember|sure|free|now)\s+to|"
    r"(?:please|hereby|will\s+you|would\s+you|could\s+you|can\s+you|must|should|shall|i\s+hereby)(?:\s+not)?)\s+(?:\w+ly\s+)?$",
    re.IGNORECASE,
)
TALK_BEFORE = 160
TALK_AFTER = 80


def find_instructions(text: str, place: str | None = None) -> Iterator[Finding]:
    """Every place that a rule matches and that is not only talked of, by rule and place."""
    yield from _match_rules(text, place)
    for view in views_of(text):
        for finding in _match_rules(view.text, place):
            start, end = view.place(finding.start, finding.end)
            yield replace(finding, start=start, end=end)


def _match_rules(text: str, place: str | None) -> Iterator[Finding]:
    words = Words(text)
    quoted: list[tuple[int, int]] | None = None
    possible = INDEX.look(words)
    for rule, bits in zip(RULES, BITS, strict=True):
        if bits & possible != bits:
            continue
        if (rule.places and place not in rule.places) or not all(map(words.meet, rule.needs)):
            continue
        for match in rule.pattern.finditer(text):
            quoted = quoted_places(text) if quoted is None else quoted
            start, end = match.span()
            if rule.imperative and is_reported(text, start):
                continue
            if not _only_talked_of(text, start, end, quoted):
                yield Finding(rule.family, rule.name, start, end, rule.confidence)


def is_reported(text: str, start: int) -> bool:
    """Whether what begins there is told of somebody ("makes the model ignore ...", "how do I show ..."), no order."""
    before = text[max(0, start - REPORT_CHARS) : start]
    return REPORTED.search(before) is not None and DEMANDED.search(before) is None


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
