"""Who decides which components of an expected answer an answer holds, where a model does it instead of rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class HeldComponents:
    """by: per component the key of the answer's sentence that states it, "" for none. error: the kind of what went
    wrong, and then `by` is empty. usage: as of a `Judgement`."""

    by: tuple[str, ...]
    error: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class ComponentJudge(Protocol):
    """A judge (`Judge`) may be one besides; then it decides for the runs that it judges."""

    def components_held(
        self, question: str, expected: Sequence[str], answer: Sequence[tuple[str, str]]
    ) -> HeldComponents:
        """expected: the components, at least one. answer: (key, text) of its sentences, at least one. Never raises for
        what the texts hold."""
        ...
