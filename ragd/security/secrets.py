"""Keys, tokens and passwords that stand in a text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from ragd.security.findings import Finding

TOKENS: tuple[tuple[str, float, str], ...] = (
    ("aws_access_key", 0.95, r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("github_token", 0.98, r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{60,255})\b"),
    ("gitlab_token", 0.95, r"\bglpat-[A-Za-z0-9_-]{20,}\b"),
    ("slack_token", 0.95, r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}\b"),
    ("stripe_key", 0.95, r"\b[rs]k_live_[A-Za-z0-9]{16,}\b"),
    ("google_key", 0.95, r"\bAIza[0-9A-Za-z_-]{35}(?![0-9A-Za-z_-])"),
    ("openai_key", 0.95, r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{32,}\b"),
    ("anthropic_key", 0.98, r"\bsk-ant-[A-Za-z0-9_-]{24,}\b"),
    ("huggingface_token", 0.95, r"\bhf_[A-Za-z0-9]{30,}\b"),
    ("npm_token", 0.95, r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("pypi_token", 0.98, r"\bpypi-AgEI[A-Za-z0-9_-]{40,}"),
    ("sendgrid_key", 0.98, r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{32,}"),
    ("ragd_key", 0.98, r"\bragd_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    ("json_web_token", 0.85, r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}"),
    ("private_key", 0.98,
     r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----\s+(?:[A-Za-z-]+:[^\n]*\n)*\s*[A-Za-z0-9+/=\s]{64,}"),
)  # fmt: skip
COMPILED = tuple((rule, confidence, re.compile(pattern)) for rule, confidence, pattern in TOKENS)

ASSIGNED = re.compile(
    r"(?<![\w$])(?:[\w-]*[_-])?(?:password|passwd|passphrase|passwort|pwd|secret(?:[_-]?(?:access[_-]?)?key)?|api[_-]?key|"
    r"access[_-]?(?:token|key)|auth[_-]?token|client[_-]?secret|private[_-]?key)[\"']?\s{0,3}(?::=|=>|[:=])\s{0,3}"
    r"(?P<quote>[\"']?)(?P<value>[^\s\"'`,;)}\]]{8,200})(?P=quote)",
    re.IGNORECASE,
)
SPOKEN = re.compile(
    r"\b(?:password|passphrase|passwort|mot\s+de\s+passe|contraseña|pin(?:\s+code)?|api\s+key|access\s+token)\s+"
    r"(?:is|ist|lautet|est|es|was|set\s+to|:)\s*:?\s*(?P<quote>[\"'`]?)(?P<value>[^\s\"'`,;)]{6,100})(?P=quote)",
    re.IGNORECASE,
)
ADDRESS = re.compile(
    r"\b[a-z][a-z0-9+.-]{2,20}://(?P<user>[^\s:/@]{1,80}):(?P<value>[^\s:/@]{4,120})@[\w.-]+", re.IGNORECASE
)
BEARER = re.compile(
    r"\bAuthorization[\"']?\s*:\s*[\"']?(?:Bearer|Basic|token)\s+(?P<value>[A-Za-z0-9._~+/=-]{16,400})", re.IGNORECASE
)

# A value that stands for one: templates, references, words of an example.
PLACEHOLDER = re.compile(
    r"^[<\[{(%$*_]|\$\{|\{\{|%\(|^\*+$|\*{3,}|^x{3,}|x{6,}|^\.{3}|\.{3}$|…|^(?:none|null|nil|true|false|undefined|required|optional|string|str|int|bytes|"
    r"hidden|redacted|removed|masked|password\d*|passwd|secret|token|postgres|admin|root|test\w*|guest|user\w*|pass|foobar|qwerty|letmein)$|"
    r"example|placeholder|changeme|change[_-]?me|your[_-]?|my[_-]?(?:secret|password|token|key|api)|dummy|sample|fake|replace|insert|todo|"
    r"not[_-]?a[_-]?real|redacted|os\.(?:environ|getenv)|process\.env|getenv|environ|env\[|settings\.|config\.|self\.|secrets\.|vault|"
    r"get_|_get|random|generate|uuid|token_urlsafe|input\(|prompt\(|^/|^\./|^https?:|0123456789|123456789|abcdef",
    re.IGNORECASE,
)
LONGEST_HASH = re.compile(r"^(?:sha\d+[:-])?[0-9a-f]{32,128}$", re.IGNORECASE)
CODE = re.compile(r"[()\[\]{}<>|]|::|->|==")
DIVERSE_BITS = 2.75  # Shannon entropy per character that a made-up key has and a word rarely


def find_secrets(text: str) -> Iterator[Finding]:
    """Tokens by their published shape; values that are assigned, said or part of an address and look like real ones."""
    for rule, confidence, pattern in COMPILED:
        for match in pattern.finditer(text):
            if "EXAMPLE" not in match[0].upper() and not _is_filler(match[0]):
                yield Finding("secret", rule, match.start(), match.end(), confidence)
    for match in ASSIGNED.finditer(text):
        if is_real(match["value"]):
            yield Finding("secret", "assigned", match.start("value"), match.end("value"), 0.8)
    for match in SPOKEN.finditer(text):
        value = match["value"].rstrip(".!?")
        if is_real(value) and _is_mixed(value):
            start = match.start("value")
            yield Finding("secret", "spoken", start, start + len(value), 0.75)
    for match in ADDRESS.finditer(text):
        if is_real(match["value"]) and match["value"].lower() != match["user"].lower():
            yield Finding("secret", "address", match.start("value"), match.end("value"), 0.85)
    for match in BEARER.finditer(text):
        if is_real(match["value"]):
            yield Finding("secret", "authorization", match.start("value"), match.end("value"), 0.85)


def is_real(value: str) -> bool:
    """Whether a value looks made up by a machine or a careful person, not by the writer of an example."""
    if PLACEHOLDER.search(value) or LONGEST_HASH.match(value) or CODE.search(value) or _is_filler(value):
        return False
    return _is_mixed(value) and entropy(value) >= DIVERSE_BITS


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
