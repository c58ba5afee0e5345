"""An embedder that keeps the vectors of the texts that it embedded last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np

from ragd.types import Embedder, Vector

PASSAGES_MAX = 50_000  # some 90 MB with their texts
QUERIES_MAX = 100


class CachingEmbedder:
    """The embedder it is made of, asked once for each of the texts in the cache. Threads may share one.

    Queries are kept apart from passages: a model may read a question in another way than a passage.
    """

    def __init__(self, embedder: Embedder, *, passages: int = PASSAGES_MAX, queries: int = QUERIES_MAX) -> None:
        self.embedder, self.passages_max, self.queries_max = embedder, passages, queries
        self.model, self.dims = embedder.model, embedder.dims
        self.window, self.system = embedder.window, embedder.system
        self._passages: OrderedDict[str, Vector] = OrderedDict()
        self._queries: OrderedDict[str, Vector] = OrderedDict()
        self._lock = Lock()

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per text, in order. Raises what the embedder raises, and keeps nothing then."""
        with self._lock:
            vectors: dict[str, Any] = {text: self._passages[text] for text in texts if text in self._passages}
        missing = list(dict.fromkeys(text for text in texts if text not in vectors))
        fresh = self.embedder.embed(missing) if missing else []
        vectors |= {text: np.asarray(vector, dtype=np.float32) for text, vector in zip(missing, fresh, strict=True)}
        self._put(self._passages, vectors, self.passages_max)
        return [vectors[text] for text in texts]

    def embed_query(self, text: str) -> Vector:
        """Raises what the embedder raises."""
        with self._lock:
            known = self._queries.get(text)
        vector = self.embedder.embed_query(text) if known is None else known
        self._put(self._queries, {text: vector}, self.queries_max)
        return vector

    def count_tokens(self, text: str) -> int:
        return self.embedder.count_tokens(text)

    @property
    def latest_query(self) -> Vector | None:
        """The vector of the query that was asked for last; None before the first."""
        with self._lock:
            return next(reversed(self._queries.values()), None)

    def _put(self, cache: OrderedDict[str, Vector], vectors: Mapping[str, Vector], most: int) -> None:
        with self._lock:
            for text, vector in vectors.items():
                cache[text] = vector
                cache.move_to_end(text)
            while len(cache) > most:
                cache.popitem(last=False)
