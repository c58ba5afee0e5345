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
    return _best(answer, expected, lambda said, wanted: float(said == wanted))


def accuracy(answer: str, expected: Sequence[str]) -> Score:
    """1.0 when the answer begins with the words of an expected label ("Yes, ..." for "yes"), else 0.0."""
    return _best(answer, expected, lambda said, wanted: float(bool(wanted) and said[: len(wanted)] == wanted))


def contains(answer: str, expected: Sequence[str]) -> Score:
    """1.0 when the words of an expected answer stand in a row in the answer, else 0.0."""
    return _best(answer, expected, lambda said, wanted: float(_holds(said, wanted)))


def f1(answer: str, expected: Sequence[str]) -> Score:
    """2PR / (P + R) over the words that both hold, each as often as both hold it."""

    def compute(said: list[str], wanted: list[str]) -> float:
        same = sum((Counter(said) & Counter(wanted)).values())
        return 2 * same / (len(said) + len(wanted)) if said and wanted else float(said == wanted)

    return _best(answer, expected, compute)


def rouge_l(answer: str, expected: Sequence[str]) -> Score:
    """F1 of the longest common subsequence of words (Lin 2004, with beta = 1)."""

    def compute(said: list[str], wanted: list[str]) -> float:
        if not said or not wanted:
            return float(said == wanted)
        return 2 * _common_length(said, wanted) / (len(said) + len(wanted))

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
    said = normal_words(answer)
    return scored(max(compute(said, normal_words(text)) for text in expected))


def _holds(said: Sequence[str], wanted: Sequence[str]) -> bool:
    return f" {' '.join(wanted)} " in f" {' '.join(said)} " if wanted else not said


def _common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Of the longest common subsequence, in two rows of memory."""
    row = [0] * (len(second) + 1)
    for left in first:
        before = 0
        for place, right in enumerate(second, 1):
            before, row[place] = row[place], before + 1 if left == right else max(row[place], row[place - 1])
    return row[-1]
