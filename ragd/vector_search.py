"""The vector list: nearest chunks by cosine, by an exact scan or through the HNSW index."""

from __future__ import annotations

from collections.abc import Sequence

from ragd.candidates import COLUMNS, FILTERED, ranked, scope
from ragd.store import Store, StoreState, execute, fetch_all
from ragd.types import Candidate, RetrievePlan

SCAN_TUPLES_MAX = 100_000
EF_SEARCH_MAX = 1000

# Without the cast that the HNSW index is over, so that every row is compared.
VECTOR_EXACT = f"""
SELECT {COLUMNS}, 1 - (embedding <=> %(vector)s::vector) AS score
FROM {{chunks}}
WHERE {FILTERED}
ORDER BY embedding <=> %(vector)s::vector, doc_id, chunk_index
LIMIT %(pool)s
"""

VECTOR_INDEXED = f"""
SELECT {COLUMNS}, 1 - ((embedding::{{cast}}) <=> %(vector)s::{{cast}}) AS score
FROM {{chunks}}
WHERE {FILTERED}
ORDER BY (embedding::{{cast}}) <=> %(vector)s::{{cast}}, doc_id, chunk_index
LIMIT %(pool)s
"""

MATCHING_UP_TO = f"SELECT count(*) FROM (SELECT 1 FROM {{chunks}} WHERE {FILTERED} LIMIT %(most)s) AS matching"

SET_HNSW = """
SELECT set_config('hnsw.ef_search', %(ef_search)s, true),
       set_config('hnsw.iterative_scan', 'strict_order', true),
       set_config('hnsw.max_scan_tuples', %(scan_tuples)s, true)
"""


def is_exact(plan: RetrievePlan, store: Store, state: StoreState) -> bool:
    """Scan or index? "auto" scans up to the threshold, counting only what the filters leave."""
    if plan.exact == "always" or not state.vector_index:
        return True
    if plan.exact == "never":
        return False
    if state.chunk_count <= store.exact_threshold:
        return True
    if not plan.filters:
        return False
    most = store.exact_threshold + 1
    sql = MATCHING_UP_TO.format(chunks=store.collection.partition)
    ((matching,),) = fetch_all(store.connection, sql, scope(plan, store) | {"most": most})
    return int(matching) < most


def vector_candidates(vector: Sequence[float], plan: RetrievePlan, store: Store, exact: bool) -> list[Candidate]:
    params = scope(plan, store) | {"vector": vector_text(vector)}
    if exact:
        sql = VECTOR_EXACT.format(chunks=store.collection.partition)
        return ranked(fetch_all(store.connection, sql, params), "vector", "cosine", 1.0)
    ef_search = min(EF_SEARCH_MAX, max(plan.ef_search or 0, plan.pool))
    settings = {"ef_search": str(ef_search), "scan_tuples": str(SCAN_TUPLES_MAX)}
    execute(store.connection, SET_HNSW, settings)
    sql = VECTOR_INDEXED.format(chunks=store.collection.partition, cast=store.collection.vector_cast)
    return ranked(fetch_all(store.connection, sql, params), "vector", "cosine", 1.0)


def vector_text(vector: Sequence[float]) -> str:
    """pgvector's text form, with the shortest digits that give the same float back."""
    return "[" + ",".join(map(repr, map(float, vector))) + "]"
