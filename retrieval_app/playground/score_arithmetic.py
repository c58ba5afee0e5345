"""The arithmetic of one row: the numbers of each stage that add up, exactly, to the score that ranked it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragd.insight.score_parts import CosineParts, WordShare
from ragd.models.reranking import AnyReranker, select_readable
from ragd.search.hops import weights_of
from ragd.search.retrieval import Retrieval
from ragd.types import Candidate, RetrievePlan


@dataclass(frozen=True, slots=True)
class Parts:
    """What the scores of an explanation are made of, by chunk id, and for the fusion by key.

    query: the text that was searched for. forms: how the chunks write its words. reranker_parts: what the
    reranker says of its scores, by key; {} when it says nothing.
    """

    query: str
    shares: Mapping[int, Sequence[WordShare]]
    cosines: Mapping[int, CosineParts]
    terms: Mapping[tuple[str, int], list[dict[str, Any]]]
    forms: Mapping[str, str]
    reranker_parts: Mapping[tuple[str, int], Sequence[Mapping[str, Any]]]

    def shares_of(self, candidate: Candidate) -> Sequence[WordShare]:
        return self.shares.get(candidate.chunk_id or 0, ())

    def cosine_of(self, candidate: Candidate) -> CosineParts | None:
        return self.cosines.get(candidate.chunk_id or 0)


def fused_terms(retrieval: Retrieval, plan: RetrievePlan) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """key -> [{list, weight, rrf_k, rank, share}] with share = weight / (rrf_k + rank), for what two lists fused."""
    terms: dict[tuple[str, int], list[dict[str, Any]]] = {}
    if len(retrieval.lists) < 2:
        return terms
    weights = weights_of(retrieval.lists, plan)
    for name, candidates in retrieval.lists.items():
        weight = float(weights[name])
        for rank, candidate in enumerate(candidates, 1):
            term = {"list": name, "weight": weight, "rrf_k": plan.rrf_k, "rank": rank}
            terms.setdefault(candidate.key, []).append(term | {"share": weight / (plan.rrf_k + rank)})
    return terms


def ask_reranker(
    reranker: AnyReranker | None, query: str, fused: Sequence[Candidate]
) -> dict[tuple[str, int], Sequence[Mapping[str, Any]]]:
    """key -> the parts of the score, from a reranker that has `explain_candidates`; {} from any other.

    Those that the reranker left unread have none.
    """
    explain_candidates = getattr(reranker, "explain_candidates", None)
    if reranker is None or explain_candidates is None:
        return {}
    read = select_readable(query, fused, reranker)
    return {found.key: parts for found, parts in zip(read, explain_candidates(query, read), strict=True)}


def row_arithmetic(candidate: Candidate, plan: RetrievePlan, parts: Parts) -> dict[str, Any]:
    """{cosine, bm25, rrf, rerank}, each None where the plan has no such stage or the chunk was not in it.

    cosine: {cosine, dot, query_length, chunk_length, in_list}; also for a chunk that the vector list does not hold.
    bm25: {shares: [{word, lexeme, repeats, idf, weight, share}], sum, score, rounding, in_list}: share = repeats * idf
    * weight, sum adds the shares up, and score = sum + rounding, because the database adds in single precision; score
    is None for a chunk that the lexical list does not hold.
    rrf: {terms: [{list, weight, rrf_k, rank, share}], score}: the shares add up to the score to the last bit.
    rerank: {model, score, parts}; a part has at least {part, weight, value, share}, and the shares add up to the score
    but for its rounding; [] when the reranker says nothing.
    """
    return {
        "cosine": _cosine(candidate, parts),
        "bm25": _bm25(candidate, plan, parts),
        "rrf": _rrf(candidate, parts),
        "rerank": _rerank(candidate, plan, parts),
    }


def _cosine(candidate: Candidate, parts: Parts) -> dict[str, Any] | None:
    cosine_parts = parts.cosine_of(candidate)
    return cosine_parts.as_dict() | {"in_list": "vector" in candidate.ranks} if cosine_parts else None


def _bm25(candidate: Candidate, plan: RetrievePlan, parts: Parts) -> dict[str, Any] | None:
    if plan.mode == "vector":
        return None
    shares = parts.shares_of(candidate)
    total = math.fsum(share.share for share in shares)
    list_rank = candidate.ranks.get("lexical")
    return {
        "shares": [share.as_dict() for share in shares],
        "sum": total,
        "score": list_rank.score if list_rank else None,
        "rounding": list_rank.score - total if list_rank else None,
        "in_list": list_rank is not None,
    }


def _rrf(candidate: Candidate, parts: Parts) -> dict[str, Any] | None:
    terms = parts.terms.get(candidate.key)
    return {"terms": terms, "score": math.fsum(term["share"] for term in terms)} if terms else None


def _rerank(candidate: Candidate, plan: RetrievePlan, parts: Parts) -> dict[str, Any] | None:
    list_rank = candidate.ranks.get("reranked")
    if list_rank is None or plan.rerank is None:
        return None
    details = [dict(part) for part in parts.reranker_parts.get(candidate.key, ())]
    return {"model": plan.rerank, "score": list_rank.score, "parts": details}
