"""retrieve(): vector and lexical candidates under filters, fused, in one order that ties cannot change."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from ragd import telemetry
from ragd.errors import InvalidInput, LexicalDisabled
from ragd.fusion import fuse
from ragd.normalization import normalize
from ragd.store import Store, StoreState, execute, fetch_all
from ragd.types import Candidate, ListRank, RetrievePlan, canonical_json

BM25_K1 = 1.2
SCAN_TUPLES_MAX = 100_000

COLUMNS = """id, doc_id, chunk_index, content, start_char, end_char, context, tags, metadata::text, revision"""

# Equality on top-level keys; the containment before it lets an index help and is never narrower.
FILTERED = """
collection_id = %(collection_id)s AND enabled
  AND (%(tags_any)s::text[] IS NULL OR tags && %(tags_any)s::text[])
  AND (%(tags_all)s::text[] IS NULL OR tags @> %(tags_all)s::text[])
  AND (%(metadata)s::jsonb IS NULL OR (metadata @> %(metadata)s::jsonb AND NOT EXISTS (
        SELECT 1 FROM jsonb_each(%(metadata)s::jsonb) AS wanted
        WHERE metadata -> wanted.key IS DISTINCT FROM wanted.value)))
"""

# Without the cast that the HNSW index is over, so that every row is compared.
VECTOR_EXACT = f"""
SELECT {COLUMNS}, 1 - (embedding <=> %(vector)s::vector) AS score
FROM chunks
WHERE {FILTERED}
ORDER BY embedding <=> %(vector)s::vector, doc_id, chunk_index
LIMIT %(pool)s
"""

VECTOR_INDEXED = f"""
SELECT {COLUMNS}, 1 - ((embedding::{{cast}}) <=> %(vector)s::{{cast}}) AS score
FROM chunks
WHERE {FILTERED}
ORDER BY (embedding::{{cast}}) <=> %(vector)s::{{cast}}, doc_id, chunk_index
LIMIT %(pool)s
"""

LEXICAL = f"""
SELECT {COLUMNS}, -(lexical <#> %(weights)s::sparsevec) AS score
FROM chunks
WHERE {FILTERED} AND fts @@ %(words)s::tsquery
ORDER BY lexical <#> %(weights)s::sparsevec, doc_id, chunk_index
LIMIT %(pool)s
"""

QUERY_TERMS = """
SELECT lexeme, ragd_term(lexeme), cardinality(positions), coalesce(t.chunk_count, 0)
FROM unnest(to_tsvector(%(language)s::regconfig, %(query)s))
LEFT JOIN chunk_terms t ON t.collection_id = %(collection_id)s AND t.term = ragd_term(lexeme)
ORDER BY lexeme COLLATE "C"
"""

MATCHING_UP_TO = f"SELECT count(*) FROM (SELECT 1 FROM chunks WHERE {FILTERED} LIMIT %(most)s) AS matching"

SET_HNSW = """
SELECT set_config('hnsw.ef_search', %(ef_search)s, true),
       set_config('hnsw.iterative_scan', 'strict_order', true),
       set_config('hnsw.max_scan_tuples', %(scan_tuples)s, true)
"""

EF_SEARCH_MAX = 1000

ShortReason = Literal["collection_empty", "collection_small", "filters", "no_match", "approximate"]


@dataclass(frozen=True, slots=True)
class ShortResult:
    """Asked for k, got fewer, and why."""

    asked: int
    got: int
    reason: ShortReason
    message: str

    def as_dict(self) -> dict[str, Any]:
        return {"asked": self.asked, "got": self.got, "reason": self.reason, "message": self.message}


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What one retrieval made: the final candidates (at most k), the pool of each list, times in ms.

    fused holds the whole fused pool, of which candidates are the first k. exact is None when no vector list was asked
    for. query_tokens counts the embedder's tokens of the query (words when nothing was embedded).
    """

    candidates: list[Candidate]
    lists: dict[str, list[Candidate]]
    fused: list[Candidate]
    short_result: ShortResult | None
    timings_ms: dict[str, float]
    exact: bool | None
    query_tokens: int


@dataclass(slots=True)
class _Clock:
    took_ms: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.took_ms[name] = round((time.perf_counter() - began) * 1000, 3)


def retrieve(query: str, plan: RetrievePlan, store: Store) -> list[Candidate]:
    """The plan's best k candidates for the query, best first, ties by (doc_id, chunk_index).

    Must run inside a transaction (index settings are local to it). A filter that matches nothing gives []. An empty
    collection gives []. Raises InvalidInput for an empty query or a store without embedder in a mode that needs one,
    LexicalDisabled for hybrid and lexical mode on a collection without lexical index, EmbedderError.
    """
    return retrieve_detailed(query, plan, store).candidates


def retrieve_detailed(query: str, plan: RetrievePlan, store: Store) -> Retrieval:
    """retrieve() with everything that explains the ranking."""
    text = normalize(query).strip()
    if not text:
        raise InvalidInput("query must hold at least one visible character; it is empty", field="query")
    _check_mode(plan, store)
    clock = _Clock()
    state = store.state()
    lists: dict[str, list[Candidate]] = {}
    exact: bool | None = None
    vector, query_tokens = _embed_query(text, plan, store, clock)
    with telemetry.retrieve_span(
        query=text,
        top_k=plan.k,
        index=store.collection.name,
        filters=plan.filters if plan.filters else None,
        embedding_model=store.collection.embed_model,
    ) as span:
        if vector is not None:
            exact = _is_exact(plan, store, state)
            with clock.time("vector"), telemetry.vector_span(pool=plan.pool, exact=exact):
                lists["vector"] = _vector_candidates(vector, plan, store, exact)
        if plan.mode != "vector":
            with clock.time("lexical"), telemetry.lexical_span(query=text, pool=plan.pool):
                lists["lexical"] = _lexical_candidates(text, plan, store, state)
        with clock.time("fuse"):
            fused = _fuse(lists, plan)
        candidates = fused[: plan.k]
        telemetry.record_results(span, candidates)
    return Retrieval(
        candidates=candidates,
        lists=lists,
        fused=fused,
        short_result=_short_result(plan, state, len(candidates), exact),
        timings_ms=clock.took_ms,
        exact=exact,
        query_tokens=query_tokens,
    )


def _check_mode(plan: RetrievePlan, store: Store) -> None:
    if plan.mode != "vector" and not store.collection.hybrid_enabled:
        raise LexicalDisabled(
            f"collection {store.collection.name!r} keeps no lexical index, so mode {plan.mode!r} cannot be used; "
            "use mode 'vector', or make the collection with hybrid_enabled",
            field="mode",
        )
    if plan.mode != "lexical" and store.embedder is None:
        raise InvalidInput(f"mode {plan.mode!r} embeds the query, and the store has no embedder", field="mode")


def _embed_query(text: str, plan: RetrievePlan, store: Store, clock: _Clock) -> tuple[Sequence[float] | None, int]:
    name = store.collection.name
    if plan.mode == "lexical" or store.embedder is None:
        with telemetry.query_span(name, text):
            return None, len(text.split())
    embedder = store.embedder
    with clock.time("embed_query"), telemetry.query_span(name, text, embedder.model, embedder.dims):
        return embedder.embed_query(text), embedder.count_tokens(text)


def _scope(plan: RetrievePlan, store: Store) -> dict[str, Any]:
    filters = plan.filters
    return {
        "collection_id": store.collection.id,
        "pool": plan.pool,
        "tags_any": list(filters.tags_any) or None,
        "tags_all": list(filters.tags_all) or None,
        "metadata": canonical_json(dict(filters.metadata)) if filters.metadata else None,
    }


def _is_exact(plan: RetrievePlan, store: Store, state: StoreState) -> bool:
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
    ((matching,),) = fetch_all(store.connection, MATCHING_UP_TO, _scope(plan, store) | {"most": most})
    return int(matching) < most


def _vector_candidates(vector: Sequence[float], plan: RetrievePlan, store: Store, exact: bool) -> list[Candidate]:
    params = _scope(plan, store) | {"vector": vector_text(vector)}
    if exact:
        return _ranked(fetch_all(store.connection, VECTOR_EXACT, params), "vector", "cosine", 1.0)
    ef_search = min(EF_SEARCH_MAX, max(plan.ef_search or 0, plan.pool))
    settings = {"ef_search": str(ef_search), "scan_tuples": str(SCAN_TUPLES_MAX)}
    execute(store.connection, SET_HNSW, settings)
    sql = VECTOR_INDEXED.format(cast=store.collection.vector_cast)
    return _ranked(fetch_all(store.connection, sql, params), "vector", "cosine", 1.0)


def vector_text(vector: Sequence[float]) -> str:
    """pgvector's text form, with the shortest digits that give the same float back."""
    return "[" + ",".join(map(repr, map(float, vector))) + "]"


def _lexical_candidates(text: str, plan: RetrievePlan, store: Store, state: StoreState) -> list[Candidate]:
    """BM25 over the collection's statistics: any word may match. Words that no chunk holds change nothing."""
    params = {"language": store.collection.language, "query": text, "collection_id": store.collection.id}
    terms = [row for row in fetch_all(store.connection, QUERY_TERMS, params) if row[3] > 0]
    if not terms:
        return []
    weights: dict[int, float] = {}
    for _, term, repeats, chunks in terms:
        weights[term] = weights.get(term, 0.0) + repeats * inverse_document_frequency(chunks, state.chunk_count)
    highest = sum(weights.values()) * (BM25_K1 + 1)
    lexical = {
        "weights": "{" + ",".join(f"{term}:{weights[term]!r}" for term in sorted(weights)) + "}/1000000000",
        "words": " | ".join(_quoted(lexeme) for lexeme, *_ in terms),
    }
    rows = fetch_all(store.connection, LEXICAL, _scope(plan, store) | lexical)
    return _ranked(rows, "lexical", "bm25", highest)


def inverse_document_frequency(chunks: int, total: int) -> float:
    """ln(1 + (N - n + 0.5) / (n + 0.5)): Robertson and Sparck Jones' weight, kept above zero as Lucene does."""
    return math.log(1 + (max(total, chunks) - chunks + 0.5) / (chunks + 0.5))


def _quoted(lexeme: str) -> str:
    escaped = lexeme.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _ranked(rows: Sequence[tuple[Any, ...]], name: str, kind: str, highest: float) -> list[Candidate]:
    """Rows in the order of the database, as candidates; unit_score is score / highest, clipped to 0..1."""
    candidates = []
    for rank, row in enumerate(rows, 1):
        chunk_id, doc_id, chunk_index, content, start, end, context, tags, metadata, revision, score = row
        candidates.append(
            Candidate(
                doc_id=doc_id,
                chunk_index=chunk_index,
                content=content,
                score=float(score),
                tags=tuple(tags),
                metadata=json.loads(metadata),
                start=start,
                end=end,
                context=context,
                score_kind=kind,
                unit_score=min(1.0, max(0.0, float(score) / highest)),
                ranks={name: ListRank(rank, float(score))},
                chunk_id=chunk_id,
                revision=revision,
            )
        )
    return candidates


def _fuse(lists: Mapping[str, Sequence[Candidate]], plan: RetrievePlan) -> list[Candidate]:
    """One list keeps its own scores; two are fused by reciprocal rank."""
    if len(lists) == 1:
        return list(next(iter(lists.values())))
    with telemetry.fuse_span(method="rrf", lists_count=len(lists)):
        return fuse(lists, params={"rrf_k": plan.rrf_k, "weights": dict(plan.weights)})


def _short_result(plan: RetrievePlan, state: StoreState, got: int, exact: bool | None) -> ShortResult | None:
    if got >= plan.k:
        return None
    reason: ShortReason
    if state.chunk_count == 0:
        reason, why = "collection_empty", "the collection has no chunks; upload documents first"
    elif plan.filters:
        reason, why = "filters", "fewer chunks pass the filters (tags_any, tags_all, metadata); loosen them"
    elif plan.mode == "lexical":
        reason, why = "no_match", "fewer chunks hold any word of the query; try mode hybrid or vector"
    elif state.chunk_count < plan.k:
        reason, why = "collection_small", f"the collection has only {state.chunk_count} chunks"
    elif exact is False:
        reason, why = "approximate", "the HNSW scan stopped early; raise ef_search or set exact to always"
    else:
        reason, why = "filters", "some chunks are disabled"
    return ShortResult(plan.k, got, reason, f"asked for {plan.k}, got {got}: {why}")
