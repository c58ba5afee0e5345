"""rerank(): order, ties, what is kept, and models that answer wrongly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from ragd.errors import RerankerError
from ragd.models.reranking import rerank
from ragd.types import Candidate, ListRank


class Scripted:
    """Gives the scores it was made with, and keeps what it was asked."""

    name = "scripted"

    def __init__(self, scores: Any) -> None:
        self.scores = scores
        self.asked: list[tuple[str, list[str]]] = []

    def score(self, query: str, texts: list[str]) -> Sequence[float]:
        self.asked.append((query, texts))
        return self.scores  # type: ignore[no-any-return]


class ScriptedProbability(Scripted):
    scores_are_probabilities = True


A = Candidate("a", 0, "alpha", 0.03, context="Title > A", score_kind="rrf", ranks={"fused": ListRank(1, 0.03)})
B = Candidate("b", 1, "beta", 0.02, score_kind="rrf", ranks={"fused": ListRank(2, 0.02)})
B0 = Candidate("b", 0, "beta too", 0.01, score_kind="rrf", ranks={"fused": ListRank(3, 0.01)})


def test_without_a_model_nothing_changes() -> None:
    assert rerank("q", [B, A]) == [B, A]


def test_without_candidates_the_model_is_not_asked() -> None:
    model = Scripted([])
    assert rerank("q", [], model) == []
    assert model.asked == []


def test_order_scores_and_kept_ranks() -> None:
    model = Scripted([-1.0, 2.0, 0.0])
    ranked = rerank("q", [A, B, B0], model)
    assert model.asked == [("q", ["Title > A\nalpha", "beta", "beta too"])]
    assert [(item.key, item.score, item.score_kind) for item in ranked] == [
        (("b", 1), 2.0, "rerank"),
        (("b", 0), 0.0, "rerank"),
        (("a", 0), -1.0, "rerank"),
    ]
    assert [item.unit_score for item in ranked] == pytest.approx([1 / (1 + math.exp(-2)), 0.5, 1 / (1 + math.e)])
    assert ranked[0].ranks == {"fused": ListRank(2, 0.02), "reranked": ListRank(1, 2.0)}
    assert B.ranks == {"fused": ListRank(2, 0.02)}


def test_ties_are_sorted_by_doc_id_and_chunk_index() -> None:
    assert [item.key for item in rerank("q", [B, B0, A], Scripted([1, 1, 1]))] == [("a", 0), ("b", 0), ("b", 1)]


def test_probabilities_stay() -> None:
    ranked = rerank("q", [A, B], ScriptedProbability([0.25, 1.0000001]))
    assert [item.unit_score for item in ranked] == [1.0, 0.25]


def test_extreme_logits_do_not_overflow() -> None:
    assert [item.unit_score for item in rerank("q", [A, B], Scripted([1e4, -1e4]))] == [1.0, 0.0]


@pytest.mark.parametrize(
    "scores", [[], [1.0], [1.0, 2.0, 3.0], [1.0, math.nan], [math.inf, 1.0], [1.0, None], [1.0, "high"], None]
)
def test_unusable_scores_are_an_error(scores: Any) -> None:
    with pytest.raises(RerankerError, match="scripted"):
        rerank("q", [A, B], Scripted(scores))


class Selective(Scripted):
    """Reads the texts that hold no x."""

    def find_readable(self, query: str, texts: Sequence[str]) -> Sequence[bool]:
        return ["x" not in query + text for text in texts]


@pytest.mark.fault("A3")
def test_what_the_model_cannot_read_keeps_its_place_and_its_score() -> None:
    x = Candidate("x", 0, "xi", 0.02, score_kind="rrf", ranks={"fused": ListRank(2, 0.02)})
    model = Selective([1.0, 3.0, 2.0])
    ranked = rerank("q", [A, x, B, B0], model)
    assert model.asked == [("q", ["Title > A\nalpha", "beta", "beta too"])]
    assert [item.key for item in ranked] == [("b", 1), ("x", 0), ("b", 0), ("a", 0)]
    assert ranked[1] == x
    assert [item.ranks["reranked"].rank for item in ranked if item != x] == [1, 3, 4]


@pytest.mark.fault("A3")
def test_beside_a_question_that_it_cannot_read_nothing_is_read() -> None:
    model = Selective([])
    assert rerank("xi", [B, A], model) == [B, A]
    assert model.asked == []
