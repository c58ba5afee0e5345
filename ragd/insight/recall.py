"""How much of the exact result the HNSW index finds: recall@k, with and without a selective filter."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ragd.errors import InvalidInput
from ragd.search.vector_search import EF_SEARCH_MAX, FILTERED_BEAM_MIN, scan_settings, set_scan
from ragd.store.store import Store, fetch_all
from ragd.types import CANDIDATE_POOL, FINAL_K

QUERIES = 50
KEEP_EVERY = 100

# In an order that is the same in every process: a hash of the row's number and the seed.
SAMPLE = """
SELECT id, embedding::text
FROM {chunks}
WHERE collection_id = %(collection_id)s AND enabled
ORDER BY hashint8extended(id, %(seed)s), id
LIMIT %(count)s
"""

# id % every = rest stands for a filter that a share of 1/every of the rows passes, whatever tags there are.
EXACT = """
SELECT id, embedding <=> %(vector)s::vector AS distance
FROM {chunks}
WHERE collection_id = %(collection_id)s AND enabled AND id %% %(every)s = %(rest)s AND id <> %(own)s
ORDER BY embedding <=> %(vector)s::vector, doc_id, chunk_index
LIMIT %(k)s
"""

THROUGH_INDEX = """
SELECT id, embedding <=> %(vector)s::vector AS distance
FROM {chunks}
WHERE collection_id = %(collection_id)s AND enabled AND id %% %(every)s = %(rest)s AND id <> %(own)s
ORDER BY (embedding::{cast}) <=> %(vector)s::{cast}, doc_id, chunk_index
LIMIT %(k)s
"""

# As retrieve() does under filters: a pool in relaxed order, sorted afterwards.
THROUGH_INDEX_FILTERED = """
WITH nearest AS MATERIALIZED (
    SELECT id, doc_id, chunk_index, embedding <=> %(vector)s::vector AS distance
    FROM {chunks}
    WHERE collection_id = %(collection_id)s AND enabled AND id %% %(every)s = %(rest)s AND id <> %(own)s
    ORDER BY (embedding::{cast}) <=> %(vector)s::{cast}
    LIMIT %(pool)s
)
SELECT id, distance FROM nearest ORDER BY distance, doc_id, chunk_index LIMIT %(k)s
"""


@dataclass(frozen=True, slots=True)
class Recall:
    """Means over the queries, from 0 to 1; None when no query had an exact result to compare with.

    selectivity: the share of rows that the filter lets through (1.0: no filter). lowest: the worst query.
    exact_ms, index_ms: median time of one query.
    """

    selectivity: float
    queries: int
    mean: float | None
    lowest: float | None
    exact_ms: float | None
    index_ms: float | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RecallProbe:
    """One probe of one collection: what was asked, how many chunks there were, and the recall of each filter."""

    k: int
    ef_search: int
    chunk_count: int
    plain: Recall
    filtered: Recall

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def probe_recall(
    store: Store,
    *,
    k: int = FINAL_K,
    queries: int = QUERIES,
    ef_search: int | None = None,
    keep_every: int = KEEP_EVERY,
    seed: int = 0,
    on_query: Callable[[int, int], None] | None = None,
) -> RecallProbe:
    """Ask for the neighbours of sampled chunks by an exact scan and through the index, and compare.

    A chunk is never its own neighbour. A row that the index gives counts as found when it is no farther than the last
    exact one, so ties at the edge cost nothing. recall = found / exact rows (Manning, Raghavan, Schuetze, "Introduction
    to Information Retrieval", 2008, 8.3, with the exact rows as the relevant ones). The second round asks under a
    filter that lets one row in `keep_every` through.

    Runs in the caller's transaction; on_query(done, total) after each query may raise to stop. InvalidInput when there
    is no HNSW index to probe, or for k, queries or keep_every below 1.
    """
    for name, value in (("k", k), ("queries", queries), ("keep_every", keep_every)):
        if value < 1:
            raise InvalidInput(f"{name} must be at least 1, not {value}", field=name)
    state = store.state()
    if not state.vector_index:
        raise InvalidInput(
            f"collection {store.collection.name!r} has no HNSW index, so every vector search is exact; "
            "a probe compares the index with the exact scan",
            field="collection",
        )
    beam = min(EF_SEARCH_MAX, max(k, ef_search or 0))
    sample = _sample(store, queries, seed)
    total = 2 * len(sample)
    rounds = []
    for number, every in enumerate((1, keep_every)):
        on_each = _tell(on_query, number * len(sample), total)
        rounds.append(_measure(store, sample, k=k, beam=beam, every=every, on_query=on_each))
    return RecallProbe(k, beam, state.chunk_count, *rounds)


def _tell(on_query: Callable[[int, int], None] | None, before: int, total: int) -> Callable[[int], None]:
    return lambda done: on_query(before + done, total) if on_query else None


def _sample(store: Store, count: int, seed: int) -> list[tuple[int, str]]:
    params = {"collection_id": store.collection.id, "count": count, "seed": seed}
    sql = SAMPLE.format(chunks=store.collection.partition)
    return [(chunk_id, vector) for chunk_id, vector in fetch_all(store.connection, sql, params)]


def _measure(
    store: Store, sample: Sequence[tuple[int, str]], *, k: int, beam: int, every: int, on_query: Callable[[int], None]
) -> Recall:
    filtered = every > 1
    settings = scan_settings(max(beam, FILTERED_BEAM_MIN) if filtered else beam, store, filtered=filtered)
    through_index = (THROUGH_INDEX_FILTERED if filtered else THROUGH_INDEX).format(
        chunks=store.collection.partition, cast=store.collection.vector_cast
    )
    exact_scan = EXACT.format(chunks=store.collection.partition)
    shares: list[float] = []
    exact_ms: list[float] = []
    index_ms: list[float] = []
    for number, (own, vector) in enumerate(sample, 1):
        params = {
            "collection_id": store.collection.id,
            "vector": vector,
            "own": own,
            "every": every,
            "rest": own % every,
            "k": k,
            "pool": max(k, CANDIDATE_POOL),
        }
        exact, took_ms = _timed(store, exact_scan, params)
        exact_ms.append(took_ms)
        set_scan(store, settings)
        result, took_ms = _timed(store, through_index, params)
        index_ms.append(took_ms)
        if exact:
            farthest = exact[-1][1]
            shares.append(sum(1 for _, distance in result if distance <= farthest) / len(exact))
        on_query(number)
    return Recall(
        selectivity=1 / every,
        queries=len(shares),
        mean=math.fsum(shares) / len(shares) if shares else None,
        lowest=min(shares, default=None),
        exact_ms=round(statistics.median(exact_ms), 3) if exact_ms else None,
        index_ms=round(statistics.median(index_ms), 3) if index_ms else None,
    )


def _timed(store: Store, sql: str, params: dict[str, Any]) -> tuple[list[tuple[Any, ...]], float]:
    began = time.perf_counter()
    rows = fetch_all(store.connection, sql, params)
    return rows, (time.perf_counter() - began) * 1000
