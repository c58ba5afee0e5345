"""Texts that try to steer a model: injected instructions, jailbreaks, requests for its prompt, ways to carry data out.

Each rule wants the shape of an order to the model, not a word: a text that documents such orders, quotes them or shows
them as code is left alone (`quoted_places`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from ragd.security.disguises import views_of
from ragd.security.findings import Finding
from ragd.security.patterns import Index, Needs, Words, read_rule_file, shared

FILE = read_rule_file("instructions.toml")
PATTERNS = FILE.patterns
REPORT_CHARS = 60
TALK_BEFORE = 160
TALK_AFTER = 80
SUBJECT_CHARS = 600
SENTENCE_MIN = 12


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


@cache
def read_rules() -> tuple[Index, tuple[tuple[Rule, int], ...]]:
    """The index of all needs, and the rules in the order of the file with the bits of their needs.

    They are compiled for the first text that is scanned: that takes a tenth of the start of a process.
    """
    known: dict[tuple[str, ...], Needs] = {}

    def compiled(pattern: str) -> re.Pattern[str]:
        return FILE.compile(pattern, re.IGNORECASE | re.MULTILINE)

    rules = [
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
        for rule in FILE.tables["rules"]
    ]
    index = Index(needs for rule in rules for needs in rule.needs)
    return index, tuple((rule, index.bits(rule.needs)) for rule in rules)


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
    index, rules = read_rules()
    possible = index.look(words)
    for rule, bits in rules:
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
        sentences += [match.span() for match in PATTERNS["sentence"].finditer(text)]
    for start, end in sentences:
        if end - start < SENTENCE_MIN or (rule.order and PATTERNS["question"].match(text, start, end)):
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
    return PATTERNS["reported"].search(before) is not None and PATTERNS["demanded"].search(before) is None


def quoted_places(text: str) -> list[tuple[int, int]]:
    """(start, end) of fenced code, inline code and quotations."""
    return [
        match.span()
        for pattern in (PATTERNS["fenced"], PATTERNS["inline"], PATTERNS["quoted"])
        for match in pattern.finditer(text)
    ]


def _only_talked_of(text: str, start: int, end: int, quoted: list[tuple[int, int]]) -> bool:
    """In quotes or code, with words around it that speak about such orders; or a specimen in a text about them."""
    if PATTERNS["narrated"].search(text, max(0, start - REPORT_CHARS), start):
        return True
    for opening, closing in quoted:
        if opening < end <= closing:
            before = text[max(0, opening - TALK_BEFORE) : opening]
            if opening <= start and PATTERNS["talk"].search(f"{before} {text[closing : closing + TALK_AFTER]}"):
                return True
            if _is_subject(text, opening, closing):
                return True
    return any(
        listed.start() <= start < listed.end() and _is_subject(text, listed.start(), listed.end())
        for listed in PATTERNS["listed"].finditer(text)
    )


def _is_subject(text: str, start: int, end: int) -> bool:
    """Whether the text around a place is about orders to models."""
    around = (text[max(0, start - SUBJECT_CHARS) : start], text[end : end + SUBJECT_CHARS])
    return any(PATTERNS["subject"].search(part) for part in around)
