"""retrieve(): candidates under filters, fused, reranked and compressed by one plan; no tie depends on chance."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ragd import telemetry
from ragd.errors import EmbedderError, InvalidInput, LexicalDisabled, QueryVectorError
from ragd.models.reranking import AnyReranker, TokenReranker, rerank
from ragd.normalization import has_visible, normalize
from ragd.search.candidates import fill, with_text, without
from ragd.search.compression import CompressPolicy, compress
from ragd.search.fusion import Fused, fuse
from ragd.search.hops import Hops, Link, add_codes, codes_of, search_hops, weights_of
from ragd.search.lexical_search import lexical_candidates
from ragd.search.vector_search import count_passing, count_readable, read_state, vector_list
from ragd.store.store import Store, StoreState
from ragd.text.windows import check_vector
from ragd.types import POOL_MAX, Candidate, RetrievePlan, Vector

ShortReason = Literal["collection_empty", "collection_small", "filters", "no_match", "approximate", "withheld"]


@dataclass(frozen=True, slots=True)
class ShortResult:
    """Asked for k, got fewer, and why. "withheld": the caller of retrieve() left some out of what it gives."""

    asked: int
    got: int
    reason: ShortReason
    message: str

    def as_dict(self) -> dict[str, Any]:
        return {"asked": self.asked, "got": self.got, "reason": self.reason, "message": self.message}


@dataclass(frozen=True, slots=True)
class ListRecord:
    """What the lists of one retrieval are made of, and what stands behind their pool.

    text: the normalized query. vector: of it, None without a vector list. state: by `read_state`. beyond: list name ->
    the rows that follow the pool, best first.
    """

    text: str
    vector: Vector | None
    state: StoreState
    beyond: Mapping[str, Sequence[Candidate]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What one retrieval made: the final candidates (at most k), the pool of each list, times in ms.

    fused holds the whole fused pool, reranked the same pool in the reranker's order (equal to fused without one);
    candidates are the first k of reranked. Of the lists, and of the pool behind the first k, only keys, scores and
    ranks are sure to be there; `with_rows` reads the rest. spans is what compress() made of candidates, [] when the
    plan asks for none; tokens_before and tokens_after count the words of the candidates and of their spans, None
    without compress. exact is None when no vector list was asked for. query_tokens counts the embedder's tokens of the
    query (words when nothing was embedded). links: of the chunks that a hop found, by their key, how. record: what
    explains the lists, where it was asked for. state: of the store, by which the lists were made; None where there are
    none.
    """

    candidates: list[Candidate]
    lists: Mapping[str, Sequence[Candidate]]
    fused: Sequence[Candidate]
    reranked: Sequence[Candidate]
    spans: list[dict[str, Any]]
    tokens_before: int | None
    tokens_after: int | None
    short_result: ShortResult | None
    timings_ms: dict[str, float]
    exact: bool | None
    query_tokens: int
    links: Mapping[tuple[str, int], Link] = field(default_factory=dict)
    record: ListRecord | None = None
    state: StoreState | None = None


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
    """The plan's best k candidates for the query, best first, ties by (doc_id, chunk_index): those of
    retrieve_detailed(), which says what it needs and raises."""
    return retrieve_detailed(query, plan, store).candidates


def retrieve_detailed(query: str, plan: RetrievePlan, store: Store, *, beyond: int = 0) -> Retrieval:
    """Everything that one retrieval made; its candidates are what a search gives.

    beyond: record the lists, each with up to so many rows behind its pool; the results stay the same.

    Must run inside a transaction (index settings are local to it). At REPEATABLE READ its statements see one state of
    the store. At READ COMMITTED a writer may remove a chunk between two of them: a candidate whose row is gone when its
    text is read is no result, and the lists are fused again as if it had never stood in them.

    A filter that matches nothing gives no candidates, and so does an empty collection. Raises InvalidInput for an empty
    query, a reranker that the store does not have, or a store without embedder in a mode that needs one,
    LexicalDisabled for hybrid and lexical mode on a collection without lexical index, QueryVectorError, RerankerError.
    """
    text = normalize(query).strip()
    if not has_visible(text):
        raise InvalidInput("query must hold at least one visible character; it is empty", field="query")
    check_mode(plan, store)
    reranker = find_reranker(plan, store)
    clock = _Clock()
    state = read_state(plan, store, text)
    tokens = reranker.reads_tokens if isinstance(reranker, TokenReranker) else 0
    # Lists of keys are narrow and quick. Hops and codes read the texts of a list, and one list alone is the result,
    # unless a reranker reads the rows' token vectors too.
    keys_only = (plan.mode == "hybrid" or tokens > 0) and plan.hops == 1 and not codes_of(text)
    vector, query_tokens = _embed_query(text, plan, store, clock)
    with telemetry.retrieve_span(
        query=text,
        top_k=plan.k,
        index=store.collection.name,
        filters=plan.filters if plan.filters else None,
        embedding_model=store.collection.embed_model,
        metadata=_facts(plan, store),
    ) as span:
        record = ListRecord(text, vector, state)
        lists, exact = read_lists(record, plan, store, beyond=beyond, keys_only=keys_only, clock=clock)
        if beyond:
            record = replace(record, beyond={name: each[plan.pool :] for name, each in lists.items()})
            lists = {name: each[: plan.pool] for name, each in lists.items()}
        with clock.time("fuse"):
            lists = add_codes(text, lists, plan)
            fused = fuse_lists(lists, plan)
        hops = Hops()
        if plan.hops > 1:
            with clock.time("hops"):
                hops = search_hops(text, vector, fused, plan, store, state)
                if hops.lists:
                    lists |= hops.lists
                    fused = fuse_lists(lists, plan)
        if keys_only or tokens:
            count = plan.k if reranker is None else len(fused)
            lists, fused = _read_rows(lists, fused, plan, store, count=count, tokens=tokens)
        telemetry.record_results(span, fused[: plan.k])
        short = _short_result(plan, state, min(plan.k, len(fused)), exact, store)
        telemetry.record_counts(span, short_result=short.reason if short else None, pool_count=len(fused))
    reranked = _rerank(text, fused, plan, reranker, clock)
    candidates = list(reranked[: plan.k])
    spans = _compress(text, candidates, plan, clock)
    return Retrieval(
        candidates=candidates,
        lists=lists,
        fused=fused,
        reranked=reranked,
        spans=spans,
        tokens_before=_count_words(candidates) if plan.compress else None,
        tokens_after=_count_kept(spans) if plan.compress else None,
        short_result=short,
        timings_ms=clock.took_ms,
        exact=exact,
        query_tokens=query_tokens,
        links=hops.links,
        record=record if beyond else None,
        state=state,
    )


