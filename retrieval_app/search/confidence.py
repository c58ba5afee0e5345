"""How likely a passage answers a question: four plain features, weighed by coefficients that were fitted on data;
and the action that follows from the scores by the thresholds of a calibration.

Nothing here asks a model but the collection's own embedder, so the same store gives the same scores.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ragd.insight.score_parts import cosine_parts
from ragd.normalization import normalize
from ragd.search.lexical_search import BM25_K1, lexeme_weight
from ragd.store.analysis import query_terms, read_question, text_words
from ragd.store.store import Store
from ragd.types import Candidate, Embedder

FEATURES = ("cosine", "bm25_share", "words", "names")
DECIMALS = 6
STEEPEST = 60.0  # beyond it the logistic function is 0 or 1 to the last digit

NAME = re.compile(r"[^\W_](?:[\w.-]*\w)?")
SPECIAL = re.compile(r"[0-9_A-Z]")

Row = tuple[float, ...]
Action = Literal["correct", "ambiguous", "incorrect"]
ACTIONS: tuple[Action, ...] = ("correct", "ambiguous", "incorrect")


@dataclass(frozen=True, slots=True)
class Weights:
    """P = 1 / (1 + exp(-(intercept + sum of coefficient * (value - mean) / scale))); one entry per feature."""

    intercept: float
    coefficients: Row
    means: Row
    scales: Row

    def probability(self, row: Sequence[float]) -> float:
        """row: the values of FEATURES."""
        terms = zip(row, self.coefficients, self.means, self.scales, strict=True)
        total = self.intercept + math.fsum(factor * (value - mean) / scale for value, factor, mean, scale in terms)
        return round(1 / (1 + math.exp(-min(STEEPEST, max(-STEEPEST, total)))), DECIMALS)

    def as_dict(self) -> dict[str, Any]:
        columns = {"coefficient": self.coefficients, "mean": self.means, "scale": self.scales}
        features = {
            name: {column: values[index] for column, values in columns.items()} for index, name in enumerate(FEATURES)
        }
        return {"intercept": self.intercept, "features": features}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Weights:
        """The reverse of `as_dict`. Raises KeyError or ValueError for what has other features than FEATURES."""
        features = values["features"]
        if set(features) != set(FEATURES):
            raise ValueError(f"weights are of {', '.join(FEATURES)}, not of {', '.join(sorted(features))}")

        def column(name: str) -> Row:
            return tuple(float(features[feature][name]) for feature in FEATURES)

        weights = cls(float(values["intercept"]), column("coefficient"), column("mean"), column("scale"))
        numbers = (weights.intercept, *weights.coefficients, *weights.means, *weights.scales)
        if not all(map(math.isfinite, numbers)) or min(weights.scales) <= 0:
            raise ValueError("weights must be finite numbers, scales above 0")
        return weights


class Measured:
    """One question to a store, and what is measured of passages for it.

    cosine: of the embeddings of question and text, from -1 to 1. bm25_share: BM25 of the text without regard to its
    length (b = 0) over the highest that the question allows; words that no chunk holds count there with the idf of the
    rarest. words: the share of the question's words that the text holds. names: the share of its names and numbers
    that stand in the text as written; 1.0 where it has none. The three are from 0 to 1; bm25_share and words are 0.0
    for a question of stop words alone. The words are those of the collection's language; a text is read with its title
    and headings.
    """

    def __init__(self, query: str, store: Store) -> None:
        self.store = store
        self.query = normalize(query).strip()
        self._question = read_question(self.query, store)
        terms = query_terms(self._question, store)
        state = store.state()
        self._idf: dict[str, float] = {}  # in the configuration where most chunks hold it: a passage may be of any
        for each in sorted(terms, key=lambda term: -term.chunks):
            self._idf.setdefault(each.lexeme, lexeme_weight(self._question, each, state))
        self._names = special_words(self.query)
        self._vector: np.ndarray | None = None

    def of_candidates(self, candidates: Sequence[Candidate]) -> list[Row]:
        """FEATURES of each candidate; its cosine is the stored vector's. Needs the candidates' chunk_id."""
        return self._rows([item.text for item in candidates], self._stored_cosines(candidates))

    def of_texts(self, texts: Sequence[str]) -> list[Row]:
        """FEATURES of texts that are stored nowhere: they are embedded."""
        if not texts:
            return []
        vectors = [_unit(vector) for vector in _embedder(self.store).embed(list(texts))]
        return self._rows(texts, [float(vector @ self.vector) for vector in vectors])

    @property
    def vector(self) -> np.ndarray:
        """The question's unit vector, embedded when it is first wanted."""
        if self._vector is None:
            self._vector = _unit(_embedder(self.store).embed_query(self.query))
        return self._vector

    def _stored_cosines(self, candidates: Sequence[Candidate]) -> list[float]:
        known = {item.key: item.ranks["vector"].score for item in candidates if "vector" in item.ranks}
        others = [item.chunk_id for item in candidates if item.key not in known and item.chunk_id is not None]
        parts = cosine_parts(self.vector.tolist(), others, self.store) if others else {}
        for item in candidates:
            if item.key not in known:
                value = parts.get(item.chunk_id) if item.chunk_id is not None else None
                known[item.key] = value.cosine if value else 0.0
        return [known[item.key] for item in candidates]

    def _rows(self, texts: Sequence[str], cosines: Sequence[float]) -> list[Row]:
        words_by_text = self._words_of(texts)
        highest = math.fsum(self._idf.values()) * (BM25_K1 + 1)
        rows: list[Row] = []
        for index, (text, cosine) in enumerate(zip(texts, cosines, strict=True), 1):
            words = words_by_text.get(index, [])
            bm25 = math.fsum(self._idf[word] * often * (BM25_K1 + 1) / (often + BM25_K1) for word, often in words)
            rows.append(
                (
                    float(cosine),
                    bm25 / highest if highest else 0.0,
                    len(words) / len(self._idf) if self._idf else 0.0,
                    sum(name in text for name in self._names) / len(self._names) if self._names else 1.0,
                )
            )
        return rows

    def _words_of(self, texts: Sequence[str]) -> dict[int, list[tuple[str, int]]]:
        """The place of a text from 1 -> (lexeme of the question, how often it stands there), by lexeme."""
        result: dict[int, list[tuple[str, int]]] = {}
        for position, lexeme, often in sorted(text_words(texts, list(self._idf), self._question, self.store)):
            result.setdefault(position, []).append((lexeme, often))
        return result


