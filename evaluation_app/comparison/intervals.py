"""Differences over the same questions with their intervals, and the one word that they amount to.

The interval is that of a paired bootstrap (percentile method, Efron 1979): questions are drawn with replacement, both
runs' scores of a question together. A question's weight is drawn with it, so that the difference is the one between the
two weighted means of the same questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from evaluation_app.measures.statistics import LEVEL, RESAMPLES, SEED, Interval

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Verdict = Literal["improved", "regressed", "noise", "few", "same", "unscored", "incomparable"]

SAME = 1e-12  # scores that are nearer than this are one: they differ by rounding alone
MOVED_MIN = 6  # that six of six go one way by chance has probability 2 / 2**6 = 3 %; with five it is 6 %
PLACES_MAX = 4_000_000  # drawn at once, so that many questions do not take much memory

WORDS: dict[Verdict, str] = {
    "improved": "Improved",
    "regressed": "Regressed",
    "noise": "Within noise",
    "few": "Too few moved",
    "same": "Same",
    "unscored": "Not scored in both",
    "incomparable": "Not comparable",
}


class Draws:
    """Which questions are drawn, made once per number of questions. Seeded: the same figures every time."""

    def __init__(self, resamples: int = RESAMPLES, seed: int = SEED) -> None:
        self.resamples, self.seed = resamples, seed
        self.known: dict[int, Places] = {}

    def pieces(self, count: int) -> Iterator[Places]:
        """Places below count, (some, count) at a time, `resamples` rows altogether."""
        if count in self.known:
            yield self.known[count]
            return
        generator = np.random.Generator(np.random.PCG64(self.seed))
        step = min(self.resamples, max(1, PLACES_MAX // count))
        for first in range(0, self.resamples, step):
            drawn = generator.integers(0, count, (min(step, self.resamples - first), count))
            if step == self.resamples:
                self.known[count] = drawn
            yield drawn


def weighted_interval(
    values: Sequence[float], weights: Sequence[float], draws: Draws, level: float = LEVEL
) -> Interval | None:
    """The weighted mean of the values with its interval; equal weights give `statistics.bootstrap_mean`'s.

    values, weights: one each per question, finite, weights not negative. Values of weight 0 count for nothing.
    None without a value of a weight above 0.
    """
    pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if weight > 0]
    if not pairs:
        return None
    numbers, shares = np.array(pairs, dtype=np.float64).T
    if not np.isfinite(numbers).all() or not np.isfinite(shares).all():
        raise ValueError("values and weights must be finite numbers")
    if (shares == shares[0]).all():
        mean = numbers.mean()
        means = np.concatenate([numbers[drawn].mean(1) for drawn in draws.pieces(len(pairs))])
    else:
        sums = numbers * shares
        mean = sums.mean() / shares.mean()
        means = np.concatenate([sums[drawn].mean(1) / shares[drawn].mean(1) for drawn in draws.pieces(len(pairs))])
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(mean), float(low), float(high), len(pairs))


def judge_difference(difference: Interval | None, moved: int, *, higher_is_better: bool = True) -> Verdict:
    """The word for a mean difference (after - before). moved: questions whose score differs at all.

    "same": none differs. "noise": the interval holds zero. "few": it does not, and yet so few questions moved that
    chance alone often moves as many one way (see MOVED_MIN). "unscored": there is no pair.
    """
    if difference is None:
        return "unscored"
    if not moved:
        return "same"
    if not difference.excludes_zero:
        return "noise"
    if moved < MOVED_MIN:
        return "few"
    return "improved" if (difference.mean > 0) == higher_is_better else "regressed"


def share_best(values: Numbers, weights: Sequence[float], draws: Draws) -> list[float | None] | None:
    """Per column the share of draws in which no column has a higher weighted mean; equal ones share a draw.

    values: (questions, columns). None without a question of a weight above 0.
    """
    shares = np.array(weights, dtype=np.float64)
    if not shares.sum():
        return None
    won = np.zeros(values.shape[1])
    for drawn in draws.pieces(len(shares)):
        counts = np.zeros((len(drawn), len(shares)))
        np.add.at(counts, (np.arange(len(drawn))[:, None], drawn), 1.0)
        sums = (counts * shares) @ values
        best = sums >= sums.max(axis=1, keepdims=True) - 1e-9
        won += (best / best.sum(axis=1, keepdims=True)).sum(axis=0)
    return [float(share / draws.resamples) for share in won]
