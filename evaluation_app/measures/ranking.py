"""Deterministic measures of a ranked list against what is known to be relevant: the definitions of trec_eval.

`ranking` holds ids, best first, each once. `relevant` maps an id to its grade; an id with a grade above 0 is relevant,
one that is missing is not. k cuts the list; a shorter list counts as filled up with irrelevant ids. Where nothing is
known to be relevant no measure but precision and hit could tell two rankings apart, so all are unscorable then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from evaluation_app.measures.scores import Score, scored, unscorable

Relevant = Mapping[str, float]
Measure = Callable[[Sequence[str], Relevant, int], Score]
NOTHING_RELEVANT = "no relevant id is known"


def precision(ranking: Sequence[str], relevant: Relevant, k: int) -> Score:
    """P@k = |relevant in the first k| / k. Raises ValueError for k < 1 or an id that is there twice."""
    return _measure(ranking, relevant, k, lambda grades, _: sum(grade > 0 for grade in grades) / k)


def recall(ranking: Sequence[str], relevant: Relevant, k: int) -> Score:
    """R@k = |relevant in the first k| / |relevant|."""
    return _measure(ranking, relevant, k, lambda grades, known: sum(grade > 0 for grade in grades) / len(known))


def hit(ranking: Sequence[str], relevant: Relevant, k: int) -> Score:
    """1.0 when the first k hold a relevant id, else 0.0 (success@k)."""
    return _measure(ranking, relevant, k, lambda grades, _: float(any(grade > 0 for grade in grades)))


def reciprocal_rank(ranking: Sequence[str], relevant: Relevant, k: int) -> Score:
    """1 / the rank of the first relevant id, from 1; 0.0 when the first k hold none. Its mean is the MRR@k."""

    def compute(grades: Sequence[float], _: Sequence[float]) -> float:
        return next((1 / rank for rank, grade in enumerate(grades, 1) if grade > 0), 0.0)

    return _measure(ranking, relevant, k, compute)


def average_precision(ranking: Sequence[str], relevant: Relevant, k: int) -> Score:
    """AP@k = sum of P@r over the ranks r <= k that hold a relevant id / |relevant|. Its mean is the MAP@k."""

    def compute(grades: Sequence[float], known: Sequence[float]) -> float:
        result, total = 0, 0.0
        for rank, grade in enumerate(grades, 1):
            if grade > 0:
                result += 1
                total += result / rank
        return total / len(known)

    return _measure(ranking, relevant, k, compute)


def ndcg(ranking: Sequence[str], relevant: Relevant, k: int) -> Score:
    """nDCG@k = DCG / ideal DCG, DCG = sum of grade / log2(rank + 1): linear gain, grades below 0 count as 0.

    The ideal list holds every relevant id by grade, also those that were not retrieved (Järvelin and Kekäläinen 2002).
    """

    def compute(grades: Sequence[float], known: Sequence[float]) -> float:
        return _dcg(grades) / _dcg(sorted(known, reverse=True)[:k])

    return _measure(ranking, relevant, k, compute)


MEASURES: Mapping[str, Measure] = {
    "precision": precision,
    "recall": recall,
    "hit": hit,
    "mrr": reciprocal_rank,
    "map": average_precision,
    "ndcg": ndcg,
}


def _dcg(grades: Sequence[float]) -> float:
    return math.fsum(max(0.0, grade) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def _measure(
    ranking: Sequence[str], relevant: Relevant, k: int, compute: Callable[[Sequence[float], Sequence[float]], float]
) -> Score:
    """compute: (grades of the first k, grades of all relevant ids) -> the value."""
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    if len(set(ranking)) != len(ranking):
        raise ValueError("a ranking must hold each id once")
    if not all(math.isfinite(grade) for grade in relevant.values()):
        raise ValueError("grades must be finite numbers")
    known = [grade for grade in relevant.values() if grade > 0]
    if not known:
        return unscorable(NOTHING_RELEVANT)
    return scored(compute([relevant.get(item, 0.0) for item in ranking[:k]], known))
