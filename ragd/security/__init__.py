"""What in a text may do harm: attempts to steer a model, leaked prompts, secrets, personal data. Rules, no model."""

from __future__ import annotations

from ragd.security.findings import FAMILIES, Family, Finding, redact, risk_score
from ragd.security.leaks import find_leak
from ragd.security.scanner import scan

__all__ = ["FAMILIES", "Family", "Finding", "find_leak", "redact", "risk_score", "scan"]
