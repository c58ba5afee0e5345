"""Measures of a ranked list against what is relevant, by labels (trec_eval) or by what answers are worth (eRAG).

`ranking` holds ids, best first, each once. `relevant` maps an id to its grade; an id with a grade above 0 is relevant,
one that is missing is not. k cuts the list; a shorter list counts as filled up with irrelevant ids. Where nothing is
known to be relevant no measure but precision and hit could tell two rankings apart, so all are unscorable then.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

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


Effect = Literal["helpful", "neutral", "harmful"]
NO_LABELS = "no document was labelled"
LABEL_THRESHOLD = 0.5
AGGREGATES: Mapping[str, Measure] = {
    "precision": precision,
    "success": hit,
    "map": average_precision,
    "mrr": reciprocal_rank,
    "ndcg": ndcg,
}
Downstream = Callable[[str, Sequence[str]], Score]
NOTHING_EXPECTED = "no expected answer is known"
ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def aggregate(
    labels: Sequence[float], measure: str, k: int | None = None, *, threshold: float = LABEL_THRESHOLD
) -> Score:
    """One figure for a list of labels in rank order (Salemi and Zamani, arXiv 2404.13781).

    Binary labels: the ranking measure over them. Graded ones: precision is their mean, success the greatest, nDCG takes
    them as grades, and MAP and MRR, which know relevant or not, count those of at least `threshold` as relevant. The
    paper has the first two alone for them. k: None for all labels. Fewer labels than k: precision divides by k when
    they are binary, and by how many there are when they are graded. No label: unscorable. Labels of which none is
    relevant: 0.0 (no document helped). Raises ValueError for a label outside [0, 1], k < 1, an unknown measure, or a
    threshold that is not above 0 and at most 1.
    """
    check_labels(labels)
    check_threshold(threshold)
    if measure not in AGGREGATES:
        raise ValueError(f"measure must be one of {', '.join(AGGREGATES)}, not {measure!r}")
    if k is not None and k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    if not labels:
        return unscorable(NO_LABELS)
    if measure in ("precision", "success") and not all(label in (0.0, 1.0) for label in labels):
        first = labels[: k or len(labels)]
        return scored(sum(first) / len(first) if measure == "precision" else max(first))
    grades = [float(label >= threshold) for label in labels] if measure in ("map", "mrr") else labels
    if not any(grades):
        return scored(0.0)
    ids = [str(index) for index in range(len(grades))]
    return AGGREGATES[measure](ids, dict(zip(ids, grades, strict=True)), k or len(grades))


def check_labels(labels: Sequence[float]) -> None:
    """Raises ValueError for a label that is not in [0, 1], NaN included."""
    for label in labels:
        if not 0.0 <= label <= 1.0:
            raise ValueError(f"a label must be between 0 and 1; one is {label!r}")


def check_threshold(threshold: float) -> None:
    """Raises ValueError for what is not above 0 and at most 1, NaN included."""
    if not 0.0 < threshold <= 1.0:
        raise ValueError(f"the threshold of labels must be above 0 and at most 1, not {threshold!r}")


def contribution(alone: float, without: float) -> float:
    """How far an answer from this document alone beats an answer without any: -1 to 1. Below 0 it does harm."""
    check_labels((alone, without))
    return alone - without


def effect(contributed: float, *, margin: float = 0.05) -> Effect:
    """helpful above the margin, harmful below its negative, neutral between."""
    if contributed > margin:
        return "helpful"
    return "harmful" if contributed < -margin else "neutral"


def normal_words(text: str) -> list[str]:
    """Lower case, without punctuation and English articles: how SQuAD compares (Rajpurkar et al. 2016)."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    bare = "".join(" " if unicodedata.category(char)[0] in "PSC" else char for char in folded)
    return ARTICLES.sub(" ", bare).split()


def exact_match(answer: str, expected: Sequence[str]) -> Score:
    """1.0 when the answer's words are those of an expected one, in order. Several expected: the best counts."""
    return _best(answer, expected, lambda message, requested: float(message == requested))


def accuracy(answer: str, expected: Sequence[str]) -> Score:
    """1.0 when the answer begins with the words of an expected label ("Yes, ..." for "yes"), else 0.0."""
    return _best(
        answer, expected, lambda message, requested: float(bool(requested) and message[: len(requested)] == requested)
    )


def contains(answer: str, expected: Sequence[str]) -> Score:
    """1.0 when the words of an expected answer stand in a row in the answer, else 0.0."""
    return _best(answer, expected, lambda message, requested: float(_holds(message, requested)))


def f1(answer: str, expected: Sequence[str]) -> Score:
    """2PR / (P + R) over the words that both hold, each as often as both hold it."""

    def compute(message: list[str], requested: list[str]) -> float:
        same = sum((Counter(message) & Counter(requested)).values())
        return 2 * same / (len(message) + len(requested)) if message and requested else float(message == requested)

    return _best(answer, expected, compute)


def rouge_l(answer: str, expected: Sequence[str]) -> Score:
    """F1 of the longest common subsequence of words (Lin 2004, with beta = 1)."""

    def compute(message: list[str], requested: list[str]) -> float:
        if not message or not requested:
            return float(message == requested)
        return 2 * _common_length(message, requested) / (len(message) + len(requested))

    return _best(answer, expected, compute)


DOWNSTREAM: Mapping[str, Downstream] = {
    "exact_match": exact_match,
    "f1": f1,
    "accuracy": accuracy,
    "rouge_l": rouge_l,
    "contains": contains,
}


def _best(answer: str, expected: Sequence[str], compute: Callable[[list[str], list[str]], float]) -> Score:
    if not expected:
        return unscorable(NOTHING_EXPECTED)
    message = normal_words(answer)
    return scored(max(compute(message, normal_words(text)) for text in expected))


def _holds(message: Sequence[str], requested: Sequence[str]) -> bool:
    """No words are held by no words alone."""
    return f" {' '.join(requested)} " in f" {' '.join(message)} "


def _common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Of the longest common subsequence, in two rows of memory."""
    row = [0] * (len(second) + 1)
    for left in first:
        before = 0
        for index, right in enumerate(second, 1):
            before, row[index] = row[index], before + 1 if left == right else max(row[index], row[index - 1])
    return row[-1]
