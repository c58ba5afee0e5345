"""Why this ranking: every stage as a column, the arithmetic of every row, what was lost and why, the SQL that ran.

`explain` retrieves by the same `retrieve_detailed` as every channel and looks at what it made. Nothing is written, and
what the explanation itself asks of the database leaves no span.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from django.db import transaction

from collections_app.access_context import current_access
from collections_app.domain.permissions import Permission
from collections_app.models import Collection, Document
from collections_app.services.generations.versions import read_version
from collections_app.services.governance.security_policy import policy_of
from collections_app.services.history.past_indexes import read_as_of
from collections_app.stores import open_store, reading
from ragd import telemetry
from ragd.insight.ranking_comparison import overlap_at, recall_of
from ragd.insight.score_parts import QueryWord, cosine_parts, find_words, query_words, word_shares, written_forms
from ragd.insight.what_if import disabled_candidates
from ragd.models.caching_embedder import CachingEmbedder
from ragd.normalization import normalize
from ragd.search.retrieval import Retrieval, retrieve_detailed, with_rows
from ragd.store.state import StoreState
from ragd.store.store import Store
from ragd.types import HOP_LISTS, POOL_MAX, Candidate, Filters, RetrievePlan, Vector
from retrieval_app.citations.places import page_of
from retrieval_app.citations.result_records import chunk_key, title_of
from retrieval_app.explanations.dropped_candidates import Lists, find_dropped
from retrieval_app.explanations.score_arithmetic import Parts, ask_reranker, fused_terms, row_arithmetic
from retrieval_app.explanations.sql_statements import (
    RecordingConnection,
    alias_of,
    bare_statements,
    explain_statements,
)

BEYOND_POOL = 10  # how far below the pool of each list the explanation looks


def explain(
    collection: Collection,
    query: str,
    plan: RetrievePlan,
    *,
    analyze: bool = False,
    as_of: datetime | None = None,
    index_version: int | None = None,
) -> dict[str, Any]:
    """How the plan ranks the collection's chunks for the query, as JSON.

    columns: the stages that the plan has, in order ("vector", "lexical", "fused", "reranked", "final"), each {name,
    score_kind, size, rows}; a row is {key, doc_id, chunk_index, rank, score, from: the rank in each column before,
    None where it is not there; gain: ranks won against the column before, None where there is nothing to compare}.
    candidates: by key ("doc_id#chunk_index"), every chunk of any column and every lost one: its text and place, ranks,
    and arithmetic (see `retrieval_app.explanations.score_arithmetic.row_arithmetic`), with highlights: [start, end,
    lexeme] in content and in context. words: what each word of the query counts. losses: see
    `retrieval_app.explanations.dropped_candidates.DroppedCandidate`.
    links, where the plan has hops: by key, how a hop found a chunk: {hop, term, doc_id, chunk_index}.
    approximate: both vector lists where the collection has an HNSW index, else None. statements: the SQL that ran, each
    with its plan; analyze has the database run them again and measure. plans_hidden: documents may be kept from whoever
    asks, so that the statements stand there without plans.
    as_of: of the collection as it was then. index_version: by that one instead of the one that serves. Raises what
    `retrieve_detailed`, `read_as_of` and `read_version` raise.
    """
    witness = RetrievalRecorder()
    with telemetry.silenced():
        if as_of is not None:
            read_as_of(collection, as_of, partial(witness, normalize(query).strip(), plan))
            return hide_texts(witness.explain(analyze=analyze), collection)
        if index_version is not None:
            read_version(collection, index_version, partial(witness, normalize(query).strip(), plan))
            return hide_texts(witness.explain(analyze=analyze), collection)
        store = open_store(collection)
        with reading(alias_of(store.connection)):
            witness(normalize(query).strip(), plan, store)
    return hide_texts(witness.explain(analyze=analyze), collection)


def hide_texts(explanation: dict[str, Any], collection: Collection) -> dict[str, Any]:
    """The texts of the candidates and their spans as the collection lets them be shown; every place stays right."""
    policy = policy_of(collection)
    if not policy.acts:
        return explanation
    candidates = explanation["candidates"]
    stored = {key: record["content"] for key, record in candidates.items()}
    for record in candidates.values():
        record |= {name: policy.show(record[name]) for name in ("title", "context", "content")}
    spans = []
    for span in explanation["spans"]:
        key, text = f"{span['doc_id']}#{span['chunk_index']}", span["content"]
        start = stored.get(key, "").find(text)  # a piece of what is hidden holds no half of a secret
        visible = candidates[key]["content"][start : start + len(text)] if start >= 0 else policy.show(text)
        spans.append({**span, "content": visible})
    shown = explanation | {"spans": spans}
    if "links" in explanation:
        shown["links"] = {key: link | {"term": policy.show(link["term"])} for key, link in explanation["links"].items()}
    return shown


@dataclass
class RetrievalRecorder:
    """A `retrieve_detailed` that keeps what it saw, to be explained afterwards. For one call."""

    query: str = ""
    plan: RetrievePlan = field(default_factory=RetrievePlan)
    retrieval: Retrieval | None = None

    def __call__(self, query: str, plan: RetrievePlan, store: Store) -> Retrieval:
        self.query, self.plan = query, plan
        self.recorder = RecordingConnection(store.connection)
        self.embedder = CachingEmbedder(store.embedder) if store.embedder else None
        watched = copy.copy(store)
        watched.connection = self.recorder
        watched.embedder = self.embedder
        retrieval = retrieve_detailed(query, plan, watched)
        # what the explanation asks by itself is not recorded, and embeds nothing again
        self.store = copy.copy(watched)
        self.store.connection = store.connection
        self.retrieval = with_rows(retrieval, self.store)
        return retrieval

    def explain(self, *, analyze: bool = False) -> dict[str, Any]:
        """The explanation of the call, with all texts as they are stored: `hide_texts` before anybody sees it."""
        if self.retrieval is None:
            raise RuntimeError("nothing was retrieved yet; call the witness first")
        with telemetry.silenced(), transaction.atomic(using=alias_of(self.store.connection)):
            return _Explanation(self.query, self.plan, self.store, self.retrieval, self.recorder, self.vector).as_dict(
                analyze=analyze
            )

    @property
    def vector(self) -> Vector | None:
        return self.embedder.latest_query if self.embedder else None


@dataclass
class _Explanation:
    query: str
    plan: RetrievePlan
    store: Store
    retrieval: Retrieval
    recorder: RecordingConnection
    vector: Vector | None

    def as_dict(self, *, analyze: bool) -> dict[str, Any]:
        losses = find_dropped(self.plan, self.retrieval, self.lists, self.parts)
        candidates = self._describe_all([*self._everything(), *(loss.candidate for loss in losses)])
        retrieval = self.retrieval
        return {
            "query": self.query,
            "collection": self.store.collection.name,
            "generation": self.store.collection.generation,
            "embed_model": self.store.collection.embed_model,
            "plan": self.plan.as_dict(),
            "plan_hash": self.plan.hash,
            "columns": columns_of(retrieval, self.plan),
            "candidates": candidates,
            "words": [word.as_dict() for word in self.words],
            "losses": [loss.as_dict() for loss in losses],
            **({"links": _links(retrieval)} if self.plan.hops > 1 else {}),
            "spans": retrieval.spans,
            "tokens_before": retrieval.tokens_before,
            "tokens_after": retrieval.tokens_after,
            "short_result": retrieval.short_result.as_dict() if retrieval.short_result else None,
            "exact": retrieval.exact,
            "chunk_count": self.state.open_count,
            "approximate": self._approximate(),
            "timings_ms": retrieval.timings_ms,
            "query_tokens": retrieval.query_tokens,
            "statements": self._statements(analyze=analyze),
            "plans_hidden": not self.reads_all,
        }

    @property
    def reads_all(self) -> bool:
        """Whether no document of the collection is ever kept from whoever asks, whatever documents there are."""
        return current_access().may(Permission.ADMINISTER, self.store.collection.id)

    def _statements(self, *, analyze: bool) -> list[dict[str, Any]]:
        if not self.reads_all:
            return bare_statements(self.recorder.statements)
        return explain_statements(self.store.connection, self.recorder.statements, analyze=analyze)

    @cached_property
    def state(self) -> StoreState:
        return self.store.state()

    @cached_property
    def words(self) -> list[QueryWord]:
        return query_words(self.query, self.store, self.state) if self.plan.mode != "vector" else []

    @cached_property
    def lists(self) -> Lists:
        """What the lists hold below their pool, and would hold without the filters or with what is disabled."""
        bare = replace(self.plan, rerank=None, compress=None, token_budget=None, hops=1)
        pool = min(POOL_MAX, self.plan.pool + BEYOND_POOL)
        deeper = self._retrieve(replace(bare, candidate_pool=pool)).lists
        unfiltered = self._retrieve(replace(bare, filters=Filters())).lists if self.plan.filters else {}
        disabled = disabled_candidates(self.query, self.vector, bare, self.store, self.state)
        return Lists(deeper, unfiltered, disabled, self._states_of(disabled), self._documents_of(unfiltered))

    def _documents_of(self, lists: Mapping[str, Sequence[Candidate]]) -> dict[str, dict[str, Any]]:
        """What a typed filter reads of the documents."""
        if not self.plan.filters.where:
            return {}
        names = {candidate.doc_id for candidates in lists.values() for candidate in candidates}
        read = ("doc_id", "title", "created_at", "updated_at", "language", "media_type")
        rows = Document.objects.filter(collection_id=self.store.collection.id, doc_id__in=names)
        return {str(row["doc_id"]): row for row in rows.values(*read)}

    def _states_of(self, disabled: Mapping[str, Sequence[Candidate]]) -> dict[str, str]:
        names = {candidate.doc_id for candidates in disabled.values() for candidate in candidates}
        rows = Document.objects.filter(collection_id=self.store.collection.id, doc_id__in=names, enabled=False)
        return {
            doc_id: "its document is archived" if archived_at else "its document is disabled"
            for doc_id, archived_at in rows.values_list("doc_id", "archived_at")
        }

    @cached_property
    def parts(self) -> Parts:
        """What the scores are made of, for every chunk that the explanation names."""
        named = [*self._everything(), *self.lists.everything()]
        ids = list(dict.fromkeys(item.chunk_id for item in named if item.chunk_id is not None))
        return Parts(
            query=self.query,
            shares=word_shares(self.words, ids, self.store),
            cosines=cosine_parts(self.vector, ids, self.store) if self.vector is not None else {},
            terms=fused_terms(self.retrieval, self.plan),
            forms=written_forms(self.words, ids, self.store),
            reranker_parts=ask_reranker(
                self.store.rerankers.get(self.plan.rerank or ""), self.query, self.retrieval.fused
            ),
        )

    def _retrieve(self, plan: RetrievePlan) -> Retrieval:
        return with_rows(retrieve_detailed(self.query, plan, self.store), self.store)

    def _everything(self) -> list[Candidate]:
        """Every candidate of the retrieval, in its last form."""
        known: dict[tuple[str, int], Candidate] = {}
        for column in (*self.retrieval.lists.values(), self.retrieval.fused, self.retrieval.reranked):
            known |= {candidate.key: candidate for candidate in column}
        return list(known.values())

    def _describe_all(self, named: Iterable[Candidate]) -> dict[str, dict[str, Any]]:
        described: dict[str, dict[str, Any]] = {}
        for candidate in named:
            if (key := chunk_key(candidate)) not in described:
                described[key] = self._describe(candidate)
        return described

    def _describe(self, candidate: Candidate) -> dict[str, Any]:
        return {
            "doc_id": candidate.doc_id,
            "chunk_index": candidate.chunk_index,
            "title": title_of(candidate),
            "context": candidate.context,
            "content": candidate.content,
            "start": candidate.start,
            "end": candidate.end,
            "page": page_of(candidate.attributes),
            "tags": list(candidate.tags),
            "metadata": dict(candidate.metadata),
            "attributes": dict(candidate.attributes),
            "revision": candidate.revision,
            "unit_score": candidate.unit_score,
            "ranks": {
                name: {"rank": list_rank.rank, "score": list_rank.score} for name, list_rank in candidate.ranks.items()
            },
            "arithmetic": row_arithmetic(candidate, self.plan, self.parts),
            "highlights": {
                "content": [list(list_rank) for list_rank in find_words(candidate.content, self.parts.forms)],
                "context": [list(list_rank) for list_rank in find_words(candidate.context, self.parts.forms)],
            },
        }

    def _approximate(self) -> dict[str, Any] | None:
        """The vector list by the exact scan and through the HNSW index, and how much of the first the second found."""
        if not self.state.vector_index or self.plan.mode == "lexical":
            return None
        bare = replace(self.plan, mode="vector", rerank=None, compress=None, token_budget=None, hops=1)
        exact, indexed = self._retrieve(replace(bare, exact="always")), self._retrieve(replace(bare, exact="never"))
        truth, result = ([chunk_key(item) for item in each.lists["vector"]] for each in (exact, indexed))
        k = self.plan.k
        return {
            "pool": self.plan.pool,
            "exact": truth,
            "approximate": result,
            "overlap": overlap_at(truth, result, self.plan.pool).as_dict(),
            "recall_at_k": recall_of(result[:k], truth[:k]),
            "recall_at_pool": recall_of(result, truth),
            "missed": [{"key": key, "rank": rank} for rank, key in enumerate(truth, 1) if key not in set(result)],
            "exact_ms": exact.timings_ms["vector"],
            "approximate_ms": indexed.timings_ms["vector"],
        }


def columns_of(retrieval: Retrieval, plan: RetrievePlan) -> list[dict[str, Any]]:
    """The stages that the plan has, in the order in which they follow each other."""
    stages: list[tuple[str, Sequence[Candidate]]] = list(retrieval.lists.items())
    if len(retrieval.lists) > 1:
        stages.append(("fused", retrieval.fused))
    if plan.rerank:
        stages.append(("reranked", retrieval.reranked))
    stages.append(("final", retrieval.candidates))
    columns: list[dict[str, Any]] = []
    locations: dict[str, dict[str, int]] = {}
    for name, candidates in stages:
        sources = list(locations) if name == "fused" else list(locations)[-1:]
        if name == "lexical" or name in HOP_LISTS:
            sources = []
        rows = [_row(candidate, rank, {source: locations[source] for source in sources}, name)
                for rank, candidate in enumerate(candidates, 1)]  # fmt: skip
        kind = candidates[0].score_kind if candidates else ""
        columns.append({"name": name, "score_kind": kind, "size": len(rows), "rows": rows})
        locations[name] = {row["key"]: row["rank"] for row in rows}
    return columns


def _links(retrieval: Retrieval) -> dict[str, dict[str, Any]]:
    return {f"{doc_id}#{index}": asdict(link) for (doc_id, index), link in retrieval.links.items()}


def _row(candidate: Candidate, rank: int, sources: Mapping[str, Mapping[str, int]], column: str) -> dict[str, Any]:
    key = chunk_key(candidate)
    before = {name: positions.get(key) for name, positions in sources.items()}
    previous = next(iter(before.values())) if len(before) == 1 else None
    list_rank = candidate.ranks.get(column)
    return {
        "key": key,
        "doc_id": candidate.doc_id,
        "chunk_index": candidate.chunk_index,
        "rank": rank,
        "score": list_rank.score if list_rank and column != "final" else candidate.score,
        "from": before,
        "gain": previous - rank if previous is not None else None,
    }
