"""How far labels of rows that a model was not fitted on lay from what it expected of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluation_app.judges.protocol import Estimate

BINS = 5
LEVEL = 0.95
DECIMALS = 4


@dataclass(frozen=True, slots=True)
class Spread:
    """Of held-out rows in BINS bins of equal size by their estimate. up_to: the bin's highest estimate, rising; lows,
    highs: the quantiles of label - estimate that LEVEL of the bin's rows lie between."""

    up_to: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]

    def around(self, value: float) -> Estimate:
        """The interval of the value's bin, within 0 to 1 and around the value."""
        place = min(int(np.searchsorted(self.up_to, value)), len(self.up_to) - 1)
        low, high = value + min(0.0, self.lows[place]), value + max(0.0, self.highs[place])
        return Estimate(value, max(0.0, low), min(1.0, high))

    def as_dict(self) -> list[dict[str, float]]:
        return [
            {"up_to": up_to, "low": low, "high": high}
            for up_to, low, high in zip(self.up_to, self.lows, self.highs, strict=True)
        ]

    @classmethod
    def from_dict(cls, bins: list[Mapping[str, Any]]) -> Spread:
        """Raises KeyError for a missing entry, ValueError for no bin or bins that do not rise."""
        up_to, lows, highs = (tuple(float(entry[name]) for entry in bins) for name in ("up_to", "low", "high"))
        if not up_to or list(up_to) != sorted(up_to):
            raise ValueError("at least one bin is needed, in the order of up_to")
        return cls(up_to, lows, highs)


def fit_spread(estimates: npt.ArrayLike, labels: npt.ArrayLike) -> Spread:
    """estimates: by a model that was not fitted on these rows. Raises ValueError for fewer rows than bins."""
    values, truth = np.asarray(estimates, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if len(values) < BINS:
        raise ValueError(f"at least {BINS} rows are needed, not {len(values)}")
    parts = np.array_split(np.argsort(values, kind="stable"), BINS)
    tail = (1 - LEVEL) / 2
    edges = [np.quantile((truth - values)[part], [tail, 1 - tail]) for part in parts]
    return Spread(
        tuple(round(float(values[part].max()), DECIMALS) for part in parts),
        tuple(round(float(low), DECIMALS) for low, _ in edges),
        tuple(round(float(high), DECIMALS) for _, high in edges),
    )
