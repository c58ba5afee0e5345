"""What an answer is worth against the expected one, 0 to 1: the task measures that eRAG labels documents with."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from evaluation_app.measures.scores import Score, scored, unscorable

Downstream = Callable[[str, Sequence[str]], Score]
NOTHING_EXPECTED = "no expected answer is known"
ARTICLES = re.compile(r"\b(?:a|an|the)\b")


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
