"""A collection as a map: the two directions in which its vectors differ most, and where each chunk lies along them.

Principal component analysis (Pearson, 1901), without a random start: the same chunks give the same map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragd.search.vector_search import BinaryVector
from ragd.store.store import Store, fetch_all

CHUNKS_MAX = 20_000  # that are read for the directions, and that are drawn
NUMBERS_MAX = 16_000_000  # of all vectors together
CHUNKS_MIN = 3  # fewer have no two directions
DIGITS = 7

# In an order of their names, so that the same ones are taken while they are there. Open ones: everybody sees the map.
SAMPLE = """
SELECT vector_send(l2_normalize(embedding)) FROM {chunks}
WHERE collection_id = %(collection_id)s AND enabled AND 1 = ANY (access)
ORDER BY md5(doc_id || ' ' || chunk_index), doc_id, chunk_index LIMIT %(most)s
"""
PLACES = """
SELECT doc_id, chunk_index, coalesce(tags[1], ''),
       -(l2_normalize(embedding) <#> %(x)s::vector), -(l2_normalize(embedding) <#> %(y)s::vector)
FROM {chunks} WHERE collection_id = %(collection_id)s AND enabled AND mod(id, %(every)s) = 0
ORDER BY doc_id, chunk_index
"""

Axes = list[list[float]]


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Where a chunk lies, from -1 to 1 in both directions. tag: its first, "" without one."""

    doc_id: str
    chunk_index: int
    tag: str
    x: float
    y: float


def find_axes(store: Store) -> Axes:
    """Two unit vectors, the one along which the chunks differ more first; [] for less than CHUNKS_MIN chunks.

    Of at most CHUNKS_MAX chunks that everybody may read. The entry of each with the largest absolute value, the first
    of such, is above zero.
    """
    dims = store.collection.embed_dims
    params = {"collection_id": store.collection.id, "most": min(CHUNKS_MAX, NUMBERS_MAX // dims)}
    rows = fetch_all(store.connection, SAMPLE.format(chunks=store.collection.partition), params)
    if len(rows) < CHUNKS_MIN:
        return []
    vectors = np.frombuffer(b"".join(bytes(data)[4:] for (data,) in rows), ">f4").reshape(-1, dims).astype(np.float32)
    vectors -= vectors.mean(axis=0)
    is_wide = dims > len(vectors)
    products = vectors @ vectors.T if is_wide else vectors.T @ vectors
    largest = np.linalg.eigh(products.astype(np.float64))[1][:, :-3:-1]
    axes = (vectors.T @ largest if is_wide else largest).T
    axes = axes / np.maximum(np.linalg.norm(axes, axis=1, keepdims=True), 1e-12)
    signs = np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)])
    return [[round(float(entry), DIGITS) for entry in axis * sign] for axis, sign in zip(axes, signs, strict=True)]


def place_chunks(store: Store, axes: Axes) -> list[ChunkPlace]:
    """Those that are searched and that the store's connection may read, by doc_id and index; of more than CHUNKS_MAX
    every second, third and so on by id."""
    every = 1 + store.state().chunk_count // (CHUNKS_MAX + 1)
    x, y = (str(BinaryVector(axis)) for axis in axes)
    params = {"collection_id": store.collection.id, "every": every, "x": x, "y": y}
    rows = fetch_all(store.connection, PLACES.format(chunks=store.collection.partition), params)
    return [ChunkPlace(*row) for row in rows]


def place_vector(vector: Sequence[float], axes: Axes) -> tuple[float, float]:
    """Where a vector of unit length lies, such as that of a question."""
    x, y = (float(np.dot(np.asarray(vector, np.float64), np.asarray(axis))) for axis in axes)
    return x, y
