"""Differences over the same questions with their intervals, and the one word that they amount to.

The interval is that of a paired bootstrap (percentile method, Efron 1979): questions are drawn with replacement, both
runs' scores of a question together. A question's weight is drawn with it, so that the difference is the one between the
two weighted means of the same questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from evaluation_app.measures.statistics import Draws, Interval, interval_of

Numbers = npt.NDArray[np.float64]
Verdict = Literal["improved", "regressed", "noise", "few", "same", "unscored", "incomparable"]

SAME = 1e-12  # scores that are nearer than this are one: they differ by rounding alone
MOVED_MIN = 6  # that six of six go one way by chance has probability 2 / 2**6 = 3 %; with five it is 6 %

WORDS: dict[Verdict, str] = {
    "improved": "Improved",
    "regressed": "Regressed",
    "noise": "No significant difference",
    "few": "Insufficient evidence",
    "same": "Unchanged",
    "unscored": "Not scored in both",
    "incomparable": "Not comparable",
}


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


class Resampled:
    """The weighted means of many columns over the same draws: each interval, and each difference, at once.

    values: (questions, columns), finite. Intervals are those of `bootstrap_mean`, up to rounding. Raises ValueError
    where no weight is above 0.
    """

    def __init__(self, values: Numbers, weights: Sequence[float], draws: Draws) -> None:
        is_counted = np.array(weights, dtype=np.float64) > 0
        if not is_counted.any():
            raise ValueError("a weight above 0 is needed")
        shares, numbers = np.array(weights, dtype=np.float64)[is_counted], values[is_counted]
        self.count = len(shares)
        self.mean: Numbers = shares @ numbers / shares.sum()
        drawn_means = []
        for drawn in draws.pieces(self.count):
            counts = np.zeros((len(drawn), self.count))
            np.add.at(counts, (np.arange(len(drawn))[:, None], drawn), 1.0)
            weighed = counts * shares
            drawn_means.append(weighed @ numbers / weighed.sum(axis=1, keepdims=True))
        self.means: Numbers = np.concatenate(drawn_means)

    def interval(self, column: int) -> Interval:
        return interval_of(float(self.mean[column]), self.means[:, column], self.count)

    def difference(self, before: int, after: int) -> Interval:
        """Of column `after` less column `before`; what rounds to nothing is nothing."""
        moved = self.means[:, after] - self.means[:, before]
        moved[np.abs(moved) <= SAME] = 0.0
        return interval_of(float(self.mean[after] - self.mean[before]), moved, self.count)

    def share_best(self, sign: float = 1.0) -> list[float]:
        """Per column the share of draws in which none has a higher mean (sign -1: a lower); equal ones share a draw."""
        best = sign * self.means >= (sign * self.means).max(axis=1, keepdims=True) - SAME
        won: Numbers = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
        return [float(share) for share in won]
