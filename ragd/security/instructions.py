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

    places: where the rule holds, such as "query"; () for everywhere. pattern: what each match is, or nothing where the
    rule has parts: patterns that one sentence holds all of, in any order, and unless, which it must not hold. order:
    a sentence that asks like a question ("how", "which", "does") is no match.
    """

    family: str
    name: str
    confidence: float
    needs: tuple[Needs, ...]
    imperative: bool
    places: tuple[str, ...]
    pattern: re.Pattern[str] | None
    parts: tuple[re.Pattern[str], ...] = ()
    unless: re.Pattern[str] | None = None
    order: bool = False


def read_rules() -> tuple[Rule, ...]:
    """The rules in the order of the file."""
    data = tomllib.loads(SOURCE.read_text("utf-8"))
    fragments: dict[str, str] = data["fragments"]
    known: dict[tuple[str, ...], Needs] = {}

    def compiled(pattern: str) -> re.Pattern[str]:
        while FRAGMENT.search(pattern):
            pattern = FRAGMENT.sub(lambda match: fragments[match[1]], pattern)
        return re.compile(pattern, re.IGNORECASE | re.MULTILINE)

    return tuple(
        Rule(
            rule["family"],
            rule["name"],
            rule["confidence"],
            tuple(shared(rule["needs"], known)),
            rule.get("imperative", False),
            tuple(rule.get("places", ())),
            compiled(rule["pattern"]) if "pattern" in rule else None,
            tuple(map(compiled, rule.get("parts", ()))),
            compiled(rule["unless"]) if "unless" in rule else None,
            rule.get("order", False),
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
    r"asks?|titled|called|means?|filters?|chat\s?bots?|regex\w*|patterns?|phrases?|strings?|tests?|expects?|assert\w*|data\s?sets?|what\s+does|tell(?:s|ing)?\s+(?:it|the\s+model)\s+to|vulnerab\w+|mitigat\w+|defen[cs]e\w*|guardrails?)\b",
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
    r"(?:want|need|order|instruct|command|ask|tell|urge|require)\s+you\s+to|(?:time|going|have|need|try|remember|sure|free|now)\s+to|use\s+(?:the|your|any|an?)\s+[\w\s-]{1,30}\s+to|"
    r"(?:please|hereby|will\s+you|would\s+you|could\s+you|can\s+you|must|should|shall|i\s+hereby)(?:\s+not)?)\s+(?:\w+ly\s+)?$",
    re.IGNORECASE,
)
TALK_BEFORE = 160
TALK_AFTER = 80
# What a whole text is about when it holds orders as specimens, and how these are set apart from it besides quotes.
SUBJECT = re.compile(
    r"\b(?:prompt[\s-]?injections?|injection\s+(?:attacks?|attempts?|payloads?)|jail\s?breaks?|jailbreaking|red[\s-]?team\w*|adversarial|attackers?|"
    r"payloads?|owasp|LLM0\d|malicious|unit\s+tests?|def\s+test_\w*|assert\w*|attacks?|blocklist|denylist|re\.compile|"
    r"(?:filter|scanner|detector|classifier|guard\w*|test|tests|data\s?set)s?\b(?=[^\n]{0,60}\b(?:catch\w*|flag\w*|expects?|detect\w*|block\w*|looks?\s+for|reject\w*|labels?|labelled|check\w*)))"
    r"|\b(?:it|expect|describe)\(['\"]",
    re.IGNORECASE,
)
SUBJECT_CHARS = 600
LISTED = re.compile(r"^[ \t]*(?:[-*\u2022>|]|\d{1,2}[.)])[ \t]+[^\n]*$|<!--.{0,400}?-->", re.MULTILINE)
NARRATED = re.compile(
    r"\b(?:(?:model|bot|chat\s?bot|assistant|AI|LLM|agent|system|it|them)s?\s+(?:is|are|was|were|be|being|been|gets?)\s+(?:asked|told|instructed|ordered|tricked|made)|"
    r"(?:ask|tell|instruct|trick|convince|order)(?:s|ed|ing)?\s+(?:the|an?|its?|your|our)\s+(?:\w+\s+)?(?:model|bot|chat\s?bot|assistant|AI|LLM|agent)s?)\s+(?:in)?to\s+(?:\w+\s+){0,2}$",
    re.IGNORECASE,
)
SENTENCE = re.compile(r"[^\n.!?\u3002]+(?:[.!?](?=\S)[^\n.!?\u3002]*)*")
SENTENCE_MIN = 12
QUESTION = re.compile(
    r"\W*(?:how|why|what|when|where|which|who|whose|is|are|was|were|does|do(?!\s+not|n't)|did|should|has|have|(?:can|could|may)(?!\s+you)|wie|warum|welche\w*|quel\w*|comment|qu[ée]|c[uó]\w+)\b",
    re.IGNORECASE,
)


def find_instructions(text: str, location: str | None = None) -> Iterator[Finding]:
    """Every place that a rule matches and that is not only talked of, by rule and place."""
    yield from _match_rules(text, location)
    for view in views_of(text):
        for finding in _match_rules(view.text, location):
            start, end = view.place(finding.start, finding.end)
            yield replace(finding, start=start, end=end)


def _match_rules(text: str, location: str | None) -> Iterator[Finding]:
    words = Words(text)
    quoted: list[tuple[int, int]] | None = None
    sentences: list[tuple[int, int]] = []
    possible = INDEX.look(words)
    for rule, bits in zip(RULES, BITS, strict=True):
        if bits & possible != bits:
            continue
        if (rule.places and location not in rule.places) or not all(map(words.meet, rule.needs)):
            continue
        for start, end in _places(rule, text, sentences):
            quoted = quoted_places(text) if quoted is None else quoted
            if rule.imperative and is_reported(text, start):
                continue
            if not _only_talked_of(text, start, end, quoted):
                yield Finding(rule.family, rule.name, start, end, rule.confidence)


def _places(rule: Rule, text: str, sentences: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """sentences is filled when the first rule asks for it."""
    if rule.pattern is not None:
        yield from (match.span() for match in rule.pattern.finditer(text))
        return
    if not sentences:
        sentences += [match.span() for match in SENTENCE.finditer(text)]
    for start, end in sentences:
        if end - start < SENTENCE_MIN or (rule.order and QUESTION.match(text, start, end)):
            continue
        spans = []
        for part in rule.parts:
            match = part.search(text, start, end)
            if match is None:
                break
            spans.append(match.span())
        else:
            if rule.unless is None or not rule.unless.search(text, start, end):
                yield min(spans)[0], max(last for _, last in spans)


def is_reported(text: str, start: int) -> bool:
    """Whether what begins there is told of somebody ("makes the model ignore ...", "how do I show ..."), no order."""
    before = text[max(0, start - REPORT_CHARS) : start]
    return REPORTED.search(before) is not None and DEMANDED.search(before) is None


def quoted_places(text: str) -> list[tuple[int, int]]:
    """(start, end) of fenced code, inline code and quotations."""
    return [match.span() for pattern in (FENCED, INLINE, QUOTED) for match in pattern.finditer(text)]


def _only_talked_of(text: str, start: int, end: int, quoted: list[tuple[int, int]]) -> bool:
    """In quotes or code, with words around it that speak about such orders; or a specimen in a text about them."""
    if NARRATED.search(text, max(0, start - REPORT_CHARS), start):
        return True
    for opening, closing in quoted:
        if opening < end <= closing:
            before = text[max(0, opening - TALK_BEFORE) : opening]
            if opening <= start and TALK.search(f"{before} {text[closing : closing + TALK_AFTER]}"):
                return True
            if _is_subject(text, opening, closing):
                return True
    return any(
        listed.start() <= start < listed.end() and _is_subject(text, listed.start(), listed.end())
        for listed in LISTED.finditer(text)
    )


def _is_subject(text: str, start: int, end: int) -> bool:
    """Whether the text around a place is about orders to models."""
    around = (text[max(0, start - SUBJECT_CHARS) : start], text[end : end + SUBJECT_CHARS])
    return any(SUBJECT.search(part) for part in around)
