"""What the built-in reranker reads of a text, in at most 8,000 bytes: its token vectors as signs.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ragd.models import minilm
from ragd.text.languages import Letters
from ragd.text.windows import LONE_SURROGATE, FloatArray, average_windows
from ragd.types import Embedder, Vector

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