def read_lists(
    record: ListRecord,
    plan: RetrievePlan,
    store: Store,
    *,
    beyond: int = 0,
    keys_only: bool = False,
    clock: _Clock | None = None,
) -> tuple[dict[str, Sequence[Candidate]], bool | None]:
    """The vector and the lexical list of the plan, and whether the vector list is exact.

    beyond: so many rows more than the pool of each, except from a filtered scan of the vector index, which finds others
    when it looks for more.
    """
    clock = clock or _Clock()
    rows = min(POOL_MAX, plan.pool + beyond)
    lists: dict[str, Sequence[Candidate]] = {}
    exact: bool | None = None
    if record.vector is not None:
        with clock.time("vector"), telemetry.stage(telemetry.VECTOR, pool=plan.pool) as span:
            lists["vector"], exact = vector_list(
                record.vector, plan, store, record.state, rows=rows, keys_only=keys_only
            )
            telemetry.record_counts(span, exact=exact)
    if plan.mode != "vector":
        wide = replace(plan, candidate_pool=rows) if beyond else plan
        with clock.time("lexical"), telemetry.stage(telemetry.LEXICAL, query=record.text, pool=plan.pool):
            lists["lexical"] = lexical_candidates(record.text, wide, store, record.state, keys_only=keys_only)
    return lists, exact


def _read_rows(
    lists: dict[str, Sequence[Candidate]],
    fused: Sequence[Candidate],
    plan: RetrievePlan,
    store: Store,
    *,
    count: int,
    tokens: int,
) -> tuple[dict[str, Sequence[Candidate]], Sequence[Candidate]]:
    """The lists and the fused pool, whose first `count` have all that their rows hold; tokens: as for `fill`.

    Where rows of these are gone, their keys are taken out of the lists, and what remains is fused.
    """
    while True:
        first = fill(fused[:count], store, tokens=tokens)
        if len(first) == min(count, len(fused)):
            return lists, fused.beginning(first) if isinstance(fused, Fused) else [*first, *fused[count:]]
        gone = {candidate.key for candidate in fused[:count]} - {candidate.key for candidate in first}
        lists = {name: without(gone, each, name) for name, each in lists.items()}
        fused = fuse_lists(lists, plan)


def with_rows(retrieval: Retrieval, store: Store) -> Retrieval:
    """The same retrieval with the rows of its lists, its whole pool and its record; what is gone meanwhile is left out
    of all."""
    record = retrieval.record
    columns = (*retrieval.lists.values(), retrieval.fused, *(record.beyond.values() if record else ()))
    every = {each.key: each for column in columns for each in column}
    rows = {each.key: each for each in fill(list(every.values()), store)}

    def read(column: Sequence[Candidate]) -> list[Candidate]:
        return [with_text(rows[each.key], each, each.tokens) for each in column if each.key in rows]

    return replace(
        retrieval,
        lists={name: read(column) for name, column in retrieval.lists.items()},
        fused=read(retrieval.fused),
        reranked=read(retrieval.reranked),
        record=record and replace(record, beyond={name: read(column) for name, column in record.beyond.items()}),
    )


def _facts(plan: RetrievePlan, store: Store) -> dict[str, Any]:
    """What a span says of the search beside the conventions' fields."""
    facts = {
        "mode": plan.mode,
        "candidate_pool": plan.pool,
        "index_version": store.collection.index_version,
        "plan_hash": plan.hash,
        "rerank": plan.rerank,
        "compress": plan.compress,
    }
    return {name: value for name, value in facts.items() if value is not None}