def special_words(question: str) -> tuple[str, ...]:
    """The names and numbers of a question, each once, in order: words with a digit, a capital or an underscore.

    The first word counts only if it has one behind its first character: any word may begin a sentence.
    """
    words = NAME.findall(question)
    chosen = [word for index, word in enumerate(words) if SPECIAL.search(word if index else word[1:])]
    return tuple(dict.fromkeys(chosen))


def _embedder(store: Store) -> Embedder:
    if store.embedder is None:
        raise ValueError("passages are measured by their meaning too, and this store has no embedder")
    return store.embedder


def _unit(vector: Any) -> np.ndarray:
    numbers = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(numbers))
    return numbers / length if length else numbers


@dataclass(frozen=True, slots=True)
class Rule:
    """weights: of the evaluator. upper, lower: probabilities, lower at most upper.

    None: the data that it was calibrated on gave no such threshold, and nothing is ever called correct (incorrect).
    """

    weights: Weights
    upper: float | None
    lower: float | None

    def __post_init__(self) -> None:
        if self.upper is not None and self.lower is not None and self.lower > self.upper:
            raise ValueError(f"lower must be at most upper ({self.upper}), not {self.lower}")

    def action(self, scores: Sequence[float]) -> Action:
        """Any score at or above upper: correct; all below lower: incorrect; else ambiguous. No score: incorrect."""
        best = max(scores, default=None)
        if best is None:
            return "incorrect"
        if self.upper is not None and best >= self.upper:
            return "correct"
        return "incorrect" if self.lower is not None and best < self.lower else "ambiguous"

    def is_weak(self, score: float) -> bool:
        """Whether a passage of this score is left out where passages are filtered."""
        return self.lower is not None and score < self.lower
