"""What is measured of sentences before a judge weighs it: meaning, words, names, numbers, negation and place.

Two tables per case: one row per sentence of the context (CONTEXT_NAMES), one per sentence of the answer (ANSWER_NAMES).
Shares and cosines are plain numbers, counts are taken as log(1 + count). A text without words has shares of 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evaluation_app.judges.answer_features import COLUMNS, answer_table
from evaluation_app.judges.protocol import SHORT_WORDS, Case, Numbers, Reading, share_in
from evaluation_app.judges.refutations import Refutation, refute
from retrieval_app.answers.refusals import holds_refusal

BM25_K1, BM25_B = 1.2, 0.75
MEANING = 0.7


@dataclass(frozen=True, slots=True)
class Features:
    """context: (sentences of the context, CONTEXT_NAMES). answer: (sentences of the answer, ANSWER_NAMES). Finite.

    documents: for each sentence of the context the place of its document among those that have sentences, rising.
    nearest: for each sentence of the answer the place of the context's sentence that means most the same; the first of
    equals; empty without context. refuted: for each sentence of the answer what the context has against it, None for
    nothing. addressed: see `_addressed`.
    """

    context: Numbers
    answer: Numbers
    documents: npt.NDArray[np.int64]
    nearest: npt.NDArray[np.int64]
    refuted: Sequence[Refutation | None]
    addressed: float


def measure_case(case: Case, vectors: Mapping[str, npt.ArrayLike]) -> Features:
    """vectors: a unit vector for each of `texts_of`. Raises KeyError for a text that has none."""
    reading = Reading.of(case, vectors)
    nearest = np.zeros(0, dtype=np.int64)
    if reading.texts and reading.answer:
        nearest = np.argmax(reading.vectors @ reading.answer_vectors.T, axis=0).astype(np.int64)
    refuted = [refute(each, case.context, case.cited.get(each.key, ()), case.question) for each in case.answer]
    return Features(
        context_table(reading), answer_table(reading), reading.documents, nearest, refuted, _addressed(reading)
    )


def _addressed(reading: Reading) -> float:
    """How far the answer speaks of what the question asks, 0 to 1, from these two alone:

    MEANING * (highest cosine of one of its sentences with the question, at least 0)
    + (1 - MEANING) * (share of the question's content words that it holds).
    Only the first part, whole, for a question without content words. 0 without an answer.
    """
    if not reading.answer:
        return 0.0
    meaning = float(np.clip((reading.answer_vectors @ reading.question_vector).max(), 0.0, 1.0))
    question_words = set(reading.question_words)
    message = {word for line in reading.answer_words for word in line}
    return MEANING * meaning + (1 - MEANING) * share_in(question_words, message) if question_words else meaning


CONTEXT_NAMES = tuple(COLUMNS["context"])
NEAR = 8.0  # how fast nearness to the best one falls: exp(-NEAR * cosine behind it)


def context_table(reading: Reading) -> Numbers:
    """(sentences of the context, CONTEXT_NAMES)."""
    number = len(reading.texts)
    if not number:
        return np.zeros((0, len(CONTEXT_NAMES)))
    documents = reading.documents
    cosines = reading.vectors @ reading.question_vector
    best, means = _per_document(cosines, documents)
    centre_cosines = _unit_rows(_sum_rows(reading.vectors, documents)) @ reading.question_vector
    bm25 = _bm25(reading)
    closest = (reading.vectors @ reading.answer_vectors.T).max(axis=1) if reading.answer else np.zeros(number)
    answer_best, _ = _per_document(closest, documents)
    position = _places(documents)
    answers = [set(line) for line in reading.answer_words] or [set()]
    lines = [set(line) for line in reading.words]
    spoken = set().union(*answers)
    size = np.array([len(line) for line in reading.words], dtype=np.float64)
    similarities = reading.answer_vectors @ reading.question_vector
    columns: dict[str, Numbers | float] = {
        "question_cosine": cosines,
        "question_rank": _ranks(cosines) / number,
        "question_behind_best": cosines.max() - cosines,
        "question_bm25": bm25,
        "question_bm25_behind_best": bm25.max() - bm25,
        "document_best": best[documents],
        "document_mean": means[documents],
        "document_cosine": centre_cosines[documents],
        "document_best_behind": best.max() - best[documents],
        "document_cosine_behind": centre_cosines.max() - centre_cosines[documents],
        "before_question_cosine": np.r_[cosines[:1], cosines[:-1]],
        "after_question_cosine": np.r_[cosines[1:], cosines[-1:]],
        "question_best": float(cosines.max()),
        "question_mean": float(cosines.mean()),
        "opens_document": (position == 0).astype(np.float64),
        "place": np.log1p(position),
        "sentences": math.log(number),
        "documents": math.log(documents[-1] + 1),
        "words": np.log1p(size),
        "is_short": (size < SHORT_WORDS).astype(np.float64),
        "answer_cosine": closest,
        "answer_rank": _ranks(closest) / number,
        "answer_behind_best": closest.max() - closest,
        "words_in_answer": np.array([share_in(line, spoken) for line in lines]),
        "covers_answer": np.array([max(share_in(answer, line) for answer in answers) for line in lines]),
        "jaccard_answer": np.array([max(_jaccard(line, answer) for answer in answers) for line in lines]),
        "document_answer_best": answer_best[documents],
        "document_answer_behind": answer_best.max() - answer_best[documents],
        "before_answer_cosine": np.r_[closest[:1], closest[:-1]],
        "after_answer_cosine": np.r_[closest[1:], closest[-1:]],
        "answer_sentences": math.log1p(len(reading.answer)),
        "answer_refuses": float(any(map(holds_refusal, reading.answer))),
        "answer_words": math.log1p(sum(map(len, reading.answer_words))),
        "answer_question_cosine": float(similarities.max()) if len(similarities) else 0.0,
        "question_and_answer": cosines * closest,
        "near_best_question": np.exp(-NEAR * (cosines.max() - cosines)),
        "near_best_answer": np.exp(-NEAR * (closest.max() - closest)),
        "near_best_document": np.exp(-NEAR * (best.max() - best[documents])),
        "near_best_document_answer": np.exp(-NEAR * (answer_best.max() - answer_best[documents])),
        "one_in_sentences": 1 / number,
    }
    return np.stack([np.broadcast_to(columns[name], (number,)) for name in CONTEXT_NAMES], axis=1).astype(np.float64)


def _bm25(reading: Reading) -> Numbers:
    """BM25 of each sentence among those of the case, divided by the highest that the question allows."""
    requested = sorted(set(reading.question_words) & reading.idf.keys())
    highest = math.fsum(reading.idf[word] for word in requested) * (BM25_K1 + 1)
    sizes = np.array([len(line) for line in reading.words], dtype=np.float64)
    mean = max(1.0, float(sizes.mean()))
    scores = np.zeros(len(reading.words))
    for row, line in enumerate(reading.words):
        counts = Counter(line)
        norm = BM25_K1 * (1 - BM25_B + BM25_B * sizes[row] / mean)
        scores[row] = math.fsum(
            reading.idf[word] * counts[word] * (BM25_K1 + 1) / (counts[word] + norm)
            for word in requested
            if counts[word]
        )
    return scores / highest if highest else scores


def _jaccard(one: Set[str], other: Set[str]) -> float:
    union = len(one | other)
    return len(one & other) / union if union else 0.0


def _ranks(values: Numbers) -> Numbers:
    """0 for the highest; equal values in their order."""
    ranks = np.empty(len(values))
    ranks[np.argsort(-values, kind="stable")] = np.arange(len(values))
    return ranks


def _places(documents: npt.NDArray[np.int64]) -> Numbers:
    """The place of each sentence in its document, from 0."""
    starts = np.searchsorted(documents, documents)
    return (np.arange(len(documents)) - starts).astype(np.float64)


def _sum_rows(table: Numbers, documents: npt.NDArray[np.int64]) -> Numbers:
    total = np.zeros((int(documents[-1]) + 1, table.shape[1]))
    np.add.at(total, documents, table)
    return total


def _per_document(values: Numbers, documents: npt.NDArray[np.int64]) -> tuple[Numbers, Numbers]:
    """(highest, mean) of each document's values."""
    highest = np.full(int(documents[-1]) + 1, -np.inf)
    np.maximum.at(highest, documents, values)
    return highest, _sum_rows(values[:, None], documents)[:, 0] / np.bincount(documents)


def _unit_rows(table: Numbers) -> Numbers:
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    unit: Numbers = table / np.where(lengths > 0, lengths, 1.0)
    return unit
