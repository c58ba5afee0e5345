"""The lexical list: BM25 over the collection's statistics, the best chunks that hold any word of the query."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragd.models.folder_embedder import LEARNED_SCALE
from ragd.search.candidates import COLUMNS, fetch_rows, listed, passing, scope
from ragd.search.pruned_search import pruned_rows
from ragd.store.analysis import Question, query_terms, read_question
from ragd.store.placement import set_everywhere
from ragd.store.postings import POSTINGS_MIN
from ragd.store.store import Store, StoreState, TermCount, execute, quote_lexeme
from ragd.types import Candidate, RetrievePlan

BM25_K1 = 1.2
READABLE_PRUNED = 0.25

LEXICAL = f"""
SELECT {COLUMNS}, -(lexical <#> %(weights)s::sparsevec) AS score
FROM {{chunks}}
WHERE {{passing}} AND fts @@ %(words)s::tsquery
ORDER BY lexical <#> %(weights)s::sparsevec, doc_id, chunk_index
LIMIT %(pool)s
"""

# A lexeme of another configuration than the chunk's counts nothing there.
COUNTS = "lexical <#> %(weights)s::sparsevec < 0"

# A plan that is made once for all parameters cannot tell narrow tags from a common word: it may read every row.
SET_CUSTOM_PLAN = "SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true)"


@dataclass(frozen=True, slots=True)
class LexicalQuery:
    """What a text asks of the lexical index: its words, and what each counts.

    lexemes: in order. weights: term -> idf times its repeats. chunks: term -> open chunks that hold it. vector: the
    weights as a sparse vector. highest: the score of a chunk of one configuration that is all of these words, for unit
    scores.
    """

    lexemes: list[str]
    weights: dict[int, float]
    chunks: dict[int, int]
    highest: float

    @property
    def vector(self) -> str:
        return "{" + ",".join(f"{term}:{self.weights[term]!r}" for term in sorted(self.weights)) + "}/1000000000"

    @property
    def words(self) -> str:
        """A text search query that any of the words satisfies."""
        return " | ".join(map(quote_lexeme, self.lexemes))


def read_query(text: str, store: Store, state: StoreState, moved: Mapping[int, int] | None = None) -> LexicalQuery:
    """The words of the text, also those that no open chunk holds: a chunk with an access list may.

    moved: term -> how many chunks more hold it than are counted, fewer below 0; state is what goes with it.
    """
    more = moved or {}
    question = read_question(text, store, more, state)
    terms = query_terms(question, store, more, state.terms if state.question == text else None)
    weights: dict[int, float] = {}
    highest: dict[str, float] = {}
    for each in terms:
        weight = each.repeats * lexeme_weight(question, each, state)
        weights[each.term] = weights.get(each.term, 0.0) + weight
        highest[each.configuration] = highest.get(each.configuration, 0.0) + weight
    return LexicalQuery(
        list(dict.fromkeys(each.lexeme for each in terms)),
        weights,
        {each.term: each.chunks for each in terms},
        max(highest.values(), default=0.0) * (BM25_K1 + 1),
    )


def lexical_candidates(
    text: str, plan: RetrievePlan, store: Store, state: StoreState, *, keys_only: bool = False
) -> Sequence[Candidate]:
    """BM25 over the statistics of the open chunks: any word may match. Words that no chunk holds change nothing.
    keys_only: candidates without content where that is faster, see `fill`."""
    query = read_query(text, store, state)
    if not query.lexemes:
        return []
    rows = None
    if state.chunk_count >= POSTINGS_MIN and not _reads_few(store):
        rows = pruned_rows(query.weights, query.chunks, query.vector, plan, store, state.segments, keys_only=keys_only)
    if rows is None:
        if state.chunk_count >= POSTINGS_MIN:
            if store.collection.is_distributed:
                set_everywhere(store.connection, {"plan_cache_mode": "force_custom_plan", "jit": "off"})
            else:
                execute(store.connection, SET_CUSTOM_PLAN)
        rows = scanned_rows(query, plan, store, keys_only=keys_only)
    return listed(rows, "lexical", "bm25", query.highest, keys_only=keys_only)


def _reads_few(store: Store) -> bool:
    """Whether the best chunks are mostly ones that may not be read, so that the index on access leads sooner."""
    return store.readable_share is not None and store.readable_share < READABLE_PRUNED


def scanned_rows(
    query: LexicalQuery, plan: RetrievePlan, store: Store, *, enabled: bool = True, keys_only: bool = False
) -> list[tuple[Any, ...]]:
    """The plan's pool of rows (COLUMNS and score), best first, from scoring every chunk that holds any of the words.
    keys_only: KEYS in place of COLUMNS."""
    lexical = {"weights": query.vector, "words": query.words}
    found = f"{passing(plan, store, enabled=enabled)} AND {COUNTS}"
    sql = LEXICAL.format(chunks=store.collection.partition, passing=found)
    return fetch_rows(store.connection, sql, scope(plan, store) | lexical, keys_only=keys_only)


def lexeme_weight(question: Question, term: TermCount, state: StoreState) -> float:
    """What one lexeme of a query counts: its inverse document frequency among the open chunks of its configuration, or
    what a sparse encoder says of it, so that with the scale of the stored weights the score is the encoder's own.

    Among all chunks, a common word would count as a rare one in the few chunks of another configuration.
    """
    if question.learned is not None:
        return question.learned[term.lexeme] / LEARNED_SCALE
    total = state.open_count if question.totals is None else question.totals.get(term.configuration, 0)
    return inverse_document_frequency(term.chunks, total)


def inverse_document_frequency(chunks: int, total: int) -> float:
    """ln(1 + (N - n + 0.5) / (n + 0.5)): Robertson and Sparck Jones' weight, kept above zero as Lucene does."""
    return math.log(1 + (max(total, chunks) - chunks + 0.5) / (chunks + 0.5))
