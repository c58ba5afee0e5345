"""An embedder that remembers: questions over one collection meet the same sentences again and again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np

from ragd.models.embedding import Embedder
from ragd.types import Vector

VECTORS_KEPT = 50_000  # some 90 MB with their texts
QUERIES_KEPT = 100  # one question is asked of each of its chunks


class RememberingEmbedder:
    """The embedder it is made of, with the vectors of the texts that were asked for last. Threads may share one."""

    def __init__(self, embedder: Embedder, *, kept: int = VECTORS_KEPT) -> None:
        self.embedder, self.kept = embedder, kept
        self.model, self.dims, self.window, self.system = (
            embedder.model,
            embedder.dims,
            embedder.window,
            embedder.system,
        )
        self._vectors: OrderedDict[str, Vector] = OrderedDict()
        self._queries: OrderedDict[str, Vector] = OrderedDict()
        self._lock = Lock()

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per text, in order. Raises what the embedder raises, and remembers nothing then."""
        with self._lock:
            known = {text: self._vectors[text] for text in texts if text in self._vectors}
        missing = list(dict.fromkeys(text for text in texts if text not in known))
        fresh = self.embedder.embed(missing) if missing else []
        added: dict[str, Any] = {
            text: np.asarray(vector, dtype=np.float32) for text, vector in zip(missing, fresh, strict=True)
        }
        with self._lock:
            for text, vector in (known | added).items():
                self._vectors[text] = vector
                self._vectors.move_to_end(text)
            while len(self._vectors) > self.kept:
                self._vectors.popitem(last=False)
        result = known | added
        return [result[text] for text in texts]

    def embed_query(self, text: str) -> Vector:
        """Remembered apart from `embed`: a model may read a question in another way than a passage."""
        with self._lock:
            known = self._queries.get(text)
        if known is None:
            known = self.embedder.embed_query(text)
            with self._lock:
                self._queries[text] = known
                while len(self._queries) > QUERIES_KEPT:
                    self._queries.popitem(last=False)
        return known

    def count_tokens(self, text: str) -> int:
        return self.embedder.count_tokens(text)
