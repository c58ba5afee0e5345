"""Which chunks are near to many questions, found in one pass over the vectors instead of a scan for each question.

The pass names a few rows a question, a little more than are wanted; the database then ranks these alone, so that
scores, order and ties are those of its own scan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ragd.search.candidates import passing, scope
from ragd.search.vector_search import VECTOR_EXACT, vector_parameter
from ragd.store.store import Store, fetch_all
from ragd.types import RetrievePlan

VECTORS = "SELECT id, vector_send(embedding) FROM {chunks} WHERE {passing} AND embedding IS NOT NULL"
HEADER_BYTES = 4  # the number of dimensions and two unused bytes
SLACK = 1e-4  # more than float32 sums of some thousand products differ by order
ROWS_AT_ONCE = 4096

Matrix = npt.NDArray[np.float32]


class NearRows:
    """Per question the rows that an exact scan would rank first: at least `rows` of them, where there are so many."""

    def __init__(self, vectors: Mapping[str, Sequence[float]], plan: RetrievePlan, store: Store, rows: int) -> None:
        self.plan, self.store, self.rows = plan, store, rows
        self.ids: dict[str, list[int]] = {}
        questions = _normalized(np.asarray(list(vectors.values()), dtype=np.float32))
        ids, scores = self._read(questions)
        for column, text in enumerate(vectors):
            own = scores[:, column]
            least = np.partition(own, len(own) - rows)[len(own) - rows] - SLACK if len(own) > rows else -np.inf
            self.ids[text] = ids[own >= least].tolist()

    def __contains__(self, text: object) -> bool:
        return text in self.ids

    def fetch(self, text: str, vector: Sequence[float]) -> list[tuple[Any, ...]]:
        """The first `rows` rows of an exact scan for the question, as VECTOR_EXACT gives them; fewer where there are
        fewer, or where some went since the pass."""
        condition = f"{passing(self.plan, self.store)} AND id = ANY(%(near)s::bigint[])"
        chunks = self.store.collection.partition
        sql = VECTOR_EXACT.format(chunks=chunks, passing=condition, rows=self.rows)
        params = scope(self.plan, self.store) | {"vector": vector_parameter(vector, self.store), "near": self.ids[text]}
        return fetch_all(self.store.connection, sql, params)

    def is_whole(self, text: str, fetched: int) -> bool:
        """Whether so many rows are all that were named, up to `rows`."""
        return fetched == min(self.rows, len(self.ids[text]))

    def _read(self, questions: Matrix) -> tuple[npt.NDArray[np.int64], Matrix]:
        """The ids of all rows, and the cosine of each with each question."""
        sql = VECTORS.format(chunks=self.store.collection.partition, passing=passing(self.plan, self.store))
        rows = fetch_all(self.store.connection, sql, scope(self.plan, self.store))
        ids = np.array([row[0] for row in rows], dtype=np.int64)
        scores = np.empty((len(rows), len(questions)), dtype=np.float32)
        for first in range(0, len(rows), ROWS_AT_ONCE):
            part = b"".join(bytes(row[1])[HEADER_BYTES:] for row in rows[first : first + ROWS_AT_ONCE])
            stored = np.frombuffer(part, dtype=">f4").reshape(-1, questions.shape[1]).astype(np.float32)
            scores[first : first + len(stored)] = _normalized(stored) @ questions.T
        return ids, scores


def _normalized(rows: Matrix) -> Matrix:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    result: Matrix = (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return result
