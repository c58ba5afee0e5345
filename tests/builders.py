"""Small things that tests are made of."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from django.db import connection

from ragd.store.store import Store, execute, fetch_all
from ragd.types import Chunk


class WordEmbedder:
    """A platform-independent embedder: every word adds the signs of its SHA-256. Counts what it was asked."""

    system = "ragd.test"
    window: int | None = None
    server_address: str | None = None
    server_port: int | None = None

    def __init__(self, dims: int = 32, model: str = "words") -> None:
        self.dims = dims
        self.model = model
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[Any]:
        self.embedded += texts
        return [self._vector(text) for text in texts]

    def embed_query(self, text: str) -> Any:
        return self._vector(text)

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def _vector(self, text: str) -> Any:
        total = np.zeros(self.dims, dtype=np.float32)
        for word in text.lower().split():
            bits = np.unpackbits(np.frombuffer(hashlib.sha256(word.encode()).digest(), dtype=np.uint8))
            total += np.resize(bits, self.dims).astype(np.float32) * 2 - 1
        norm = float(np.linalg.norm(total))
        return total / norm if norm else np.full(self.dims, 1 / self.dims**0.5, dtype=np.float32)


def make_chunks(doc_id: str, *contents: str, **values: Any) -> list[Chunk]:
    """Bound chunks of one document, their offsets as if joined by a newline."""
    chunks, start = [], 0
    for number, content in enumerate(contents):
        chunks.append(Chunk(doc_id, number, content, start, start + len(content), **values))
        start += len(content) + 1
    return chunks


def by_name(sql: str, store: Store) -> str:
    """The statement with the table of the store's chunks in place of `chunks`, which shows none that are elsewhere."""
    return re.sub(r"(?<=FROM |INTO )chunks\b|(?<=UPDATE )chunks\b", store.collection.partition, sql)


def read(store: Store, sql: str) -> list[Any]:
    """The rows of a statement over the store's chunks, with its collection as %(id)s."""
    return fetch_all(store.connection, by_name(sql, store), {"id": store.collection.id})


def hold_minute() -> None:
    """Let the minute in which requests were counted so far last one minute longer.

    Without this a test that reaches a limit per minute fails where the clock goes on to the next one in between.
    """
    execute(connection, "UPDATE usage_counts SET minute = minute + interval '1 minute'")
