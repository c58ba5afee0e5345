"""Keys, tokens and passwords that stand in a text. The shapes that they have are in secrets.toml."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from ragd.security.findings import Finding
from ragd.security.patterns import read_rule_file

RULES = read_rule_file("secrets.toml")
PATTERNS, WORDS = RULES.patterns, RULES.words
TOKENS = [
    (token["rule"], token["confidence"], token["needs"], RULES.compile(token["pattern"]))
    for token in RULES.tables["tokens"]
]
LOOSE_BITS = 2.4
DIVERSE_BITS = 2.75  # Shannon entropy per character that a made-up key has and a word rarely


def find_secrets(text: str) -> Iterator[Finding]:
    """Tokens by their published shape; values that are assigned, said or part of an address and look like real ones."""
    lowered = text.lower()
    for rule, confidence, needs, pattern in TOKENS:
        if any(need in text for need in needs):
            for match in pattern.finditer(text):
                if not PATTERNS["stands_for"].search(match[0]) and not _is_filler(match[0]):
                    yield Finding("secret", rule, match.start(), match.end(), confidence)
    if any(name in lowered for name in WORDS["named"]):
        yield from _find_named(text)
    if "://" in text:
        for match in PATTERNS["address"].finditer(text):
            if is_real(match["value"], loose=True) and match["value"].lower() != match["user"].lower():
                yield _value(match, "address", 0.85)
    if "uthorization" in lowered or "x-a" in lowered or "session" in lowered or "sid=" in lowered:
        for match in PATTERNS["bearer"].finditer(text):
            if is_real(match["value"], hexadecimal=True):
                yield _value(match, "authorization", 0.85)


def _find_named(text: str) -> Iterator[Finding]:
    """Values under a name that says what they are."""
    for match in PATTERNS["assigned"].finditer(text):
        name = match["name"].lower()
        is_key = "key" in name or "token" in name or ("secret" in name and name != "secret")
        if is_real(match["value"], hexadecimal=is_key, loose=name.startswith(("pass", "pwd", "kenn"))):
            yield _value(match, "assigned", 0.8)
    for match in PATTERNS["spoken"].finditer(text):
        value = match["value"].rstrip(".!?:")
        if is_real(value, loose=True) and is_password(value):
            yield Finding("secret", "spoken", match.start("value"), match.start("value") + len(value), 0.75)
    lowered = text.lower()
    for match in PATTERNS["shell"].finditer(text) if any(word in lowered for word in WORDS["shell"]) else ():
        group = next(
            name for name in ("mysql", "curl", "sshpass", "sql", "role", "redis", "cli", "flag") if match[name]
        )
        value = match[group].strip("'\"")
        if is_real(value, loose=True):
            start = match.start(group) + match[group].index(value)
            yield Finding("secret", "shell", start, start + len(value), 0.8)
    for match in PATTERNS["pin"].finditer(text):
        if match["value"] not in WORDS["common_pins"]:
            yield _value(match, "pin", 0.7)
    for match in PATTERNS["seed"].finditer(text):
        yield _value(match, "seed_phrase", 0.85)


def _value(match: re.Match[str], rule: str, confidence: float) -> Finding:
    return Finding("secret", rule, match.start("value"), match.end("value"), confidence)


def is_real(value: str, *, hexadecimal: bool = False, loose: bool = False) -> bool:
    """Whether a value looks made up by a machine or a careful person, not by the writer of an example.

    hexadecimal: long rows of hexadecimal digits count too, which are mostly checksums. loose: a password that a person
    would choose is enough.
    """
    if PATTERNS["placeholder"].search(value) or PATTERNS["code"].search(value) or _is_filler(value):
        return False
    if PATTERNS["longest_hash"].match(value):
        return hexadecimal and entropy(value) >= DIVERSE_BITS
    return _is_mixed(value) and entropy(value) >= (LOOSE_BITS if loose else DIVERSE_BITS)


def is_password(word: str) -> bool:
    """Letters with digits or signs inside, as no word of a language has them."""
    inner = word.strip("-_.:/@")
    if not _is_mixed(inner) or "://" in inner or inner.startswith(("-", "/")):
        return False
    return not PATTERNS["no_password"].fullmatch(inner)


def entropy(text: str) -> float:
    """Bits per character of its own letter distribution; 0.0 for ""."""
    counts = Counter(text)
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values()) if text else 0.0


def _is_mixed(value: str) -> bool:
    """Letters and digits, or letters and signs other than those that join words."""
    letters = any(map(str.isalpha, value))
    digits = any(map(str.isdigit, value))
    signs = any(not sign.isalnum() and sign not in "-_./:@" for sign in value)
    return letters and (digits or signs)


def _is_filler(value: str) -> bool:
    """One character again and again, as in sk-xxxxxxxx, or a row of the alphabet."""
    body = value.rpartition("_")[2] if "_" in value[:12] else value
    tail = body[-24:]
    return len(set(tail.lower())) <= max(3, len(tail) // 8)
