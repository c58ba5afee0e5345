"""What the disabled chunks would have been in the lists: for whoever misses a result."""

from __future__ import annotations

from collections.abc import Sequence

from ragd.search.candidates import ranked
from ragd.search.lexical_search import read_query, scanned_rows
from ragd.search.vector_search import vector_candidates
from ragd.store.state import StoreState
from ragd.store.store import Store, fetch_all
from ragd.types import Candidate, RetrievePlan, Vector, sort_key

HAS_DISABLED = "SELECT EXISTS (SELECT 1 FROM {chunks} WHERE NOT enabled)"


def disabled_candidates(
    text: str, vector: Vector | None, plan: RetrievePlan, store: Store, state: StoreState
) -> dict[str, Sequence[Candidate]]:
    """List name -> the best disabled chunks that pass the plan's filters, at most its pool, best first.

    text: the normalized query; vector: its vector, None leaves the vector list out. {} when no chunk is disabled. The
    statistics count disabled chunks too, so scores compare with those of the lists. Every disabled chunk is scored.
    """
    ((found,),) = fetch_all(store.connection, HAS_DISABLED.format(chunks=store.collection.partition), {})
    if not found:
        return {}
    lists: dict[str, Sequence[Candidate]] = {}
    if plan.mode != "lexical" and vector is not None:
        lists["vector"] = vector_candidates(vector, plan, store, True, enabled=False)
    if plan.mode != "vector":
        query = read_query(text, store, state)
        rows = scanned_rows(query, plan, store, enabled=False) if query.lexemes else []
        lists["lexical"] = ranked(rows, "lexical", "bm25", query.highest or 1.0)
    return lists


def would_be_rank(candidate: Candidate, ranking: Sequence[Candidate]) -> int:
    """The place, from 1, that the candidate would take in a list that is in order; behind all of it at worst."""
    key = sort_key(candidate)
    return 1 + sum(1 for other in ranking if sort_key(other) < key)
