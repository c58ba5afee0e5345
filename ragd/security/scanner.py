"""scan(): all rules over one text."""

from __future__ import annotations

from ragd.security.findings import Finding
from ragd.security.instructions import find_instructions
from ragd.security.personal import find_personal
from ragd.security.secrets import find_secrets

CHARS_MAX = 100_000


def scan(text: str) -> list[Finding]:
    """What the rules find in the first 100,000 characters, by place, the surer one first where two begin together.

    Of findings of one family that overlap, the first stays. The same text gives the same findings. [] for "".
    """
    head = text[:CHARS_MAX]
    found = [*find_instructions(head), *find_secrets(head), *find_personal(head)]
    found.sort(key=lambda item: (item.start, -item.confidence, -item.end, item.family, item.rule))
    kept: list[Finding] = []
    reached: dict[str, int] = {}
    for finding in found:
        if finding.start >= reached.get(finding.family, 0):
            kept.append(finding)
            reached[finding.family] = finding.end
    return kept
