"""The built-in reranker: late interaction over the token embeddings of the local model.

Late interaction is Khattab and Zaharia's, "ColBERT", SIGIR 2020: every token of the question is compared with every
token of a text, and the best match of each counts. The local model was trained for whole texts and not for this; that
its tokens serve all the same, and what its cosine and BM25 add, was measured on the training questions of SciFact
(benchmarks/bench_rerank.py finds the weights again). A text's tokens are read as they are packed,
whether they were stored with the chunk or are made for the question, so that both give the same score.

What the built-in reranker reads of a text, in at most 8,000 bytes: its token vectors as signs.

The vectors of equal word pieces are pooled: their mean stands for all, which changes next to nothing. A vector is kept
as the signs of what it has beside the text's mean, turned at random, and one factor, as in RaBitQ (Gao and Long,
"RaBitQ", SIGMOD 2024); a question's vectors stay whole. A text of many word pieces has fewer signs for each: the first
of the turned numbers, which stand for the others. With SIGNS_MIN left, neighbours that are alike are pooled too (after
Clavie, Chaffin and Adams, "Reducing the footprint of multi-vector retrieval with minimal performance impact", 2024).

    letters   3 x uint16      of the text, by which `judge_readable` judges (HEADER_BYTES)
    sizes     3 x uint16      distinct token ids, vectors, bytes of signs of each vector
    scales    2 x float32     of the mean's numbers, of the mean as the centre of the vectors
    mean      384 x int8      the text's unit vector, in steps of its scale
    ids       ids x uint16    distinct word pieces, ascending
    factors   vectors x float16
    signs     vectors x bytes most significant bit first; 1: not below zero

All little-endian. The same text gives the same bytes, whatever is encoded beside it, on one kind of processor.
"""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ragd.models import minilm
from ragd.models.graph_folder import available_cores
from ragd.text.languages import Letters, judge_readable
from ragd.text.windows import LONE_SURROGATE, FloatArray, average_windows
from ragd.types import Candidate, Embedder, Vector, check_at_least

BYTES_MAX = 8000
_LETTERS = struct.Struct("<3H")
_FIXED = struct.Struct("<3H2f")
HEADER_BYTES = _LETTERS.size
SIGNS_MIN = 192  # of a vector
_ROOM = BYTES_MAX - HEADER_BYTES - _FIXED.size - minilm.DIMS  # for ids and vectors
_IDS_MAX = _ROOM // 2 // 2  # half of it
_MEAN_STEPS = 127


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """ids: distinct, ascending. mean: the text's unit vector, float32 [384]. The cosine of a unit vector q with vector
    j is about centre * q @ mean + factors[j] * turn(q)[:n] @ signs[j], signs being +1 and -1, float32 [vectors, n]."""

    ids: npt.NDArray[np.int64]
    mean: FloatArray
    centre: float
    factors: FloatArray
    signs: FloatArray


@runtime_checkable
class TokenEmbedder(Protocol):
    """An Embedder whose texts are to be stored with their token vectors."""

    def embed_with_tokens(self, texts: Sequence[str]) -> list[tuple[Vector, bytes]]:
        """`embed`, each vector with the packed token vectors of its text."""


def embed_texts(texts: Sequence[str], embedder: Embedder) -> Sequence[tuple[Vector, bytes | None]]:
    """The vector of each text, with its packed token vectors where the embedder is one for these."""
    if isinstance(embedder, TokenEmbedder):
        return embedder.embed_with_tokens(texts)
    return [(vector, None) for vector in embedder.embed(texts)]


def encode_texts(texts: Sequence[str], threads: int, folder: Path | None = None) -> list[bytes]:
    """The packed token vectors of each text, as LocalTokenEmbedder gives them. EmbedderError when the model is missing
    or damaged."""
    if not texts:
        return []
    accepted = [LONE_SURROGATE.sub("\ufffd", text) for text in texts]
    encoded = encode_windows(split_texts(accepted, folder), threads, folder)
    return [encoded[text][1] for text in accepted]


def split_texts(texts: Sequence[str], folder: Path | None = None) -> dict[str, list[minilm.TokenIds]]:
    """What the model will read, by text; an equal text once."""
    model = minilm.open_model(folder)
    return {text: model.split_windows(model.tokenize(text)) for text in dict.fromkeys(texts)}


