"""The conformance suite: every rule of the specification, tried on a real database.

`python -m ragd.conformance` runs it; `run` does the same over a connection that one has.
"""

from __future__ import annotations

from ragd.conformance.channel_rules import Channel, Channels
from ragd.conformance.golden import SimHashEmbedder
from ragd.conformance.report import Failure, Report, RuleResult
from ragd.conformance.suite import run, run_on

__all__ = ["Channel", "Channels", "Failure", "Report", "RuleResult", "SimHashEmbedder", "run", "run_on"]
