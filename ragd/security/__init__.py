"""What in a text may do harm: attempts to steer a model, leaked prompts, secrets, personal data. Rules, no model."""

from __future__ import annotations

from ragd.security.findings import FAMILIES, HIDDEN, ORDERS, Family, Finding, combine_scores, mask, redact, risk_score
from ragd.security.leaks import find_leak
from ragd.security.scanner import RULES_VERSION, scan, scan_once

__all__ = [
    "FAMILIES", "HIDDEN", "ORDERS", "RULES_VERSION", "Family", "Finding", "combine_scores", "find_leak", "mask",
    "redact", "risk_score", "scan", "scan_once",
]  # fmt: skip