def check_mode(plan: RetrievePlan, store: Store) -> None:
    """Raise LexicalDisabled or InvalidInput for a mode that the store cannot serve."""
    if plan.mode != "vector" and not store.collection.hybrid_enabled:
        raise LexicalDisabled(
            f"collection {store.collection.name!r} keeps no lexical index, so mode {plan.mode!r} cannot be used; "
            "use mode 'vector', or make the collection with hybrid_enabled",
            field="mode",
        )
    if plan.mode != "lexical" and store.embedder is None:
        raise InvalidInput(f"mode {plan.mode!r} embeds the query, and the store has no embedder", field="mode")


def find_reranker(plan: RetrievePlan, store: Store) -> AnyReranker | None:
    """The one that the plan names, None where it names none. Raises InvalidInput for one that the store lacks."""
    if plan.rerank is None:
        return None
    if plan.rerank not in store.rerankers:
        known = ", ".join(sorted(store.rerankers)) or "none"
        raise InvalidInput(f"there is no reranker {plan.rerank!r}; the rerankers here are: {known}", field="rerank")
    return store.rerankers[plan.rerank]


def _embed_query(text: str, plan: RetrievePlan, store: Store, clock: _Clock) -> tuple[Sequence[float] | None, int]:
    name = store.collection.name
    if plan.mode == "lexical" or store.embedder is None:
        with telemetry.query_span(name, text):
            return None, len(text.split())
    embedder = store.embedder
    with clock.time("embed_query"), telemetry.query_span(name, text, embedder.model, embedder.dims):
        try:
            vector = embedder.embed_query(text)
            check_vector(vector, store.collection.embed_dims, "the vector of the query")
        except (EmbedderError, InvalidInput) as error:
            kind, retryable = getattr(error, "kind", "invalid_vector"), getattr(error, "retryable", True)
            wait_s = getattr(error, "retry_after_s", None)
            raise QueryVectorError(error.message, kind=kind, retryable=retryable, retry_after_s=wait_s) from error
        return vector, embedder.count_tokens(text)


def fuse_lists(lists: Mapping[str, Sequence[Candidate]], plan: RetrievePlan) -> Sequence[Candidate]:
    """One list keeps its own scores; several are fused by reciprocal rank."""
    if len(lists) == 1:
        return list(next(iter(lists.values())))
    with telemetry.stage(telemetry.FUSE, method="rrf", lists_count=len(lists)):
        return fuse(lists, params={"rrf_k": plan.rrf_k, "weights": weights_of(lists, plan)})


def _rerank(
    text: str, fused: Sequence[Candidate], plan: RetrievePlan, reranker: AnyReranker | None, clock: _Clock
) -> Sequence[Candidate]:
    if reranker is None:
        return fused
    with (
        clock.time("rerank"),
        telemetry.rerank_span(model=reranker.name, query=text, candidates=fused, top_k=plan.k) as span,
    ):
        reranked = rerank(text, fused, reranker)
        telemetry.record_reranked(span, reranked[: plan.k])
    return reranked


def _compress(text: str, candidates: list[Candidate], plan: RetrievePlan, clock: _Clock) -> list[dict[str, Any]]:
    if plan.compress is None:
        return []
    policy = CompressPolicy(kind=plan.compress, token_budget=plan.token_budget or CompressPolicy().token_budget)
    with clock.time("compress"), telemetry.stage(telemetry.COMPRESS, query=text, input_count=len(candidates)) as span:
        spans = compress(text, candidates, policy)
        before, after = _count_words(candidates), _count_kept(spans)
        telemetry.record_counts(span, output_count=len(spans), tokens_before=before, tokens_after=after)
    return spans


def _count_words(candidates: Sequence[Candidate]) -> int:
    return sum(len(candidate.content.split()) for candidate in candidates)


def _count_kept(spans: Sequence[Mapping[str, Any]]) -> int:
    return sum(int(span["tokens_after"]) for span in spans)


def _short_result(
    plan: RetrievePlan, state: StoreState, got: int, exact: bool | None, store: Store
) -> ShortResult | None:
    if got >= plan.k:
        return None
    reason: ShortReason
    # the same whether others are kept from the reader or not
    readable = state.chunk_count if store.principals is None else count_readable(store, plan.k)
    if not readable:
        reason, why = "collection_empty", "the collection has no chunks that you may read; upload documents first"
    elif plan.filters and (exact or count_passing(plan, store, plan.k) < plan.k):
        reason, why = "filters", "fewer chunks pass the filters (tags_any, tags_all, metadata, filter); loosen them"
    elif plan.mode == "lexical":
        reason, why = "no_match", "fewer chunks hold any word of the query; try mode hybrid or vector"
    elif readable < plan.k:
        reason, why = "collection_small", f"the collection has only {readable} chunks that you may read"
    elif exact is False:
        reason, why = "approximate", "the HNSW scan stopped early; raise ef_search or set exact to always"
    else:
        reason, why = "filters", "some chunks are disabled"
    return ShortResult(plan.k, got, reason, f"asked for {plan.k}, got {got}: {why}")
