"""The lexical list: BM25 over the collection's statistics, the best chunks that hold any word of the query."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ragd.candidates import COLUMNS, passing, ranked, scope
from ragd.postings import POSTINGS_MIN
from ragd.pruned_search import pruned_rows
from ragd.store import Store, StoreState, execute, fetch_all
from ragd.types import Candidate, RetrievePlan

BM25_K1 = 1.2

LEXICAL = f"""
SELECT {COLUMNS}, -(lexical <#> %(weights)s::sparsevec) AS score
FROM {{chunks}}
WHERE {{passing}} AND fts @@ %(words)s::tsquery
ORDER BY lexical <#> %(weights)s::sparsevec, doc_id, chunk_index
LIMIT %(pool)s
"""

# A plan that is made once for all parameters cannot tell narrow tags from a common word: it may read every row.
SET_CUSTOM_PLAN = "SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true)"

# A look-up per word, not a join: without statistics of a young table a join would read all the collection's words.
QUERY_TERMS = """
SELECT lexeme, ragd_term(lexeme), cardinality(positions), coalesce((
       SELECT t.chunk_count FROM chunk_terms t
       WHERE t.collection_id = %(collection_id)s AND t.generation = %(generation)s AND t.term = ragd_term(lexeme)), 0)
FROM unnest(to_tsvector(%(language)s::regconfig, %(query)s))
ORDER BY lexeme COLLATE "C"
"""


def lexical_candidates(text: str, plan: RetrievePlan, store: Store, state: StoreState) -> list[Candidate]:
    """BM25 over the collection's statistics: any word may match. Words that no chunk holds change nothing."""
    params = {"language": store.collection.language, "query": text} | store.scope
    terms = [row for row in fetch_all(store.connection, QUERY_TERMS, params) if row[3] > 0]
    if not terms:
        return []
    weights: dict[int, float] = {}
    for _, term, repeats, chunks in terms:
        weights[term] = weights.get(term, 0.0) + repeats * inverse_document_frequency(chunks, state.chunk_count)
    highest = sum(weights.values()) * (BM25_K1 + 1)
    vector = "{" + ",".join(f"{term}:{weights[term]!r}" for term in sorted(weights)) + "}/1000000000"
    rows = None
    if state.chunk_count >= POSTINGS_MIN:
        rows = pruned_rows(weights, {term: chunks for _, term, _, chunks in terms}, vector, plan, store)
    if rows is None:
        if state.chunk_count >= POSTINGS_MIN:
            execute(store.connection, SET_CUSTOM_PLAN)
        rows = scanned_rows(vector, [lexeme for lexeme, *_ in terms], plan, store)
    return ranked(rows, "lexical", "bm25", highest)


def scanned_rows(vector: str, lexemes: Sequence[str], plan: RetrievePlan, store: Store) -> list[tuple[Any, ...]]:
    """The plan's pool of rows (COLUMNS and score), best first, from scoring every chunk that holds any lexeme."""
    lexical = {"weights": vector, "words": " | ".join(map(_quoted, lexemes))}
    sql = LEXICAL.format(chunks=store.collection.partition, passing=passing(plan))
    return fetch_all(store.connection, sql, scope(plan, store) | lexical)


def inverse_document_frequency(chunks: int, total: int) -> float:
    """ln(1 + (N - n + 0.5) / (n + 0.5)): Robertson and Sparck Jones' weight, kept above zero as Lucene does."""
    return math.log(1 + (max(total, chunks) - chunks + 0.5) / (chunks + 0.5))


def _quoted(lexeme: str) -> str:
    escaped = lexeme.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
