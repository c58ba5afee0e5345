"""The built-in reranker: late interaction over the token embeddings of the local model.

Late interaction is Khattab and Zaharia's, "ColBERT", SIGIR 2020: every token of the question is compared with every
token of a text, and the best match of each counts. The local model was trained for whole texts and not for this; that
its tokens serve all the same, and what its cosine and BM25 add, was measured on the training questions of SciFact
(tests/benchmarks/bench_rerank.py finds the weights again).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ragd import minilm
from ragd.embedding import available_cores
from ragd.errors import InvalidInput
from ragd.types import Candidate
from ragd.windows import LONE_SURROGATE, FloatArray, average_windows

HalfArray = npt.NDArray[np.float16]

DEPTH = 32
COSINE_WEIGHT = 0.3
BM25_WEIGHT = 0.05
IDF_MIN = 0.5
CACHED_WINDOWS = 256  # of at most 256 tokens with 384 numbers of 2 bytes: 50 MB
DIGITS = 6  # what is below differs between machines
BEHIND = 0.001


@dataclass(frozen=True, slots=True)
class Parts:
    """What a text's score is made of. best: for each token of the question its best cosine, float64 [tokens].

    held: bool [tokens], whether the text holds that very token. cosine: of the whole texts.
    """

    best: npt.NDArray[np.float64]
    held: npt.NDArray[np.bool_]
    cosine: float


class LateInteraction:
    """Reads the first `depth` candidates; those behind keep their order, each 0.001 below the one before.

    The score, 0 to 1 for any real text, is (maxsim + 0.3 * cosine + 0.05 * bm25) / 1.35.

    maxsim: the mean, over the question's tokens ([CLS] and [SEP] included, of a long question the first 254), of the
    best cosine with any token of the text. A token weighs the root of its idf over the texts read, at least 0.5 under
    the root; [CLS] and [SEP] weigh 1. cosine: of the local model's vectors of question and text, whatever the
    collection's own model is. bm25: the score in the lexical list over the highest among the texts read, 0 for a
    candidate that is not in that list.

    Deterministic for question and candidates. A text longer than 256 tokens is read in windows, never cut. The vectors
    of `cached_windows` windows are kept for this process, by content. `threads` (default: the cores that this process
    may use) windows are computed side by side. `folder` names another place of the model's files. Raises EmbedderError
    when the model is missing or damaged.
    """

    name = "minilm-late-interaction"
    scores_are_probabilities = True

    def __init__(
        self,
        *,
        depth: int = DEPTH,
        threads: int | None = None,
        cached_windows: int = CACHED_WINDOWS,
        folder: Path | None = None,
    ) -> None:
        for name, value, low in (("depth", depth, 1), ("threads", threads, 1), ("cached_windows", cached_windows, 0)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < low):
                raise InvalidInput(f"{name} must be a whole number of at least {low}, not {value!r}", field=name)
        self.depth, self.folder = depth, folder
        self.threads = threads or available_cores()
        self._token_vectors = lru_cache(maxsize=cached_windows)(self._compute)

    def score_candidates(self, query: str, candidates: Sequence[Candidate]) -> list[float]:
        """One score per candidate, in their order; the candidates are given best first. [] for none."""
        read = candidates[: self.depth]
        if not read:
            return []
        parts = self.compare(query, [candidate.text for candidate in read])
        scores = combine(parts, [_bm25(candidate) for candidate in read])
        lowest = min(scores)
        behind = [round(lowest - BEHIND * place, DIGITS) for place in range(1, len(candidates) - len(read) + 1)]
        return scores + behind

    def compare(self, query: str, texts: Sequence[str]) -> list[Parts]:
        """What the model says of each text, in their order."""
        model = minilm.open_model(self.folder)
        asked = model.split_windows(model.tokenize(LONE_SURROGATE.sub("\ufffd", query)))[0]
        query_tokens = model.token_vectors(asked)
        windows = [model.split_windows(model.tokenize(LONE_SURROGATE.sub("\ufffd", text))) for text in texts]
        keys = list(dict.fromkeys(window.tobytes() for of_text in windows for window in of_text))
        with ThreadPoolExecutor(min(self.threads, len(keys) or 1), thread_name_prefix="ragd-rerank") as pool:
            vectors = dict(zip(keys, pool.map(self._token_vectors, keys), strict=True))
        query_units, query_mean = _units(query_tokens), average_windows([query_tokens.mean(axis=0)], [1])
        special = np.asarray([minilm.FIRST_TOKEN, *asked, minilm.LAST_TOKEN])
        return [
            _compare(query_units, query_mean, special, of_text, [vectors[window.tobytes()] for window in of_text])
            for of_text in windows
        ]

    def _compute(self, window: bytes) -> HalfArray:
        """The token embeddings of one window of ids, [CLS] and [SEP] included, not normalised: [length + 2, 384]."""
        ids = np.frombuffer(window, dtype=np.int64)
        return minilm.open_model(self.folder).token_vectors(ids).astype(np.float16)


def combine(
    parts: Sequence[Parts],
    bm25: Sequence[float],
    *,
    cosine_weight: float = COSINE_WEIGHT,
    bm25_weight: float = BM25_WEIGHT,
    idf_min: float = IDF_MIN,
) -> list[float]:
    """The scores of texts from their parts and their BM25 scores, as `LateInteraction` describes. [] for no texts."""
    if not parts:
        return []
    holding = np.sum([part.held for part in parts], axis=0)
    idf = np.log1p((len(parts) - holding + 0.5) / (holding + 0.5))
    weights = np.sqrt(np.maximum(idf, idf_min))
    weights[[0, -1]] = 1.0
    highest = max(bm25) or 1.0
    total = 1.0 + cosine_weight + bm25_weight
    return [
        round(
            float(
                (part.best @ weights / weights.sum() + cosine_weight * part.cosine + bm25_weight * words / highest)
                / total
            ),
            DIGITS,
        )
        for part, words in zip(parts, bm25, strict=True)
    ]


def _compare(
    query_units: FloatArray,
    query_mean: FloatArray,
    query_ids: minilm.TokenIds,
    windows: Sequence[minilm.TokenIds],
    vectors: Sequence[HalfArray],
) -> Parts:
    whole = [window.astype(np.float32) for window in vectors]
    inner = np.concatenate([tokens[1:-1] for tokens in whole])
    tokens = _units(inner if len(inner) else whole[0])
    best = (query_units @ tokens.T).max(axis=1)
    mean = average_windows([window.mean(axis=0) for window in whole], [max(1, len(window)) for window in windows])
    held = np.isin(query_ids, np.concatenate(list(windows)))
    return Parts(best.astype(np.float64), held, float(np.dot(query_mean.astype(np.float64), mean)))


def _units(vectors: FloatArray) -> FloatArray:
    units: FloatArray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return units


def _bm25(candidate: Candidate) -> float:
    place = candidate.ranks.get("lexical")
    return place.score if place else 0.0
