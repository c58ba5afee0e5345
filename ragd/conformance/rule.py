"""A rule of the specification and how it is tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ragd.conformance.bench import Bench
from ragd.conformance.report import Cases


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its section, one line, the check, and whether the check reads the loaded corpus."""

    section: str
    title: str
    check: Callable[[Bench, Cases], None]
    needs_corpus: bool = False


def rule(section: str, title: str, *, needs_corpus: bool = False) -> Callable[[Callable[[Bench, Cases], None]], Rule]:
    """Make a rule of the function below it."""
    return lambda check: Rule(section, title, check, needs_corpus)


def rules_of(module: object) -> list[Rule]:
    """The rules of a module, in the order in which they stand there."""
    return [value for value in vars(module).values() if isinstance(value, Rule)]
