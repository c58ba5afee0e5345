"""rerank(): a model reads query and text together and gives the candidates a new order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from ragd.errors import RerankerError
from ragd.types import Candidate, ListRank, sort_key


class Reranker(Protocol):
    """Scores texts against a query: one finite number per text, in their order, higher is better.

    Equal input must give equal scores. A reranker whose scores are probabilities already (0 to 1) says so with a true
    attribute `scores_are_probabilities`; others are taken to give logits.
    """

    @property
    def name(self) -> str: ...

    def score(self, query: str, texts: list[str]) -> Sequence[float]: ...


@runtime_checkable
class CandidateReranker(Protocol):
    """A Reranker that also reads what the earlier stages say of the candidates. They come best first."""

    @property
    def name(self) -> str: ...

    def score_candidates(self, query: str, candidates: Sequence[Candidate]) -> Sequence[float]: ...


@runtime_checkable
class SelectiveReranker(Protocol):
    """A reranker that knows which texts its model can read (see `ragd.text.legibility`)."""

    def find_readable(self, query: str, texts: Sequence[str]) -> Sequence[bool]: ...


AnyReranker = Reranker | CandidateReranker


def rerank(query: str, candidates: Sequence[Candidate], model: AnyReranker | None = None) -> list[Candidate]:
    """The candidates in the order of the model's scores, ties by (doc_id, chunk_index).

    Without a model they come back as they are; without candidates the model is not asked. The model reads each
    candidate's context and content, as the embedder does. score becomes the model's (score_kind "rerank"), unit_score
    its logistic, or the score itself where it is a probability. ranks keeps the earlier places and adds "reranked".
    RerankerError when the model gives another number of scores, or one that is no finite number.

    A candidate that a `SelectiveReranker` cannot read keeps its place, its score and its ranks, without "reranked"; the
    others are ordered among the places that are left. So a list in a language of which the model knows nothing comes
    back as it is, and one text in another language neither rises nor falls.
    """
    if model is None or not candidates:
        return list(candidates)
    read = select_readable(query, candidates, model)
    keys = {candidate.key for candidate in read}
    ranked = iter(_score(query, read, model))
    return [
        _with_rank(next(ranked), rank) if candidate.key in keys else candidate
        for rank, candidate in enumerate(candidates, start=1)
    ]


def select_readable(query: str, candidates: Sequence[Candidate], model: AnyReranker) -> list[Candidate]:
    """The candidates that the model can read beside the query, in their order; all where the model cannot tell."""
    if not isinstance(model, SelectiveReranker):
        return list(candidates)
    readable = model.find_readable(query, [candidate.text for candidate in candidates])
    return [candidate for candidate, can_read in zip(candidates, readable, strict=True) if can_read]


def _score(query: str, candidates: Sequence[Candidate], model: AnyReranker) -> list[Candidate]:
    """The candidates with the model's scores, in their order."""
    if not candidates:
        return []
    scores = _checked(model, _ask(query, candidates, model), len(candidates))
    is_probability = bool(getattr(model, "scores_are_probabilities", False))
    scored = [
        replace(candidate, score=score, score_kind="rerank", unit_score=_unit(score, is_probability))
        for candidate, score in zip(candidates, scores, strict=True)
    ]
    return sorted(scored, key=sort_key)


def _with_rank(candidate: Candidate, rank: int) -> Candidate:
    return replace(candidate, ranks={**candidate.ranks, "reranked": ListRank(rank, candidate.score)})


def _ask(query: str, candidates: Sequence[Candidate], model: AnyReranker) -> Sequence[float]:
    if isinstance(model, CandidateReranker):
        return model.score_candidates(query, candidates)
    return model.score(query, [candidate.text for candidate in candidates])


def _checked(model: AnyReranker, values: Sequence[float], expected: int) -> list[float]:
    try:
        scores = [float(score) for score in values]
    except (TypeError, ValueError) as error:
        raise RerankerError(f"reranker {model.name!r} must give one number per text; it gave {error}") from error
    if len(scores) != expected:
        raise RerankerError(f"reranker {model.name!r} must give {expected} scores, one per text; it gave {len(scores)}")
    for index, score in enumerate(scores):
        if not math.isfinite(score):
            raise RerankerError(f"reranker {model.name!r} must give finite scores; text {index} got {score}")
    return scores


def _unit(score: float, is_probability: bool) -> float:
    if is_probability:
        return min(1.0, max(0.0, score))
    tail = math.exp(-abs(score))
    return 1 / (1 + tail) if score >= 0 else tail / (1 + tail)
