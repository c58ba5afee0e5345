"""Whether an answer gives away the system prompt.

Whether an answer does what a text ordered that was only to be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ragd.security.findings import ORDERS, Finding
from ragd.security.scanner import scan_once

WORD = re.compile(r"\w+")
RUN_WORDS = 12  # as many words in a row are rarely the same by chance
SHARE = 0.6  # of a prompt that is shorter than that
BASE, PRIME = 1_000_003, 2**61 - 1  # of the numbers that stand for runs


def find_leak(answer: str, system_prompt: str, *, known: Sequence[str] = ()) -> list[Finding]:
    """The longest run of words that the answer shares with the system prompt, when it is long enough to be a leak.

    Case and punctuation do not count. known: texts that the answer may quote, such as the question and the retrieved
    passages; a run that stands in one of them is no leak. At most one finding; [] for a blank prompt.
    """
    secret = [match[0].lower() for match in WORD.finditer(system_prompt)]
    matches = list(WORD.finditer(answer))
    words = [match[0].lower() for match in matches]
    if not secret or not words:
        return []
    at, size = _longest_run(words, secret, min(RUN_WORDS, max(4, round(SHARE * len(secret)))))
    if not size:
        return []
    run = words[at : at + size]
    if any(_holds([match[0].lower() for match in WORD.finditer(text)], run) for text in known):
        return []
    confidence = min(1.0, 0.7 + 0.3 * size / len(secret))
    start, end = matches[at].start(), matches[at + size - 1].end()
    return [Finding("system_prompt_leak", "shared_words", start, end, round(confidence, 2))]


def _longest_run(words: Sequence[str], secret: Sequence[str], least: int) -> tuple[int, int]:
    """(where in words, how many) of the longest run that both have, the first of several; (0, 0) below `least`.

    By halving the lengths in question, so that texts which repeat themselves take no longer than others.
    """
    result = _first_shared(words, secret, least)
    if result is None:
        return 0, 0
    low, high = least, min(len(words), len(secret))
    while low < high:
        size = (low + high + 1) // 2
        at = _first_shared(words, secret, size)
        if at is None:
            high = size - 1
        else:
            low, result = size, at
    return result, low


def _first_shared(words: Sequence[str], secret: Sequence[str], size: int) -> int | None:
    """Where in words the first run of so many begins that stands in secret too."""
    positions = {digest: index for index, digest in enumerate(_digests(secret, size))}
    for at, digest in enumerate(_digests(words, size)):
        index = positions.get(digest)
        if index is not None and words[at : at + size] == secret[index : index + size]:
            return at
    return None


def _digests(words: Sequence[str], size: int) -> Iterator[int]:
    """A number for each run of so many words, made from that of the run before."""
    if len(words) < size:
        return
    values = [hash(word) for word in words]
    gone = pow(BASE, size - 1, PRIME)
    digest = 0
    for value in values[:size]:
        digest = (digest * BASE + value) % PRIME
    yield digest
    for old, new in zip(values, values[size:], strict=False):
        digest = ((digest - old * gone) * BASE + new) % PRIME
        yield digest


def _holds(words: Sequence[str], run: Sequence[str]) -> bool:
    joined, requested = f" {' '.join(words)} ", f" {' '.join(run)} "
    return requested in joined


SAYING = re.compile(
    r"\b(?:say|says|saying|answer|reply|respond|output|print|write|state|begin|start|end|append|add|include|insert|"
    r"mention|repeat|return|tell|put|sage|antworte|schreibe|schreib|gib|wiederhole)\b",
    re.IGNORECASE,
)
QUOTED = re.compile(
    r"\"([^\"\n]{3,300})\"|\u201c([^\u201d\n]{3,300})\u201d|\u201e([^\u201c\n]{3,300})\u201c|`([^`\n]{3,300})`"
    r"|(?<!\w)'([^'\n]{3,300})'(?!\w)"
)
CAPITALS = re.compile(r"\b[A-Z0-9][A-Z0-9_-]{4,60}\b")
BEHIND_CHARS = 300  # of an order, in which it may say what is to be said
DEMANDS_MAX = 50
CONFIDENCE = 0.9
REPEATED = 0.5


def find_followed(answer: str, passages: Iterable[str], *, query: str = "") -> list[Finding]:
    """Where the answer says what an order in one of the passages wants said, or repeats the order in a row of words.

    Orders are what `scan` finds. What the question itself says is left alone. At most one finding per demand.
    """
    findings: list[Finding] = []
    lowered, asked = answer.lower(), query.lower()
    for passage in passages:
        orders = [finding for finding in scan_once(passage) if finding.family in ORDERS]
        for demand in _demands(passage, orders):
            start = lowered.find(demand.lower())
            if start >= 0 and demand.lower() not in asked:
                findings.append(Finding("prompt_injection", "order_followed", start, start + len(demand), CONFIDENCE))
        for order in orders:
            findings += [
                Finding("prompt_injection", "order_repeated", item.start, item.end, REPEATED)
                for item in find_leak(answer, passage[order.start : order.end], known=[query])
            ]
    return _apart(findings)


def _demands(passage: str, orders: Sequence[Finding]) -> list[str]:
    """What the orders of a passage want to be said: what stands in quotation marks or capitals behind such a word."""
    demands: dict[str, None] = {}
    for order in orders:
        near = passage[order.start : order.end + BEHIND_CHARS]
        saying = SAYING.search(near)
        if saying is None:
            continue
        rest = near[saying.end() :]
        for match in QUOTED.finditer(rest):
            demands[next(group for group in match.groups() if group).strip()] = None
        demands |= dict.fromkeys(CAPITALS.findall(rest))
    return [demand for demand in demands if len(demand) >= 3][:DEMANDS_MAX]


def _apart(findings: list[Finding]) -> list[Finding]:
    """By place, without those that lie within one before them."""
    selected: list[Finding] = []
    for item in sorted(findings, key=lambda item: (item.start, -item.end, -item.confidence)):
        if not selected or item.end > selected[-1].end:
            selected.append(item)
    return selected
