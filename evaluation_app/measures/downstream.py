"""What an answer is worth against the expected one, 0 to 1: the measures that eRAG labels documents with, and eRAG."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from evaluation_app.measures import ranking
from evaluation_app.measures.scores import Score, scored, unscorable

Effect = Literal["helpful", "neutral", "harmful"]
NO_LABELS = "no document was labelled"
LABEL_THRESHOLD = 0.5
AGGREGATES: Mapping[str, ranking.Measure] = {
    "precision": ranking.precision,
    "success": ranking.hit,
    "map": ranking.average_precision,
    "mrr": ranking.reciprocal_rank,
    "ndcg": ranking.ndcg,
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
