"""A score as a tagged value: scored, unscorable (with the reason) or error (with its kind). Never NaN or a silent 0."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["scored", "unscorable", "error"]
STATES: tuple[State, ...] = ("scored", "unscorable", "error")


@dataclass(frozen=True, slots=True)
class Score:
    """value: a finite number when scored, else None. reason: why it is unscorable, or the kind of the error."""

    state: State
    value: float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"state must be one of {', '.join(STATES)}, not {self.state!r}")
        if self.state == "scored":
            if self.value is None or not math.isfinite(self.value):
                raise ValueError(f"a scored value must be a finite number, not {self.value!r}")
        elif self.value is not None or not self.reason:
            raise ValueError(f"a score that is {self.state} has a reason and no value")

    @property
    def is_scored(self) -> bool:
        return self.state == "scored"

    def as_dict(self) -> dict[str, Any]:
        if self.value is not None:
            return {"state": self.state, "value": self.value}
        return {"state": self.state, "reason": self.reason}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Score:
        """The reverse of `as_dict`. Raises ValueError for what is no score."""
        return cls(data.get("state", ""), data.get("value"), data.get("reason", ""))


class StoredScores(Mapping[str, Score]):
    """Measure -> score, as it is stored: each is read when it is asked for, since pages look at few of many."""

    __slots__ = ("stored",)

    def __init__(self, stored: Mapping[str, dict[str, Any]]) -> None:
        self.stored = stored

    def __getitem__(self, name: str) -> Score:
        return Score.from_dict(self.stored[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def value(self, name: str) -> float | None:
        """Of one that is scored; None for any other and for one that is not there."""
        value: float | None = self.stored.get(name, {}).get("value")
        return value


def scored(value: float) -> Score:
    """Raises ValueError for NaN and infinity."""
    return Score("scored", float(value))


def unscorable(reason: str) -> Score:
    return Score("unscorable", reason=reason)


def failed(kind: str) -> Score:
    return Score("error", reason=kind)


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of what was scored, None when nothing was, with its coverage: `scored` of `total`."""

    value: float | None
    scored: int
    unscorable: int
    errors: int

    @property
    def total(self) -> int:
        return self.scored + self.unscorable + self.errors

    @property
    def is_complete(self) -> bool:
        """Whether no score failed: what is unscorable has a reason, an error is a hole."""
        return self.errors == 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "scored": self.scored,
            "unscorable": self.unscorable,
            "errors": self.errors,
            "total": self.total,
        }


def mean(scores: Iterable[Score], weights: Iterable[float] | None = None) -> Mean:
    """The (weighted) mean over the scored ones. weights: one per score, not negative; None counts each as 1.

    No score at all, or weights that are all 0: value None. Raises ValueError when the lengths differ.
    """
    everything = list(scores)
    shares = [1.0] * len(everything) if weights is None else [float(weight) for weight in weights]
    if len(shares) != len(everything):
        raise ValueError(f"{len(everything)} scores need as many weights, not {len(shares)}")
    if any(share < 0 or not math.isfinite(share) for share in shares):
        raise ValueError("weights must be finite numbers of at least 0")
    pairs = [(score.value, share) for score, share in zip(everything, shares, strict=True) if score.value is not None]
    total = math.fsum(share for _, share in pairs)
    value = math.fsum(number * share for number, share in pairs) / total if total > 0 else None
    states = [score.state for score in everything]
    return Mean(value, states.count("scored"), states.count("unscorable"), states.count("error"))
