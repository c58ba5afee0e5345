"""What a plan lost on the way from the lists to the results, at which stage and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.utils.translation import gettext_noop

from collections_app.documents.filters import write_filter
from ragd.conditions import first_failure
from ragd.insight.what_if import would_be_rank
from ragd.search.compression import CompressPolicy, compress
from ragd.search.retrieval import ListRecord, Retrieval
from ragd.store.store import Store
from ragd.types import CODES, HOP_LISTS, Candidate, Filters, RetrievePlan
from retrieval_app.answers.result_records import chunk_key
from retrieval_app.playground.score_arithmetic import Parts
from retrieval_app.playground.sql_statements import Statement

Reason = Literal[
    "filtered", "disabled", "below_pool", "not_in_list", "missed_by_index", "cut_by_k", "cut_by_rerank", "over_budget",
    "no_span", "shortened",
]  # fmt: skip

# in the order in which they matter to somebody who misses a result
REASONS: Mapping[Reason, str] = {
    "filtered": gettext_noop("Excluded by a filter"),
    "disabled": gettext_noop("Disabled"),
    "cut_by_rerank": gettext_noop("Below k after reranking"),
    "missed_by_index": gettext_noop("Missed by the index"),
    "over_budget": gettext_noop("Over max context tokens"),
    "no_span": gettext_noop("Removed by compression"),
    "shortened": gettext_noop("Shortened by compression"),
    "cut_by_k": gettext_noop("Below k"),
    "below_pool": gettext_noop("Outside top N"),
    "not_in_list": gettext_noop("Not in both lists"),
}
FILTERED_MIN = 10  # so many places of an unfiltered list are looked at, or k if that is more


@dataclass(frozen=True, slots=True)
class DroppedCandidate:
    """A chunk that a stage left behind. rank: its place in the ranking that lost it, None where it had none."""

    candidate: Candidate
    stage: str
    reason: Reason
    rank: int | None
    message: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "key": chunk_key(self.candidate),
            "doc_id": self.candidate.doc_id,
            "chunk_index": self.candidate.chunk_index,
            "stage": self.stage,
            "reason": self.reason,
            "rank": self.rank,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class RankingRecord:
    """A retrieval with the lists that explain it, by name, read in its transaction.

    unfiltered: as they were without filters, {} without filters. disabled: the best disabled chunks, {} without any.
    other_scan: the vector list by the exact scan where the retrieval used the index, by the index where it scanned, and
    the time in ms; None without an index.
    """

    plan: RetrievePlan
    store: Store
    retrieval: Retrieval
    record: ListRecord
    statements: list[Statement]
    unfiltered: Mapping[str, Sequence[Candidate]]
    disabled: Mapping[str, Sequence[Candidate]]
    other_scan: tuple[Sequence[Candidate], float] | None

    def everything(self) -> Iterator[Candidate]:
        """Every candidate of any list."""
        for lists in (self.retrieval.lists, self.record.beyond, self.unfiltered, self.disabled):
            for candidates in lists.values():
                yield from candidates


def find_dropped(
    ranking: RankingRecord, documents: Mapping[str, Mapping[str, Any]], parts: Parts
) -> list[DroppedCandidate]:
    """In the order of the stages, within each by rank. A chunk may be lost by one list and kept by the other.

    documents: doc_id -> what a typed filter reads of it, and its state.
    """
    plan, retrieval = ranking.plan, ranking.retrieval
    return [
        *_filtered(ranking, documents),
        *_disabled(ranking, documents),
        *_below_pool(ranking),
        *_not_in_list(retrieval, parts),
        *_cut(plan, retrieval),
        *_uncompressed(plan, retrieval, parts.query),
    ]


def _filtered(ranking: RankingRecord, documents: Mapping[str, Mapping[str, Any]]) -> Iterator[DroppedCandidate]:
    plan = ranking.plan
    for name, candidates in ranking.unfiltered.items():
        for rank, candidate in enumerate(candidates[: max(plan.k, FILTERED_MIN)], 1):
            if why := why_filtered(candidate, plan.filters, documents.get(candidate.doc_id, {})):
                message = f"would be rank {rank} ({name}), but {why}"
                yield DroppedCandidate(candidate, name, "filtered", rank, message)


def _disabled(ranking: RankingRecord, documents: Mapping[str, Mapping[str, Any]]) -> Iterator[DroppedCandidate]:
    for name, candidates in ranking.disabled.items():
        order = [*ranking.retrieval.lists.get(name, ()), *ranking.record.beyond.get(name, ())]
        for candidate in candidates:
            rank = would_be_rank(candidate, order)
            if rank <= max(ranking.plan.k, FILTERED_MIN):
                document, why = documents.get(candidate.doc_id, {}), "the chunk is disabled"
                if document.get("state", "enabled") != "enabled":
                    why = f"its document is {document['state']}"
                yield DroppedCandidate(candidate, name, "disabled", rank, f"would be rank {rank} ({name}), but {why}")


def why_filtered(candidate: Candidate, filters: Filters, document: Mapping[str, Any]) -> str:
    """Which filter a chunk fails, "" when it passes all. document: what `conditions.matches` reads of it."""
    tags = set(candidate.tags)
    if filters.tags_any and not tags & set(filters.tags_any):
        return f"it has none of the tags {', '.join(filters.tags_any)}"
    if missing := [tag for tag in filters.tags_all if tag not in tags]:
        return f"it lacks the tag {', '.join(missing)}"
    for key, expected in filters.metadata.items():
        if key not in candidate.metadata:
            return f"its metadata has no {key}"
        if candidate.metadata[key] != expected or isinstance(candidate.metadata[key], bool) != isinstance(
            expected, bool
        ):
            return f"its {key} is {candidate.metadata[key]!r}, not {expected!r}"
    if filters.where and (failure := first_failure(filters.where, record_of(candidate, document))):
        return f"it does not satisfy {write_filter(failure)}"
    return ""


def record_of(candidate: Candidate, document: Mapping[str, Any]) -> dict[str, Any]:
    """A candidate as `conditions.matches` takes it."""
    own = {name: getattr(candidate, name) for name in ("doc_id", "tags", "metadata", "attributes")}
    return {**document, **own}


def _below_pool(ranking: RankingRecord) -> Iterator[DroppedCandidate]:
    pool, stored = ranking.plan.pool, {candidate.key for candidate in ranking.retrieval.fused}
    for name, candidates in ranking.record.beyond.items():
        for rank, candidate in enumerate(candidates, pool + 1):
            if candidate.key not in stored:
                message = f"rank {rank} ({name}); top N is {pool}"
                yield DroppedCandidate(candidate, name, "below_pool", rank, message)


def _not_in_list(retrieval: Retrieval, parts: Parts) -> Iterator[DroppedCandidate]:
    if len(retrieval.lists) < 2:
        return
    for name, candidates in retrieval.lists.items():
        if name == CODES or name in HOP_LISTS:  # most chunks hold no code, and no name of a hop
            continue
        keys = {candidate.key for candidate in candidates}
        last = candidates[-1].score if candidates else None
        for index, candidate in enumerate(retrieval.fused, 1):
            if candidate.key not in keys:
                explain = _not_by_meaning if name == "vector" else _not_by_words
                reason, message = explain(candidate, last, parts, exact=retrieval.exact is not False)
                yield DroppedCandidate(candidate, name, reason, index, message)


def _not_by_words(candidate: Candidate, last: float | None, parts: Parts, *, exact: bool) -> tuple[Reason, str]:
    shares = parts.shares_of(candidate)
    if not shares:
        return "not_in_list", "no query terms"
    total = sum(share.share for share in shares)
    return "not_in_list", f"BM25 {total:.4f}, below the last candidate ({last or 0:.4f})"


def _not_by_meaning(candidate: Candidate, last: float | None, parts: Parts, *, exact: bool) -> tuple[Reason, str]:
    cosine_parts = parts.cosine_of(candidate)
    if cosine_parts is None or last is None:
        return "not_in_list", "not among the vector candidates"
    if not exact and cosine_parts.cosine > last:
        message = f"cosine {cosine_parts.cosine:.4f}, above the last candidate ({last:.4f}): missed by the HNSW index"
        return "missed_by_index", message
    return "not_in_list", f"cosine {cosine_parts.cosine:.4f}, not above the last candidate ({last:.4f})"


def _cut(plan: RetrievePlan, retrieval: Retrieval) -> Iterator[DroppedCandidate]:
    before = {candidate.key: rank for rank, candidate in enumerate(retrieval.fused, 1)}
    for rank, candidate in enumerate(retrieval.reranked, 1):
        if rank <= plan.k:
            continue
        was = before[candidate.key]
        if plan.rerank and was <= plan.k:
            yield DroppedCandidate(
                candidate, "reranked", "cut_by_rerank", rank, f"rank {was} before the reranker, {rank} after it"
            )
        else:
            yield DroppedCandidate(candidate, "final", "cut_by_k", rank, f"rank {rank}; k is {plan.k}")


def _uncompressed(plan: RetrievePlan, retrieval: Retrieval, query: str) -> Iterator[DroppedCandidate]:
    """Results of which compress() kept nothing, or not all. Without its budget it shows what the budget alone cost."""
    if plan.compress is None:
        return
    stored, without_budget = _words_kept(retrieval.spans), _words_kept(
        compress(query, retrieval.candidates, CompressPolicy(kind=plan.compress, token_budget=None))
    )  # fmt: skip
    budget = plan.token_budget or CompressPolicy().token_budget
    for rank, candidate in enumerate(retrieval.candidates, 1):
        words, whole = stored.get(candidate.key, 0), len(candidate.content.split())
        if words == 0 and without_budget.get(candidate.key, 0):
            yield DroppedCandidate(candidate, "final", "over_budget", rank, f"does not fit into {budget} words")
        elif words == 0:
            yield DroppedCandidate(
                candidate,
                "final",
                "no_span",
                rank,
                "no sentence shares a term with the query, or a better result has it",
            )
        elif words < whole:
            yield DroppedCandidate(candidate, "final", "shortened", rank, f"{words} of {whole} words kept")


def _words_kept(spans: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], int]:
    selected: dict[tuple[str, int], int] = {}
    for span in spans:
        key = (span["doc_id"], span["chunk_index"])
        selected[key] = selected.get(key, 0) + int(span["tokens_after"])
    return selected
