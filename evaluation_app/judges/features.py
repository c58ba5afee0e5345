"""What is measured of sentences before a judge weighs it, and whether the context holds what an answer says.

Two tables per case: one row per sentence of the context (CONTEXT_NAMES), one per sentence of the answer (ANSWER_NAMES).
Shares and cosines are plain numbers, counts are taken as log(1 + count). A text without words has shares of 0.
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from evaluation_app.judges.protocol import SHORT_WORDS, Case, Numbers, Reading, Refutation, refute, share_in, stems_in
from retrieval_app.answers.protocol import holds_refusal

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# A capital that opens no sentence: most names, few other words.
NAME = re.compile(r"(?<![.!?]\s)(?<!^)\b[A-Z][\w-]+")
NEGATION = re.compile(
    r"\b(?:not|no|never|none|neither|nor|cannot|without|unable|fail\w*|lack\w*|\w+n['\u2019]t)\b", re.IGNORECASE
)

OPPOSITES = (
    ("increase", "decrease"), ("increases", "decreases"), ("increased", "decreased"), ("higher", "lower"),
    ("before", "after"), ("more", "less"), ("first", "last"), ("always", "never"), ("above", "below"),
    ("larger", "smaller"), ("older", "younger"), ("high", "low"), ("positive", "negative"), ("left", "right"),
    ("up", "down"), ("open", "close"), ("north", "south"), ("east", "west"), ("enable", "disable"),
)  # fmt: skip
OPPOSITE = {one: other for pair in OPPOSITES for one, other in (pair, pair[::-1])}
WORD = re.compile(r"\w+")

COLUMNS: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("columns.toml").read_text(encoding="utf-8"))
SUPPORT_NAMES, FACT_NAMES = tuple(COLUMNS["support"]), tuple(COLUMNS["fact"])
ANSWER_NAMES = SUPPORT_NAMES + FACT_NAMES


def answer_table(reading: Reading) -> Numbers:
    """(sentences of the answer, ANSWER_NAMES); rows of 0 without context.

    The sentence of the context that is nearest by meaning is `nearest`; the one that holds most words, `best`.
    """
    if not reading.answer or not reading.texts:
        return np.zeros((len(reading.answer), len(ANSWER_NAMES)))
    cosines = reading.vectors @ reading.answer_vectors.T
    everything = _Context.of(reading)
    similarities = reading.answer_vectors @ reading.question_vector
    context_best = float((reading.vectors @ reading.question_vector).max())
    rows = []
    for index, text in enumerate(reading.answer):
        row = _sentence_row(reading, everything, index, cosines[:, index])
        row |= {
            "question_cosine": float(similarities[index]),
            "refuses": float(holds_refusal(text)),
            "place": index / max(1, len(reading.answer) - 1),
            "is_last": float(index == len(reading.answer) - 1 and index > 0),
            "is_first": float(index == 0),
            "sentences": math.log1p(len(reading.answer)),
            "context_question_best": context_best,
            "announces": float(text.rstrip().endswith(":")),
        }
        rows.append([row[name] for name in ANSWER_NAMES])
    return np.asarray(rows, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Context:
    """All of the context together. lines and full: content words and all words of each sentence; low: the sentences in
    lower case; words: with stop words; pairs: neighbours; text: in lower case."""

    lines: list[frozenset[str]]
    full: list[tuple[str, ...]]
    low: list[str]
    content: frozenset[str]
    words: frozenset[str]
    question_words: frozenset[str]
    pairs: frozenset[tuple[str, str]]
    numbers: frozenset[str]
    text: str

    @classmethod
    def of(cls, reading: Reading) -> _Context:
        full = [stems_in(text, with_stop_words=True) for text in reading.texts]
        joined = " ".join(reading.texts)
        return cls(
            lines=[frozenset(line) for line in reading.words],
            full=full,
            low=[text.lower() for text in reading.texts],
            content=frozenset(word for line in reading.words for word in line),
            words=frozenset(word for line in full for word in line),
            question_words=frozenset(stems_in(reading.question, with_stop_words=True)),
            pairs=frozenset(pair for line in full for pair in itertools.pairwise(line)),
            numbers=frozenset(NUMBER.findall(joined)),
            text=joined.lower(),
        )


def _sentence_row(reading: Reading, everything: _Context, index: int, cosines: Numbers) -> dict[str, float]:
    text, words = reading.answer[index], frozenset(reading.answer_words[index])
    order = np.argsort(-cosines, kind="stable")
    nearest = int(order[0])
    shares = [len(words & line) / max(1, len(words)) for line in everything.lines]
    best = int(np.argmax(shares))
    full = stems_in(text, with_stop_words=True)
    numbers, names = NUMBER.findall(text), [name.lower() for name in NAME.findall(text)]
    beside = set(NUMBER.findall(f"{reading.texts[nearest]} {reading.texts[best]}"))
    strange = [name for name in names if name not in everything.text]
    negates, source_negates = (bool(NEGATION.search(line)) for line in (text, reading.texts[nearest]))
    near = frozenset(word for number in order[:3] for word in everything.lines[number])
    known = everything.words | everything.question_words
    return {
        "cosine_best": float(cosines[nearest]),
        "cosine_best_three": float(cosines[order[:3]].mean()),
        "words_in_context": share_in(words, everything.content),
        "words_in_context_or_question": share_in(words, known),
        "words_in_best_sentence": shares[best],
        "words_in_nearest_three": share_in(words, near),
        "words_in_nearest": share_in(words, everything.lines[nearest]),
        "pairs_in_context": share_in(itertools.pairwise(full), everything.pairs),
        "unknown_numbers": math.log1p(sum(number not in everything.numbers for number in numbers)),
        "numbers_not_beside": math.log1p(sum(number not in beside for number in numbers)),
        "has_number": float(bool(numbers)),
        "unknown_names": math.log1p(len(strange)),
        "share_of_unknown_names": len(strange) / max(1, len(names)),
        "unknown_words": math.log1p(len(words - known)),
        "weighted_words_in_context": _weighted_share(reading, words),
        "negates": float(negates),
        "negation_differs": float(negates != source_negates),
        "words": math.log1p(len(reading.answer_words[index])),
        "is_short": float(len(words) < SHORT_WORDS),
        **_fact_row(reading, everything, index, np.asarray(shares), nearest),
    }


def _fact_row(reading: Reading, everything: _Context, index: int, shares: Numbers, nearest: int) -> dict[str, float]:
    """FACT_NAMES. shares: of the sentence's words in each sentence of the context.

    A number, name or word is behind the best by how much less of the sentence's words the sentence of the context holds
    that holds it and most of them: what was put in from elsewhere stands among other words.
    """
    text, words = reading.answer[index], frozenset(reading.answer_words[index])
    best = int(np.argmax(shares))
    highest = float(shares[best])
    order = np.argsort(-shares, kind="stable")
    held: dict[str, float] = {}
    for line in order:
        for word in words & everything.lines[line]:
            held.setdefault(word, float(shares[line]))
    support = {word: held.get(word, 0.0) for word in sorted(words)}

    def behind(strings: Sequence[str]) -> float:
        """Of the one that is furthest behind, 0 or less."""
        found = [next((float(shares[line]) for line in order if one in everything.low[line]), 0.0) for one in strings]
        return min(found, default=highest) - highest

    names = [name.lower() for name in NAME.findall(text)]
    beside = f"{everything.low[best]} {everything.low[nearest]}"
    full = stems_in(text, with_stop_words=True)
    spoken = WORD.findall(text.lower())
    opposed = any(word not in beside and OPPOSITE[word] in beside for word in spoken if word in OPPOSITE)
    negations = [len(NEGATION.findall(line)) for line in (text, reading.texts[best])]
    return {
        "names_not_beside": math.log1p(sum(name not in beside for name in names)),
        "number_behind_best": behind(NUMBER.findall(text)),
        "name_behind_best": behind(names),
        "word_behind_best": min(support.values(), default=1.0) - highest,
        "rare_word_behind_best": max(
            (reading.idf.get(word, reading.unseen_idf) * (highest - share) for word, share in support.items()),
            default=0.0,
        ),
        "word_support": float(np.mean(list(support.values()))) if support else 1.0,
        "words_not_beside": math.log1p(len(words - everything.lines[best] - everything.lines[nearest])),
        "negations_differ": float(negations[0] != negations[1]),
        "opposite_beside": float(opposed),
        "all_words_in_best_sentence": share_in(set(full), set(everything.full[best])),
        "pairs_in_best_sentence": share_in(
            set(itertools.pairwise(full)), set(itertools.pairwise(everything.full[best]))
        ),
    }


def _weighted_share(reading: Reading, words: Set[str]) -> float:
    """The share of the words that the context holds, each weighted by its rarity there. 1.0 without words."""
    weights = {word: reading.idf.get(word, reading.unseen_idf) for word in words}
    total = math.fsum(weights.values())
    return math.fsum(weight for word, weight in weights.items() if word in reading.idf) / total if total else 1.0


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
