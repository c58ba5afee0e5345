"""What a run of the suite found: rules, their cases, and for a failing case what was expected and what came."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ragd.errors import RagdError

SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """One case that did not hold. expected and got are texts for a person, shortened to 300 characters."""

    case: str
    expected: str
    got: str


@dataclass(slots=True)
class Cases:
    """Counts the cases of one rule and keeps those that fail; a failing case stops nothing."""

    count: int = 0
    failures: list[Failure] = field(default_factory=list)

    def equal(self, case: str, got: object, expected: object) -> None:
        """The case holds when both are equal."""
        self.holds(case, got == expected, expected=repr(expected), got=repr(got))

    def holds(self, case: str, truth: bool, *, expected: str, got: str) -> None:
        self.count += 1
        if not truth:
            self.failures.append(Failure(case, _shorten(expected), _shorten(got)))

    def refused(self, case: str, call: Callable[[], object], *, field: str, error: type[RagdError]) -> None:
        """The case holds when the call raises that error and the error names that field."""
        expected = f"{error.__name__} that names {field!r}"
        try:
            value = call()
        except RagdError as raised:
            got = f"{type(raised).__name__} that names {raised.field!r}: {raised.message}"
            self.holds(case, isinstance(raised, error) and raised.field == field, expected=expected, got=got)
        else:
            self.holds(case, False, expected=expected, got=f"no error, but {value!r}")


@dataclass(frozen=True, slots=True)
class RuleResult:
    """One rule: its section of the specification, one line, how many cases were tried, those that failed."""

    section: str
    title: str
    cases: int
    failures: tuple[Failure, ...]
    took_ms: float

    @property
    def passed(self) -> bool:
        """A rule without cases has shown nothing, so it does not pass."""
        return self.cases > 0 and not self.failures

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed}


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run. database and pgvector are the versions that the server names."""

    spec_version: str
    database: str
    pgvector: str
    took_ms: float
    results: tuple[RuleResult, ...]

    @property
    def passed(self) -> bool:
        return bool(self.results) and all(result.passed for result in self.results)

    @property
    def cases(self) -> int:
        return sum(result.cases for result in self.results)

    def as_dict(self) -> dict[str, Any]:
        return {
            "spec_version": self.spec_version,
            "database": self.database,
            "pgvector": self.pgvector,
            "passed": self.passed,
            "cases": self.cases,
            "took_ms": self.took_ms,
            "rules": [result.as_dict() for result in self.results],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Report:
        """The report of which `values` is the as_dict()."""
        results = []
        for rule in values["rules"]:
            failures = tuple(Failure(**failure) for failure in rule["failures"])
            results.append(RuleResult(rule["section"], rule["title"], rule["cases"], failures, rule["took_ms"]))
        return cls(values["spec_version"], values["database"], values["pgvector"], values["took_ms"], tuple(results))

    def table(self) -> str:
        """Rules in the order of the specification, failing cases below their rule, a sum at the end."""
        width = max((len(result.title) for result in self.results), default=4)
        lines = [f"{'section':<8}{'rule':<{width}}  cases  result"]
        for result in self.results:
            verdict = "pass" if result.passed else "FAIL"
            lines.append(f"{result.section:<8}{result.title:<{width}}  {result.cases:>5}  {verdict}")
            for item in result.failures:
                lines += [f"          case      {item.case}", f"          expected  {item.expected}"]
                lines.append(f"          got       {item.got}")
        failed = sum(not result.passed for result in self.results)
        lines.append(
            f"\nspecification {self.spec_version} on PostgreSQL {self.database}, pgvector {self.pgvector}: "
            f"{len(self.results)} rules, {self.cases} cases, "
            + (f"{failed} rules FAILED" if failed else "all pass")
            + f", {self.took_ms / 1000:.1f} s"
        )
        return "\n".join(lines)


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
