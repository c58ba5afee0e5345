"""A golden question as plain data: what a run asks and keeps, whatever becomes of the row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ragd.errors import InvalidInput

if TYPE_CHECKING:
    from evaluation_app.models import GoldenQuestion

GLOBAL, MULTI_HOP = "global", "multi-hop"
CATEGORIES = ("factual", "how-to", "why", "how-it-works", "troubleshooting", MULTI_HOP, GLOBAL, "abstain")


@dataclass(frozen=True, slots=True)
class Golden:
    """expected_doc_ids: any of them answers it. expected_chunks: "doc_id#chunk_index".

    Neither: nothing in the collection answers it, and the right thing is to abstain. thresholds: measure -> the least
    that passes. weight: its share in means, 0 or more.
    """

    question: str
    expected_doc_ids: tuple[str, ...] = ()
    expected_chunks: tuple[str, ...] = ()
    expected_answer: str = ""
    category: str = "factual"
    weight: float = 1.0
    thresholds: Mapping[str, float] = field(default_factory=dict)
    notes: str = ""

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise InvalidInput("question must hold at least one visible character; it is empty", field="question")
        if not math.isfinite(self.weight) or self.weight < 0:
            raise InvalidInput(f"weight must be a finite number of at least 0, not {self.weight!r}", field="weight")

    @property
    def expects_nothing(self) -> bool:
        return not self.expected_doc_ids and not self.expected_chunks

    @property
    def relevant_docs(self) -> tuple[str, ...]:
        """The expected documents, with those of the expected chunks, each once, in order."""
        of_chunks = (chunk.rpartition("#")[0] for chunk in self.expected_chunks)
        return tuple(dict.fromkeys((*self.expected_doc_ids, *of_chunks)))

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON; lists for tuples."""
        values = asdict(self)
        return values | {name: list(values[name]) for name in ("expected_doc_ids", "expected_chunks")}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Golden:
        """The reverse of `as_dict`; fields that are missing have their defaults. InvalidInput for an unknown field."""
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise InvalidInput(
                f"a golden question has no field {unknown[0]!r}; its fields are {', '.join(sorted(known))}",
                field=unknown[0],
            )
        lists = {name: tuple(values[name]) for name in ("expected_doc_ids", "expected_chunks") if name in values}
        return cls(**{**values, **lists})

    @classmethod
    def of(cls, row: GoldenQuestion) -> Golden:
        return cls.from_dict({item.name: getattr(row, item.name) for item in fields(cls)})
