"""What is measured of the sentences of an answer: whether the context holds what they say."""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation_app.judges.protocol import SHORT_WORDS, Numbers, Reading, share_in, stems_in
from retrieval_app.answers.refusals import holds_refusal

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
