"""How the answers of RAGBench score, to place a mean by: its published labels, counted by a benchmark (ragbench_share).

The data are the validation rows of seven sets, labelled by GPT-4, with lengths in sentences. Each set counts alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("ragbench.json")
STEPS = 100  # scores are counted by hundredths, so a percentile is exact to one


@cache
def stored_counts() -> Mapping[str, Mapping[str, Sequence[int]]]:
    """Measure -> set -> how many rows are at 0.00, 0.01, ... 1.00."""
    values: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    counts: Mapping[str, Mapping[str, Sequence[int]]] = values["measures"]
    return counts


def percentile_of(name: str, value: float) -> float | None:
    """The share of rows that score less, with half of those that score the same to a hundredth; 0 to 1.

    None for a measure that RAGBench has no labels of.
    """
    sets = stored_counts().get(name)
    if not sets:
        return None
    index = min(max(round(value * STEPS), 0), STEPS)
    shares = [(sum(counts[:index]) + counts[index] / 2) / sum(counts) for counts in sets.values()]
    return sum(shares) / len(shares)


def shares_of(name: str, bins: int) -> Sequence[float] | None:
    """Which share of rows lies in each of so many equal bins of 0 to 1; the last holds 1.0. None as above."""
    sets = stored_counts().get(name)
    if not sets:
        return None
    shares = [0.0] * bins
    for counts in sets.values():
        for index, count in enumerate(counts):
            shares[min(index * bins // STEPS, bins - 1)] += count / sum(counts) / len(sets)
    return shares
