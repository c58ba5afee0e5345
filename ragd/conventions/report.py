"""What a check of spans found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong with one span. rule: presence, type, range, enum, shape, index, name, kind, parent, link, status or
    time.

    field: the attribute, or "" for the span as a whole. requirement: of the row, "" where none is involved.
    """

    span_id: str
    span_name: str
    span_type: str
    rule: str
    field: str
    requirement: str
    message: str
    trace_id: str = ""

    def as_dict(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class TypeReport:
    """The spans of one type, how many of them are conformant, and what is wrong with the others."""

    spans: int = 0
    conformant: int = 0
    violations: list[Violation] = field(default_factory=list)

    @property
    def share(self) -> float:
        """0..1 of the spans; 1.0 where there are none."""
        return self.conformant / self.spans if self.spans else 1.0


@dataclass(slots=True)
class Report:
    """types: in the order of the tables, those that occurred. other: spans that no table governs. rows: the (type or
    event, field) rows of which a value was seen."""

    types: dict[str, TypeReport] = field(default_factory=dict)
    other: int = 0
    rows: set[tuple[str, str]] = field(default_factory=set)

    @property
    def spans(self) -> int:
        return sum(each.spans for each in self.types.values())

    @property
    def conformant(self) -> int:
        return sum(each.conformant for each in self.types.values())

    @property
    def share(self) -> float:
        """0..1 of the governed spans; 1.0 where there are none."""
        return self.conformant / self.spans if self.spans else 1.0

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong with any span; true where there are none."""
        return self.conformant == self.spans

    @property
    def violations(self) -> list[Violation]:
        """By type in the order of the tables, then as the spans came."""
        return [violation for each in self.types.values() for violation in each.violations]

    def merge(self, other: Report) -> None:
        """Take over what another check found, so that many spans can be checked a part at a time."""
        for name, each in other.types.items():
            own = self.types.setdefault(name, TypeReport())
            own.spans += each.spans
            own.conformant += each.conformant
            own.violations += each.violations
        self.other += other.other
        self.rows |= other.rows

    def as_dict(self) -> Mapping[str, Any]:
        """Plain data: {"spans", "conformant", "other", "types": [{"type", "spans", "conformant", "violations"}]}."""
        return {
            "spans": self.spans,
            "conformant": self.conformant,
            "other": self.other,
            "types": [
                {
                    "type": name,
                    "spans": each.spans,
                    "conformant": each.conformant,
                    "violations": [violation.as_dict() for violation in each.violations],
                }
                for name, each in self.types.items()
            ],
        }
