"""Intervals, agreement and correlation: what says whether a difference is more than noise. Seeded, so it repeats."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
RESAMPLES = 2000
SEED = 20240716
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its bootstrap interval (percentile method, Efron 1979)."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference with this interval is more than noise at the interval's level."""
        return self.low > 0 or self.high < 0

    def as_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "low": self.low, "high": self.high, "count": self.count}


def bootstrap_mean(
    values: Sequence[float],
    *,
    weights: Sequence[float] | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval | None:
    """The mean of the values and the interval of the means of as many drawn with replacement. None for no value.

    weights: one per value, not negative; each drawn value brings its own. A draw whose weights are all 0 is left out,
    and with no other draw there is nothing to tell: None.
    """
    numbers = _finite(values)
    if not len(numbers):
        return None
    shares = None if weights is None else _shares(weights, len(numbers))
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn = (generator.integers(0, len(numbers), len(numbers)) for _ in range(resamples))
    if shares is None or (shares[0] > 0 and (shares == shares[0]).all()):
        mean, means = float(numbers.mean()), np.array([numbers[places].mean() for places in drawn])
    else:
        if not shares.sum():
            return None
        weighted = numbers * shares
        sums = [(float(weighted[places].sum()), float(shares[places].sum())) for places in drawn]
        mean, means = float(weighted.sum() / shares.sum()), np.array([top / below for top, below in sums if below > 0])
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(mean, float(low), float(high), len(numbers))


def paired_difference(
    before: Sequence[float], after: Sequence[float], *, level: float = LEVEL, resamples: int = RESAMPLES
) -> Interval | None:
    """The mean of after - before over the same items, with its interval. Raises ValueError for different lengths."""
    if len(before) != len(after):
        raise ValueError(f"pairs are needed: {len(before)} values before and {len(after)} after")
    return bootstrap_mean(
        [late - early for early, late in zip(before, after, strict=True)], level=level, resamples=resamples
    )


def auroc(scores: Sequence[float], positive: Sequence[bool]) -> float | None:
    """The share of (positive, negative) pairs in which the positive one scores higher; ties count half.

    None when there is no positive or no negative.
    """
    numbers, is_positive = _finite(scores), np.asarray(positive, dtype=bool)
    count, others = int(is_positive.sum()), int((~is_positive).sum())
    if not count or not others:
        return None
    ranks = _mean_ranks(numbers)
    return float((ranks[is_positive].sum() - count * (count + 1) / 2) / (count * others))


def rmse(predicted: Sequence[float], true: Sequence[float]) -> float | None:
    """The root of the mean squared error; None for no value."""
    errors = _finite(predicted) - _finite(true)
    return float(np.sqrt((errors**2).mean())) if len(errors) else None


def pearson(first: Sequence[float], second: Sequence[float]) -> float | None:
    """None for fewer than two pairs or when one side never changes."""
    left, right = _finite(first), _finite(second)
    if len(left) < 2 or left.std() == 0 or right.std() == 0:
        return None
    return float(np.clip(np.corrcoef(left, right)[0, 1], -1.0, 1.0))


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's of the ranks; ties share their mean rank."""
    return pearson(list(_mean_ranks(_finite(first))), list(_mean_ranks(_finite(second))))


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """tau-b: (concordant - discordant) / sqrt((n - ties of first) (n - ties of second)) over all n pairs.

    None for fewer than two values or when one side never changes.
    """
    left, right = _finite(first), _finite(second)
    if len(left) < 2:
        return None
    upper = np.triu_indices(len(left), 1)
    one = np.sign(left[:, None] - left[None, :])[upper]
    other = np.sign(right[:, None] - right[None, :])[upper]
    counted = float(np.count_nonzero(one)) * float(np.count_nonzero(other))
    return float((one * other).sum() / np.sqrt(counted)) if counted else None


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """(observed - expected agreement) / (1 - expected), for two people who labelled the same items (Cohen 1960).

    None for no item, or when both always give the same one label: then agreement says nothing.
    """
    if len(first) != len(second):
        raise ValueError(f"both must label the same items: {len(first)} and {len(second)} labels came")
    if not first:
        return None
    count = len(first)
    observed = sum(left == right for left, right in zip(first, second, strict=True)) / count
    labels = set(first) | set(second)
    expected = sum((list(first).count(label) / count) * (list(second).count(label) / count) for label in labels)
    return None if expected == 1 else (observed - expected) / (1 - expected)


def _finite(values: Sequence[float]) -> Numbers:
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("values must be finite numbers")
    return numbers


def _shares(weights: Sequence[float], count: int) -> Numbers:
    shares = _finite(weights)
    if len(shares) != count or (shares < 0).any():
        raise ValueError(f"{count} values need as many weights of at least 0")
    return shares


def _mean_ranks(numbers: Numbers) -> Numbers:
    """Ranks from 1; equal numbers share the mean of theirs."""
    _, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Numbers = (last - (counts - 1) / 2)[places]
    return ranks
