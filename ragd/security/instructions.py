"""Texts that try to steer a model: injected instructions, jailbreaks, requests for its prompt, ways to carry data out.

Each rule wants the shape of an order to the model, not a word: a text that documents such orders, quotes them or shows
them as code is left alone (`quoted_places`).
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from ragd.security.findings import Finding
from ragd.security.patterns import Index, Needs, Words, read_rule_file, shared

# Zero-width signs, direction marks, soft hyphens, variation selectors; and tags, which spell ASCII unseen.
UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
# Those, tags, and letters in another dress: full width, mathematical, in circles.
DRESSED = re.compile(f"{UNSEEN.pattern[:-1]}\uff01-\uff5e\u2460-\u24ff\U0001d400-\U0001d7ff\U000e0020-\U000e007e]")
ALIEN = re.compile("[\u0370-\u04ff]")
TAGS = range(0xE0020, 0xE007F)
LOOKALIKES = str.maketrans(
    "аеорсухіјѕһԁԛԝӏкмтвнАВЕКМНОРСТУХІЈЅ\u03bf\u03b1\u03b5\u03b9\u03ba\u03bd\u03c1\u03c4\u03c5\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7",
    "aeopcyxijshdqwlkmtbhABEKMHOPCTYXIJS" + "oaeiknptu" + "ABEZHIKMNOPTYX",
)
MIXED = re.compile(r"(?=\w*[A-Za-z])(?=\w*[\u0370-\u04ff])\w+")
LEET = str.maketrans("01345789@$!", "oleastbga" + "s" + "i")
LEET_WORD = re.compile(
    r"(?<![\w./:=-])(?=[\w@$!]*[A-Za-z])(?=[\w@$!]*[013457@$!][\w@$!]*[A-Za-z])[A-Za-z0-9@$!]{3,24}(?![\w./:=-])"
)
LEET_SIGN = re.compile(r"[A-Za-z][013457@$!][A-Za-z]")
LEET_MIN = 2
ROT13_WORDS = ("rot13", "rot-13", "caesar", "vtaber", "qvfertneq", "cerivbhf", "vafgehpgvba", "cebzcg")
APART = re.compile(r"(?<!\w)(?:[A-Za-z][ ._-]){5,}[A-Za-z](?!\w)(?:\s+(?:[A-Za-z][ ._-]){1,}[A-Za-z](?!\w))*")
BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{24,4000}={0,2}(?![A-Za-z0-9+/_=-])")
HEX = re.compile(r"(?<![0-9A-Za-z])(?:[0-9a-fA-F]{2}){16,2000}(?![0-9A-Za-z])")
BACKWARDS = ("snoitcurtsni", "suoiverp", "tpmorp", "erongi", "drager", "senilediug")
WORDS_MIN = 3
BLOBS_MAX = 16


@dataclass(frozen=True, slots=True)
class View:
    """text as it reads; places[n] is where its n-th character stands in the original, or one place for them all."""

    text: str
    places: Sequence[int] | tuple[int, int]
    whole: bool = False

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Where text[start:end] stands in the original: of a decoded text, all of what was decoded."""
        if self.whole:
            return self.places[0], self.places[1]
        return self.places[start], self.places[end - 1] + 1


def views_of(text: str) -> Iterator[View]:
    """The readings that differ from the text, none for nearly every text."""
    if not text.isascii() and (DRESSED.search(text) or (ALIEN.search(text) and MIXED.search(text))):
        if reading := _as_seen(text):
            yield reading
    if LEET_SIGN.search(text) and (leet := _without_digits(text)):
        yield leet
    if joined := _joined(text):
        yield joined
    yield from _decoded(text)
    lowered = text.lower()
    if any(word in lowered for word in ROT13_WORDS):
        yield View(codecs.decode(text, "rot13"), range(len(text)))
    if any(word in lowered for word in BACKWARDS):
        yield View(text[::-1], (0, len(text)), whole=True)


def _as_seen(text: str) -> View | None:
    """Without unseen signs, compatibility forms and look-alikes as the letters that they look like."""
    signs: list[str] = []
    positions: list[int] = []
    lookalike = {index for word in MIXED.finditer(text) for index in range(*word.span())}
    for index, sign in enumerate(text):
        if UNSEEN.match(sign):
            continue
        if ord(sign) in TAGS:
            sign = chr(ord(sign) - 0xE0000)
        elif index in lookalike:
            sign = sign.translate(LOOKALIKES)
        elif sign > "\u2000":
            sign = unicodedata.normalize("NFKC", sign)
        signs += sign
        positions += [index] * len(sign)
    reading = "".join(signs)
    return View(reading, positions) if reading != text and positions else None


def _without_digits(text: str) -> View | None:
    """Digits and signs inside words as the letters that they stand for, where at least two words are written so."""
    words = list(LEET_WORD.finditer(text))
    if len(words) < LEET_MIN:
        return None
    signs = list(text)
    for word in words:
        signs[word.start() : word.end()] = word[0].translate(LEET)
    return View("".join(signs), range(len(text)))


def _joined(text: str) -> View | None:
    """Letters set apart by single signs, joined; wider gaps part the words."""
    signs: list[str] = []
    positions: list[int] = []
    done = 0
    for match in APART.finditer(text):
        signs += text[done : match.start()]
        positions += range(done, match.start())
        for index in range(*match.span()):
            gap = not text[index].isalnum()
            if not gap or (text[index].isspace() and index and text[index - 1].isspace()):
                signs.append(" " if gap else text[index])
                positions.append(index)
        done = match.end()
    if not done:
        return None
    return View("".join([*signs, text[done:]]), [*positions, *range(done, len(text))])


def _decoded(text: str) -> Iterator[View]:
    """What stands in base64 or hexadecimal and reads as text when it is decoded."""
    result = 0
    for pattern, decode in ((BASE64, _from_base64), (HEX, bytes.fromhex)):
        for match in pattern.finditer(text):
            readable = _read(match[0], decode)
            if readable:
                result += 1
                yield View(readable, match.span(), whole=True)
            if result >= BLOBS_MAX:
                return


def _from_base64(blob: str) -> bytes:
    body = blob.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(body + "=" * (-len(body) % 4), validate=True)


def _read(blob: str, decode: Callable[[str], bytes]) -> str:
    """The text, "" when it is none: of fewer than three words, or with signs that no text has."""
    try:
        text = str(decode(blob), "utf-8")
    except (ValueError, binascii.Error):
        return ""
    return text if len(text.split()) >= WORDS_MIN and all(sign.isprintable() or sign.isspace() for sign in text) else ""


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