def encode_windows(
    windows: Mapping[str, Sequence[minilm.TokenIds]], threads: int, folder: Path | None = None
) -> dict[str, tuple[FloatArray, bytes]]:
    """By text its unit vector, as LocalEmbedder gives it, and its packed token vectors, from one pass.

    windows: of `split_texts`.
    """
    model = minilm.open_model(folder)
    encoded = iter(model.encode([window for of_text in windows.values() for window in of_text], threads))
    letters = model.count_letters(list(windows))
    results = {}
    for (text, of_text), its_letters in zip(windows.items(), letters, strict=True):
        means, states = zip(*(next(encoded) for _ in of_text), strict=True)
        vector = average_windows(means, [len(window) for window in of_text])
        results[text] = vector, pack(its_letters, of_text, states, vector)
    return results


def pack(
    letters: Letters, windows: Sequence[minilm.TokenIds], states: Sequence[FloatArray], vector: FloatArray
) -> bytes:
    """The bytes of a text. states: the token embeddings of each window, [CLS] and [SEP] included; these two are left
    out unless there are no others. vector: the text's unit vector."""
    ids, units = _pool_equal(windows, states)
    kept = ids[:_IDS_MAX].astype("<u2")
    room = _ROOM - kept.nbytes
    units = _pool_alike(units, room // (2 + SIGNS_MIN // 8))
    size = min(minilm.DIMS // 8, room // len(units) - 2)
    step = np.float32(np.abs(vector).max() / _MEAN_STEPS)
    mean = np.rint(vector / step).astype(np.int8)
    whole = mean * step
    centre = np.float32((units @ whole).mean() / (whole @ whole))
    rest = units - centre * whole
    turned = turn(rest)[:, : size * 8]
    factors = np.einsum("ij,ij->i", rest, rest) / np.maximum(np.abs(turned).sum(axis=1), 1e-12)
    return b"".join(
        (
            _LETTERS.pack(letters.lost, letters.broken, letters.count),
            _FIXED.pack(len(kept), len(units), size, step, centre),
            mean.tobytes(),
            kept.tobytes(),
            factors.astype("<f2").tobytes(),
            np.packbits(turned >= 0, axis=1).tobytes(),
        )
    )


def read_letters(packed: bytes) -> Letters:
    """Of the packed bytes, of which the first HEADER_BYTES are enough."""
    return Letters(*_LETTERS.unpack_from(packed))


def unpack(packed: bytes) -> TokenVectors:
    ids_count, count, size, step, centre = _FIXED.unpack_from(packed, HEADER_BYTES)
    place = HEADER_BYTES + _FIXED.size
    mean = np.frombuffer(packed, np.int8, minilm.DIMS, place) * np.float32(step)
    place += minilm.DIMS
    ids = np.frombuffer(packed, "<u2", ids_count, place).astype(np.int64)
    place += 2 * ids_count
    factors = np.frombuffer(packed, "<f2", count, place).astype(np.float32)
    place += 2 * count
    signs = np.frombuffer(packed, np.uint8, count * size, place)
    return TokenVectors(ids, mean, centre, factors, _SIGNS[signs].reshape(count, 8 * size))


# the eight signs of each byte
_SIGNS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32) * 2 - 1


def turn(vectors: FloatArray) -> FloatArray:
    """Vectors [n, 384] turned at random, always alike: products stay, and no number says more than another."""
    turned: FloatArray = vectors @ _turning().T
    return turned


@cache
def _turning() -> FloatArray:
    """Twice: signs at random, then a Hadamard matrix over 128 numbers at a time, then a reflection over these three."""
    hadamard = np.ones((1, 1))
    while len(hadamard) < minilm.DIMS // 3:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    mixing = np.kron(np.eye(3) - 2 / 3, hadamard / np.sqrt(len(hadamard)))
    turning = np.eye(minilm.DIMS)
    for name in (b"first", b"second"):
        bits = np.unpackbits(np.frombuffer(hashlib.shake_256(name).digest(minilm.DIMS // 8), np.uint8))
        turning = mixing @ (turning * np.where(bits, 1.0, -1.0)[:, None])
    return turning.astype(np.float32)


def _pool_equal(windows: Sequence[minilm.TokenIds], states: Sequence[FloatArray]) -> tuple[minilm.TokenIds, FloatArray]:
    """The distinct ids of a text, ascending, and of each the unit vector of the mean of its tokens' unit vectors; of a
    text without ids those of [CLS] and [SEP]."""
    ids = np.concatenate(windows)
    if not len(ids):
        return ids, unit_rows(states[0])
    units = unit_rows(np.concatenate([of_window[1:-1] for of_window in states]))
    order = np.argsort(ids, kind="stable")
    distinct, starts = np.unique(ids[order], return_index=True)
    return distinct, unit_rows(np.add.reduceat(units[order], starts, axis=0))


def _pool_alike(units: FloatArray, most: int) -> FloatArray:
    """At most so many vectors: rounds in which neighbours that are most alike, each at most once, are added up."""
    while len(units) > most:
        alike = np.einsum("ij,ij->i", units[:-1], units[1:])
        free = [True] * len(units)
        firsts: list[int] = []
        for first in np.argsort(-alike, kind="stable").tolist():
            if free[first] and free[first + 1]:
                free[first] = free[first + 1] = False
                firsts.append(first)
                if len(units) - len(firsts) == most:
                    break
        seconds = np.array(firsts) + 1
        pooled = units.copy()
        pooled[firsts] += pooled[seconds]
        units = unit_rows(np.delete(pooled, seconds, axis=0))
    return units


def unit_rows(vectors: FloatArray) -> FloatArray:
    units: FloatArray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return units


HalfArray = npt.NDArray[np.float16]

DEPTH = 24  # twice the default k; more brought nothing
COSINE_WEIGHT = 0.3
BM25_WEIGHT = 0.1
IDF_MIN = 0.5
CACHED_TEXTS = 4000  # of at most 8 kB, and their own length: 40 MB
DIGITS = 6  # what is below differs between machines
BEHIND = 0.001


@dataclass(frozen=True, slots=True)
class Parts:
    """What a text's score is made of. best: for each token of the question about its best cosine, float64 [tokens].

    held: bool [tokens], whether the text holds that very token. cosine: of the whole texts.
    """

    best: npt.NDArray[np.float64]
    held: npt.NDArray[np.bool_]
    cosine: float


class LateInteraction:
    """Reads the first `depth` candidates; those behind keep their order, each 0.001 below the one before.

    The score, 0 to 1 for any real text, is (maxsim + 0.3 * cosine + 0.1 * bm25) / 1.4.

    maxsim: the mean, over the question's tokens ([CLS] and [SEP] included, of a long question the first 254), of the
    best cosine with any token of the text. A token weighs the root of its idf over the texts read, at least 0.5 under
    the root; [CLS] and [SEP] weigh 1. cosine: of the local model's vectors of question and text, whatever the
    collection's own model is. bm25: the score in the lexical list over the highest among the texts read, 0 for a
    candidate that is not in that list.

    Deterministic for question and candidates. The cosines are estimates from packed token vectors, those of the
    candidate where it has them. What is made here is kept for this process, of `cached_texts` texts. A text longer than
    256 tokens is read in windows, never cut. `threads` (default: the cores that this process may use) windows are
    computed side by side. `folder` names another place of the model's files. Raises EmbedderError when the model is
    missing or damaged.
    """

    name = "minilm-late-interaction"
    scores_are_probabilities = True

    def __init__(
        self,
        *,
        depth: int = DEPTH,
        threads: int | None = None,
        cached_texts: int = CACHED_TEXTS,
        folder: Path | None = None,
    ) -> None:
        for name, value, low in (("depth", depth, 1), ("threads", threads, 1), ("cached_texts", cached_texts, 0)):
            if value is not None:
                check_at_least(name, value, low)
        self.depth, self.cached_texts, self.folder = depth, cached_texts, folder
        self.threads = threads or available_cores()
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    @property
    def reads_tokens(self) -> int:
        """So many of the first candidates are read by their token vectors (see `ragd.models.reranking`)."""
        return self.depth

    def find_readable(self, query: str, candidates: Sequence[Candidate]) -> list[bool]:
        """For each candidate, whether it is English, as the model is, or at least the query and it are in its script.

        See `ragd.text.languages.judge_readable`.
        """
        missing = [candidate.text for candidate in candidates if not candidate.tokens]
        of_query, *counted = minilm.open_model(self.folder).count_letters([query, *missing])
        letters = iter(counted)
        known = [read_letters(each.tokens) if each.tokens else next(letters) for each in candidates]
        return judge_readable(of_query, known, broken_max=minilm.BROKEN_MAX)

    def score_candidates(self, query: str, candidates: Sequence[Candidate]) -> list[float]:
        """One score per candidate, in their order; the candidates are given best first. [] for none."""
        read = candidates[: self.depth]
        if not read:
            return []
        parts = self.compare(query, read)
        scores = combine(parts, [_bm25(candidate) for candidate in read])
        lowest = min(scores)
        behind = [round(lowest - BEHIND * index, DIGITS) for index in range(1, len(candidates) - len(read) + 1)]
        return scores + behind

    def explain_candidates(self, query: str, candidates: Sequence[Candidate]) -> list[list[dict[str, Any]]]:
        """What each score of `score_candidates` is made of; [] for a candidate behind the first `depth`.

        Three parts {part, weight, value, share}: share = weight * value / 1.4, and the shares add up to the score but
        for its rounding to 6 digits. The first, "maxsim", has tokens too: {token, weight, best, held}; its value is the
        weighted mean of best.
        """
        read = candidates[: self.depth]
        if not read:
            return [[] for _ in candidates]
        model = minilm.open_model(self.folder)
        query_ids = model.split_windows(model.tokenize(LONE_SURROGATE.sub("\ufffd", query)))[0]
        spelt = model.spell([minilm.FIRST_TOKEN, *query_ids, minilm.LAST_TOKEN])
        parts = self.compare(query, read)
        weights = _token_weights(parts, IDF_MIN)
        words = [_bm25(candidate) for candidate in read]
        highest = max(words) or 1.0
        details = [
            [
                _share("maxsim", 1.0, float(part.best @ weights / weights.sum()))
                | {
                    "tokens": [
                        {"token": token, "weight": float(weight), "best": float(best), "held": bool(held)}
                        for token, weight, best, held in zip(spelt, weights, part.best, part.held, strict=True)
                    ]
                },
                _share("cosine", COSINE_WEIGHT, part.cosine),
                _share("bm25", BM25_WEIGHT, score / highest),
            ]
            for part, score in zip(parts, words, strict=True)
        ]
        return [*details, *([] for _ in candidates[self.depth :])]

    def compare(self, query: str, candidates: Sequence[Candidate]) -> list[Parts]:
        """What the model says of each candidate, in their order; equal texts get equal parts."""
        if not candidates:
            return []
        query_ids, question = _read_question(query, self.folder)
        ids = np.asarray([minilm.FIRST_TOKEN, *query_ids, minilm.LAST_TOKEN])
        query_mean = average_windows([question.mean(axis=0)], [1])
        packed = self._pack(candidates)
        texts = {each: unpack(each) for each in packed}
        best = _estimate_best(unit_rows(question), list(texts.values()))
        parts = {
            each: Parts(cosines, np.isin(ids, text.ids), float(query_mean @ text.mean))
            for (each, text), cosines in zip(texts.items(), best, strict=True)
        }
        return [parts[each] for each in packed]

    def _pack(self, candidates: Sequence[Candidate]) -> list[bytes]:
        """The packed token vectors of each: its own, else those in the cache, else made now."""
        own = {each.text: each.tokens for each in candidates if each.tokens and len(each.tokens) > HEADER_BYTES}
        texts = [candidate.text for candidate in candidates]
        with self._lock:
            packed = own | {text: self._cache[text] for text in texts if text not in own and text in self._cache}
        missing = list(dict.fromkeys(text for text in texts if text not in packed))
        packed |= zip(missing, encode_texts(missing, self.threads, self.folder), strict=True)
        with self._lock:
            for text in (each for each in packed if each not in own):
                self._cache[text] = packed[text]
                self._cache.move_to_end(text)
            while len(self._cache) > self.cached_texts:
                self._cache.popitem(last=False)
        return [packed[text] for text in texts]


class TokenMatcher:
    """For each token of a question its best cosine with a token of a text, by whole vectors: for sentences, which are
    not stored.

    The vectors of `cached_windows` windows of at most 256 tokens are kept for this process, by content. threads and
    folder: as for `LateInteraction`.
    """

    def __init__(self, *, cached_windows: int, threads: int | None = None, folder: Path | None = None) -> None:
        self.threads, self.folder = threads or available_cores(), folder
        self._token_vectors = lru_cache(maxsize=cached_windows)(self._compute)

    def best_cosines(self, question: str, texts: Sequence[str]) -> list[npt.NDArray[np.float64]]:
        """For each text, in their order, float64 [tokens], [CLS] and [SEP] of the question included; equal texts get
        equal numbers. [] for no texts. Raises EmbedderError when the model is missing or damaged."""
        if not texts:
            return []
        model = minilm.open_model(self.folder)
        _, vectors = _read_question(question, self.folder)
        read = {
            text: model.split_windows(model.tokenize(LONE_SURROGATE.sub("\ufffd", text)))
            for text in dict.fromkeys(texts)
        }
        best = dict(zip(read, _best_cosines(vectors, self._vectors_of(read.values())), strict=True))
        return [best[text] for text in texts]

    def _vectors_of(self, read: Iterable[Sequence[minilm.TokenIds]]) -> list[list[HalfArray]]:
        """The token embeddings of each window of each text; an equal window once."""
        texts = [[window.tobytes() for window in windows] for windows in read]
        keys = list(dict.fromkeys(key for windows in texts for key in windows))
        with ThreadPoolExecutor(min(self.threads, len(keys)), thread_name_prefix="ragd-rerank") as pool:
            vectors = dict(zip(keys, pool.map(self._token_vectors, keys), strict=True))
        return [[vectors[key] for key in windows] for windows in texts]

    def _compute(self, window: bytes) -> HalfArray:
        """The token embeddings of one window of ids, [CLS] and [SEP] included, not normalised: [length + 2, 384]."""
        ids = np.frombuffer(window, dtype=np.int64)
        return minilm.open_model(self.folder).token_vectors(ids).astype(np.float16)


def _read_question(question: str, folder: Path | None) -> tuple[minilm.TokenIds, FloatArray]:
    """The first 254 ids of a question, and the token embeddings of these with [CLS] and [SEP], not normalised."""
    model = minilm.open_model(folder)
    ids = model.split_windows(model.tokenize(LONE_SURROGATE.sub("\ufffd", question)))[0]
    return ids, model.token_vectors(ids)


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
    weights = _token_weights(parts, idf_min)
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


def _token_weights(parts: Sequence[Parts], idf_min: float) -> npt.NDArray[np.float64]:
    """The root of each token's idf over the texts read; 1 for [CLS] and [SEP]."""
    holding = np.sum([part.held for part in parts], axis=0)
    idf = np.log1p((len(parts) - holding + 0.5) / (holding + 0.5))
    weights: npt.NDArray[np.float64] = np.sqrt(np.maximum(idf, idf_min))
    weights[[0, -1]] = 1.0
    return weights


def _share(part: str, weight: float, value: float) -> dict[str, Any]:
    total = 1.0 + COSINE_WEIGHT + BM25_WEIGHT
    return {"part": part, "weight": weight, "value": value, "share": weight * value / total}


def _estimate_best(question: FloatArray, texts: Sequence[TokenVectors]) -> list[npt.NDArray[np.float64]]:
    """For each text the best estimate of a cosine of each token of the question, unit vectors, with a vector of it."""
    turned = turn(question)
    centres = question @ np.stack([text.mean * text.centre for text in texts]).T
    best = []
    for text, centre in zip(texts, centres.T, strict=True):
        rest = (text.signs @ turned[:, : text.signs.shape[1]].T) * text.factors[:, None]
        best.append((rest.max(axis=0) + centre).astype(np.float64))
    return best


def _best_cosines(question: FloatArray, texts: Sequence[Sequence[HalfArray]]) -> list[npt.NDArray[np.float64]]:
    """For each text the best cosine of each token of the question with a token of the text, [CLS] and [SEP] left out
    unless it has no others. One product for all texts: the library behind numpy is slow at many small ones."""
    inner = []
    for windows in texts:
        tokens = np.concatenate([window[1:-1] for window in windows])
        inner.append(tokens if len(tokens) else windows[0])
    cosines = unit_rows(question) @ unit_rows(np.concatenate(inner).astype(np.float32)).T
    starts = np.cumsum([0, *(len(tokens) for tokens in inner[:-1])])
    return list(np.maximum.reduceat(cosines, starts, axis=1).T.astype(np.float64))


def _bm25(candidate: Candidate) -> float:
    list_rank = candidate.ranks.get("lexical")
    return list_rank.score if list_rank else 0.0
