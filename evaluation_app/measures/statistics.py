"""Intervals, agreement, correlation and anchored scores: what says whether a difference is more than noise.

The estimate is prediction-powered inference with a tuned weight of the judge (PPI++: Angelopoulos, Duchi and Zrnic,
arXiv 2311.01453), over a finite number of answers, N, of which n are labelled:

estimate  lambda * mean of the judge over all + mean over the labelled of (label - lambda * judge)
    lambda    cov(label, judge) / var(judge) over the labelled, kept within 0 to 1: a judge that says nothing counts 0
    error     sqrt((1 - n / N) * var(label - lambda * judge) / n)

It rests on labels of answers that were drawn by chance. Answers that were picked for what they look like bias it.
Answers of several groups (as those that an earlier run gave too, and those that changed) are estimated group by group
and weighed by their numbers, because chance drew within each group alone.

The interval of few labels that agree would be too short, or have no length at all. So it is Agresti and Coull's (The
American Statistician 52, 1998): as if two labels of 0 and two of 1 had come besides, scaled by the share of answers
without a label, with Student's t for the normal quantile. Labels between 0 and 1 get a longer interval than they need.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from django.utils.translation import gettext_noop

Numbers = npt.NDArray[np.float64]
Indexes = npt.NDArray[np.int64]
RESAMPLES = 2000
SEED = 20240716
LEVEL = 0.95
INDEXES_MAX = 4_000_000  # drawn at once, so that many values do not take much memory
FLIPS = 10_000
FLIPS_EXACT = 14  # so many differences have 2**14 = 16,384 ways, which are all tried
Verdict = Literal["improved", "regressed", "small", "noise", "few", "same", "unscored", "incomparable"]

SAME = 1e-12  # scores that are nearer than this are one: they differ by rounding alone
MOVED_MIN = 6  # that six of six go one way by chance has probability 2 / 2**6 = 3 %; with five it is 6 %

WORDS: dict[Verdict, str] = {
    "improved": gettext_noop("Improved"),
    "regressed": gettext_noop("Regressed"),
    "small": gettext_noop("Below the relevant effect"),
    "noise": gettext_noop("No significant difference"),
    "few": gettext_noop("Insufficient evidence"),
    "same": gettext_noop("Unchanged"),
    "unscored": gettext_noop("Not scored in both"),
    "incomparable": gettext_noop("Not comparable"),
}


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
        return asdict(self)


class Draws:
    """Which values are drawn, made once per number of values. Seeded: the same figures every time."""

    def __init__(self, resamples: int = RESAMPLES, seed: int = SEED) -> None:
        self.resamples, self.seed = resamples, seed
        self.known: dict[int, Indexes] = {}

    def pieces(self, count: int) -> Iterator[Indexes]:
        """Indexes below count, (some, count) at a time, `resamples` rows altogether."""
        if count in self.known:
            yield self.known[count]
            return
        generator = np.random.Generator(np.random.PCG64(self.seed))
        step = min(self.resamples, max(1, INDEXES_MAX // count))
        for first in range(0, self.resamples, step):
            drawn = generator.integers(0, count, (min(step, self.resamples - first), count))
            if step == self.resamples:
                self.known[count] = drawn
            yield drawn


def bootstrap_mean(
    values: Sequence[float], *, weights: Sequence[float] | None = None, level: float = LEVEL, draws: Draws | None = None
) -> Interval | None:
    """The mean of the values and the interval of the means of as many drawn with replacement. None for no value.

    weights: one per value, finite, not negative; each drawn value brings its own. Equal weights give the plain mean's
    interval, values of weight 0 count for nothing, and without any other value it is None. draws: to be shared by
    several calls. Raises ValueError for values and weights that are not finite, and for weights of another number.
    """
    numbers = _finite(values)
    shares = np.ones(len(numbers)) if weights is None else _shares(weights, len(numbers))
    numbers, shares = numbers[shares > 0], shares[shares > 0]
    count = len(numbers)
    if not count:
        return None
    parts = (draws or Draws()).pieces(count)
    if (shares == shares[0]).all():
        return interval_of(
            float(numbers.mean()), np.concatenate([numbers[part].mean(1) for part in parts]), count, level
        )
    sums = numbers * shares
    means = np.concatenate([sums[part].mean(1) / shares[part].mean(1) for part in parts])
    return interval_of(float(sums.mean() / shares.mean()), means, count, level)


def interval_of(mean: float, means: Numbers, count: int, level: float = LEVEL) -> Interval:
    """The mean with the percentile interval of the drawn means."""
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(mean, float(low), float(high), count)


def paired_difference(before: Sequence[float], after: Sequence[float]) -> Interval | None:
    """The mean of after - before over the same items, with its interval. Raises ValueError for different lengths."""
    if len(before) != len(after):
        raise ValueError(f"pairs are needed: {len(before)} values before and {len(after)} after")
    return bootstrap_mean([late - early for early, late in zip(before, after, strict=True)])


def sign_flip_p(differences: Sequence[float]) -> float:
    """The two-sided p-value of a mean paired difference, under the hypothesis that either run may be the better one.

    Fisher's randomisation test for pairs (The Design of Experiments, 1935, section 21): each difference could as well
    have had the other sign, and p is the share of all ways to give signs whose sum is at least as far from 0 as the one
    that was found. Differences of 0 change nothing. Equal ones are counted by the binomial distribution (of 0/1
    measures that is McNemar's exact test), up to FLIPS_EXACT one by one, others by FLIPS seeded draws as (hits + 1) /
    (draws + 1) (Phipson and Smyth, 2010). 1.0 where none differs. Raises ValueError for values that are not finite.
    """
    moved = _finite(differences)
    moved = moved[np.abs(moved) > SAME]
    count = len(moved)
    if not count:
        return 1.0
    sizes = np.abs(moved)
    found = abs(float(moved.sum())) - SAME * count
    if np.ptp(sizes) <= SAME:
        ahead = max(int((moved > 0).sum()), int((moved < 0).sum()))
        tail = sum(math.comb(count, each) for each in range(ahead, count + 1))
        return min(1.0, float(2 * tail / 2**count))
    if count <= FLIPS_EXACT:
        ways = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
        return float((np.abs((2 * ways - 1) @ sizes) >= found).mean())
    generator = np.random.Generator(np.random.PCG64(SEED))
    step, hits = max(1, INDEXES_MAX // count), 0
    for first in range(0, FLIPS, step):
        signs = generator.integers(0, 2, (min(step, FLIPS - first), count), dtype=np.int8)
        hits += int((np.abs(2 * (signs.astype(np.float64) @ sizes) - sizes.sum()) >= found).sum())
    return (hits + 1) / (FLIPS + 1)


def holm(values: Sequence[float]) -> list[float]:
    """p-values of one family, adjusted so that the chance of any false one stays below the level (Holm, 1979).

    In the given order. The i-th smallest of m is multiplied by m - i + 1 (i from 1), is at least the one before it, and
    at most 1.
    """
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=lambda each: values[each])):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = highest
    return adjusted


def paired_quantile(before: Sequence[float], after: Sequence[float], share: float, draws: Draws) -> Interval | None:
    """The quantile of `after` less that of `before` over the same items, with its paired bootstrap interval.

    share: 0 to 1; between two values the quantile is interpolated. None without items. Raises ValueError for values
    that are not finite and for different lengths.
    """
    old, new = _finite(before), _finite(after)
    if len(old) != len(new):
        raise ValueError(f"pairs are needed: {len(old)} values before and {len(new)} after")
    if not len(old):
        return None
    moved = [
        np.quantile(new[part], share, axis=1) - np.quantile(old[part], share, axis=1) for part in draws.pieces(len(old))
    ]
    mean = float(np.quantile(new, share) - np.quantile(old, share))
    return interval_of(mean, np.concatenate(moved), len(old))


def auroc(scores: Sequence[float], positive: Sequence[bool]) -> float | None:
    """The share of (positive, negative) pairs in which the positive one scores higher; ties count half.

    None when there is no positive or no negative.
    """
    numbers, is_positive = _finite(scores), np.asarray(positive, dtype=bool)
    count, others = int(is_positive.sum()), int((~is_positive).sum())
    if not count or not others:
        return None
    return float((_mean_ranks(numbers)[is_positive].sum() - count * (count + 1) / 2) / (count * others))


def rmse(predicted: Sequence[float], true: Sequence[float]) -> float | None:
    """The root of the mean squared error; None for no value."""
    errors = _finite(predicted) - _finite(true)
    return float(np.sqrt((errors**2).mean())) if len(errors) else None


def pearson(first: Sequence[float], second: Sequence[float]) -> float | None:
    """None for fewer than two pairs or when one side never changes."""
    left, right = _finite(first), _finite(second)
    return None if len(left) < 2 or left.std() == 0 or right.std() == 0 else float(np.corrcoef(left, right)[0, 1])


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's of the ranks; ties share their mean rank."""
    return pearson(list(_mean_ranks(_finite(first))), list(_mean_ranks(_finite(second))))


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
    _, positions, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Numbers = (last - (counts - 1) / 2)[positions]
    return ranks


def judge_difference(
    difference: Interval | None, moved: int, *, higher_is_better: bool = True, relevant: float = 0.0
) -> Verdict:
    """The word for a mean difference (after - before). moved: questions whose score differs at all.

    "same": none differs. "noise": the interval holds zero. "few": it does not, and yet so few questions moved that
    chance alone often moves as many one way (see MOVED_MIN). "small": enough did, by less than `relevant` in the mean.
    "unscored": there is no pair.
    """
    if difference is None:
        return "unscored"
    if not moved:
        return "same"
    if not difference.excludes_zero:
        return "noise"
    if moved < MOVED_MIN:
        return "few"
    if abs(difference.mean) < relevant:
        return "small"
    return "improved" if (difference.mean > 0) == higher_is_better else "regressed"


class ResampledMeans:
    """The weighted means of many columns over the same draws: each interval, and each difference, at once.

    A paired bootstrap (percentile method, Efron 1979): questions are drawn with replacement, all runs' scores of a
    question together and its weight with them, so that a difference is that of weighted means of the same questions.

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


LABELS_MIN = 8  # of a group that is not labelled whole: with fewer the interval holds most of 0 to 1
PSEUDO_LABELS = 4.0


@dataclass(frozen=True, slots=True)
class Anchored:
    """The estimate with its 95 % interval, all 0 to 1. labels: how many it rests on, of `answers`."""

    value: float
    low: float
    high: float
    labels: int
    answers: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Part:
    """One group. value: the estimate; center: the middle of its interval; reach: half of its length."""

    value: float
    center: float
    reach: float


def anchored_mean(
    judged: Sequence[float],
    labels: Mapping[int, float],
    groups: Sequence[Hashable] | None = None,
    *,
    level: float = LEVEL,
) -> Anchored | None:
    """judged: the judge's score of each answer; labels: index into it -> what people say; all 0 to 1.

    groups: one per answer; None makes them one group. None is returned when `missing_labels` says that some are
    missing, and for no answer. With all answers labelled it is their mean, and the interval has no length. Raises
    ValueError for numbers outside of 0 to 1 and for an index that no answer has.
    """
    scores = _share_array(judged)
    if strange := sorted(index for index in labels if not 0 <= index < len(scores)):
        raise ValueError(f"labels must name one of {len(scores)} answers, counted from 0, not {strange[0]}")
    if not len(scores) or missing_labels(len(scores), labels, groups):
        return None
    members = _members(len(scores), groups)
    parts = [(len(indexes) / len(scores), _part(scores[indexes], indexes, labels, level)) for indexes in members]
    value = min(1.0, max(0.0, math.fsum(share * part.value for share, part in parts)))
    center = math.fsum(share * part.center for share, part in parts)
    reach = math.sqrt(math.fsum((share * part.reach) ** 2 for share, part in parts))
    low, high = max(0.0, center - reach), min(1.0, center + reach)
    return Anchored(value, min(low, value), max(high, value), len(labels), len(scores))


def missing_labels(answers: int, labels: Mapping[int, float], groups: Sequence[Hashable] | None = None) -> int:
    """How many labels are still needed: each group needs LABELS_MIN, or all of its answers where it has fewer."""
    members = _members(answers, groups)
    return sum(
        max(0, min(LABELS_MIN, len(indexes)) - sum(int(index) in labels for index in indexes)) for indexes in members
    )


def _part(scores: Numbers, indexes: npt.NDArray[np.int64], labels: Mapping[int, float], level: float) -> _Part:
    is_labelled = np.array([int(index) in labels for index in indexes])
    said = _share_array([labels[int(index)] for index in indexes[is_labelled]])
    known = scores[is_labelled]
    count, unlabelled = len(said), 1 - len(said) / len(scores)
    weight = _tune(said, known)
    overall = weight * float(scores.mean())
    rest = said - weight * known
    extra = PSEUDO_LABELS * unlabelled
    middle = 0.5 - weight * float(known.mean())
    center = (float(rest.sum()) + extra * middle) / (count + extra)
    value = overall + float(rest.mean())
    if not unlabelled:
        return _Part(value, value, 0.0)
    spread = float(((rest - center) ** 2).sum()) + extra * (0.25 + (middle - center) ** 2)
    freedom = count + extra - 1
    error = math.sqrt(unlabelled * spread / freedom / (count + extra))
    return _Part(value, overall + center, _student_quantile((1 + level) / 2, freedom) * error)


def _members(answers: int, groups: Sequence[Hashable] | None) -> list[npt.NDArray[np.int64]]:
    names: list[Hashable] = [None] * answers if groups is None else list(groups)
    if len(names) != answers:
        raise ValueError(f"{answers} answers need as many groups, not {len(names)}")
    return [
        np.array([index for index, other in enumerate(names) if other == name], dtype=np.int64)
        for name in dict.fromkeys(names)
    ]


def _tune(said: Numbers, known: Numbers) -> float:
    variance = float(known.var())
    if variance == 0:
        return 0.0
    covariance = float(((said - said.mean()) * (known - known.mean())).mean())
    return min(1.0, max(0.0, covariance / variance))


def _student_quantile(share: float, freedom: float) -> float:
    """Of Student's t, by its expansion around the normal quantile (Abramowitz and Stegun 26.7.5): 0.1 % off at 7."""
    z = NormalDist().inv_cdf(share)
    terms = (z, (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return math.fsum(term / freedom**power for power, term in enumerate(terms))


def _share_array(values: Sequence[float]) -> Numbers:
    numbers = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(numbers).all() and (numbers >= 0).all() and (numbers <= 1).all()):
        raise ValueError("scores and labels must be numbers from 0 to 1")
    return numbers
