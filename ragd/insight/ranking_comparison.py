"""Two rankings side by side: what they share, how far their orders agree, how each item moved. Pure functions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Move(Generic[Key]):
    """One item in two rankings. rank starts at 1, None where the ranking does not hold the item."""

    key: Key
    before: int | None
    after: int | None

    @property
    def gain(self) -> int | None:
        """Ranks won (above 0) or lost (below 0); None when one ranking does not hold the item."""
        return None if self.before is None or self.after is None else self.before - self.after


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many items two rankings share. share is count / longest, None for two empty rankings."""

    count: int
    longest: int

    @property
    def share(self) -> float | None:
        return self.count / self.longest if self.longest else None

    def as_dict(self) -> dict[str, Any]:
        return {"count": self.count, "longest": self.longest, "share": self.share}


def overlap_at(before: Sequence[Key], after: Sequence[Key], k: int) -> Overlap:
    """What the first k of each share: |A ∩ B| of max(|A|, |B|). A repeated item counts once."""
    first, second = set(before[:k]), set(after[:k])
    return Overlap(len(first & second), max(len(first), len(second)))


def kendall_tau(before: Sequence[Key], after: Sequence[Key]) -> float | None:
    """Kendall's tau-b over the union of two rankings, from -1 to 1; None where it is not defined.

        tau_b = (C - D) / sqrt((C + D + T_before) * (C + D + T_after))

    C counts the pairs of items that both rankings put in the same order, D those in opposite order, T_before those
    that only the first ranking ties, T_after those that only the second ties; pairs tied in both count nowhere.
    Items that a ranking does not hold share one place behind its last, so they are tied in it. Equal rankings of at
    least two items give 1, a reversed one -1. It is not defined when a ranking orders no pair of the union: when one is
    empty, or both hold the same single item. A repeated item counts at its first place.
    Sources: Kendall, "The treatment of ties in ranking problems", Biometrika 33, 1945 (tau-b); Fagin, Kumar, Sivakumar,
    "Comparing top k lists", SIAM J. Discrete Math. 17, 2003 (absent items behind the last).
    """
    items = list(dict.fromkeys((*before, *after)))
    first, second = _order_signs(items, before), _order_signs(items, after)
    balance = int((first * second).sum(dtype=np.int64))
    ordered_first, ordered_second = int(np.abs(first).sum()), int(np.abs(second).sum())
    if not ordered_first or not ordered_second:
        return None
    return float(balance / np.sqrt(float(ordered_first) * float(ordered_second)))


def rank_moves(before: Sequence[Key], after: Sequence[Key]) -> list[Move[Key]]:
    """Every item of either ranking: those of `after` in its order, then those that only `before` holds, in theirs."""
    old, new = _places(before), _places(after)
    return [Move(key, old.get(key), new.get(key)) for key in dict.fromkeys((*after, *before))]


def recall_of(results: Iterable[Key], requested: Iterable[Key]) -> float | None:
    """The share of `wanted` that was found; None when nothing was wanted."""
    expected = set(requested)
    return len(expected & set(results)) / len(expected) if expected else None


def _places(ranking: Sequence[Key]) -> dict[Key, int]:
    return {key: rank for rank, key in enumerate(dict.fromkeys(ranking), 1)}


def _order_signs(items: Sequence[Key], ranking: Sequence[Key]) -> Any:
    """For every pair of items, which one the ranking puts first: -1, 1, or 0 when it ties them. Each pair twice."""
    known = _places(ranking)
    positions = np.array([known.get(item, len(known) + 1) for item in items], dtype=np.int32)
    return np.sign(positions[:, None] - positions[None, :]).astype(np.int8)
