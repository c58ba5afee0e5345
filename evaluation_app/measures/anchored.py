"""Anchored scores: the mean that people would give to all answers, from the judge's scores of all and labels of a few.

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
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluation_app.measures.statistics import LEVEL

Numbers = npt.NDArray[np.float64]
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
    scores = _shares(judged)
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
    said = _shares([labels[int(index)] for index in indexes[is_labelled]])
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


def _shares(values: Sequence[float]) -> Numbers:
    numbers = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(numbers).all() and (numbers >= 0).all() and (numbers <= 1).all()):
        raise ValueError("scores and labels must be numbers from 0 to 1")
    return numbers
