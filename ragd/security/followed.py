"""Whether an answer does what a text ordered that was only to be read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ragd.security.findings import ORDERS, Finding
from ragd.security.leaks import find_leak
from ragd.security.scanner import scan_once

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
