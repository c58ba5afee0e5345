"""scan(): all rules over one text."""

from __future__ import annotations

from hashlib import blake2b, sha256
from importlib.resources import files

from ragd.security.findings import Finding
from ragd.security.instructions import find_instructions
from ragd.security.personal import find_personal
from ragd.security.secrets import find_secrets

CHARS_MAX = 100_000
REMEMBERED_MAX = 20_000
QUERY = "query"  # said to the assistant itself: there "your instructions" are its own
FILES = ("instructions.toml", "secrets.toml", "personal.toml", "instructions.py", "disguises.py", "secrets.py")
SOURCES = (*FILES, "personal.py", "patterns.py")
# Changes with the rules, so that what an older set of them found can be told.
RULES_VERSION = sha256(b"".join(files("ragd.security").joinpath(name).read_bytes() for name in SOURCES)).hexdigest()

# What was found in a text, by the text's hash: passages come again and again, and their texts need not be kept.
_remembered: dict[bytes, tuple[Finding, ...]] = {}


def scan(text: str, location: str | None = None) -> list[Finding]:
    """What the rules find in the first 100,000 characters, by place, the surer one first where two begin together.

    place: "query" for what is said to the assistant itself, which tries more rules.

    Of findings of one family that overlap, the first stays. The same text gives the same findings. [] for "".
    """
    head = text[:CHARS_MAX]
    result = [*find_instructions(head, location), *find_secrets(head), *find_personal(head)]
    told_already = (_is_destination, _is_persona, _is_object, _is_carrier)
    result = [item for item in result if not any(is_part(item, result) for is_part in told_already)]
    result.sort(key=lambda item: (item.start, -item.confidence, -item.end, item.family, item.rule))
    findings: list[Finding] = []
    reached: dict[str, int] = {}
    for finding in result:
        if finding.start >= reached.get(finding.family, 0):
            findings.append(finding)
            reached[finding.family] = finding.end
    return findings


def _is_persona(finding: Finding, findings: list[Finding]) -> bool:
    """Whether it is the role that a jailbreak gives the model: one act, of the graver family."""
    return finding.rule == "role" and any(other.family == "jailbreak" for other in findings)


def _is_object(finding: Finding, findings: list[Finding]) -> bool:
    """Whether "your instructions" are what an order would have dropped, not asked for."""
    return (
        finding.family == "system_prompt_request"
        and finding.rule in ("asked", "other_language")
        and any(
            other.family == "prompt_injection"
            and other.rule in ("override", "revoked", "asked", "other_language")
            and other.start < finding.end
            and finding.start < other.end
            for other in findings
        )
    )


def _is_carrier(finding: Finding, findings: list[Finding]) -> bool:
    """Whether what every answer shall hold is the link that carries data out."""
    return finding.rule == "dictated_answer" and any(
        other.family == "data_exfiltration" and other.start <= finding.end and finding.start <= other.end
        for other in findings
    )


def _is_destination(finding: Finding, findings: list[Finding]) -> bool:
    """Whether it is the address that an order would have data sent to, which is no person's data."""
    return finding.rule == "email" and any(
        other.family == "data_exfiltration" and other.start <= finding.start and finding.end <= other.end
        for other in findings
    )


def scan_once(text: str, location: str | None = None) -> tuple[Finding, ...]:
    """`scan`, remembered by this process for the latest 20,000 texts."""
    message = location == QUERY
    key = blake2b(text.encode("utf-8", "replace"), digest_size=16, person=b"query" if message else b"").digest()
    value = _remembered.get(key)
    if value is None:
        value = tuple(scan(text, location))
        if len(_remembered) >= REMEMBERED_MAX:
            for old in list(_remembered)[: REMEMBERED_MAX // 10]:
                _remembered.pop(old, None)
        _remembered[key] = value
    return value
