"""rerank(): order, ties, what is kept, and models that answer wrongly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from ragd.errors import InvalidInput, RerankerError
from ragd.models.reranking import rerank
from ragd.search.retrieval import retrieve_detailed
from ragd.store.indexing import index
from ragd.store.store import Store
from ragd.types import Candidate, ListRank, RetrievePlan
from tests.builders import make_chunks


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


class ByLength:
    """The longest text first."""

    name = "by-length"

    def score(self, query: str, texts: list[str]) -> Sequence[float]:
        return [float(len(text)) for text in texts]


class Broken:
    name = "broken"

    def score(self, query: str, texts: list[str]) -> Sequence[float]:
        return []


TEXTS = ("pump oil", "the pump. It leaks oil every day.", "a pump stands in the old hall. Its valve is shut.", "sea")


@pytest.fixture
def store(make_store: Any) -> Store:
    made: Store = make_store()
    index([chunk for number, text in enumerate(TEXTS) for chunk in make_chunks(f"d{number}", text)], made)
    return Store(made.connection, "notes", made.embedder, rerankers={"long": ByLength(), "broken": Broken()})


def test_the_reranker_orders_the_whole_pool_before_the_cut(store: Store) -> None:
    plain = retrieve_detailed("pump oil", RetrievePlan(k=1), store)
    detail = retrieve_detailed("pump oil", RetrievePlan(k=1, rerank="long"), store)
    assert [item.doc_id for item in plain.candidates] == ["d0"] and plain.reranked == plain.fused
    assert [item.doc_id for item in detail.candidates] == ["d2"]
    assert [item.key for item in detail.fused] == [item.key for item in plain.fused]
    assert {item.key for item in detail.reranked} == {item.key for item in detail.fused}
    assert detail.candidates == detail.reranked[:1]
    assert "rerank" in detail.timings_ms and set(plain.timings_ms) == {"embed_query", "vector", "lexical", "fuse"}


def test_ranks_before_and_after_are_kept(store: Store) -> None:
    detail = retrieve_detailed("pump oil", RetrievePlan(k=4, rerank="long"), store)
    before = {item.key: place for place, item in enumerate(detail.fused, 1)}
    for place, item in enumerate(detail.reranked, 1):
        assert item.ranks["fused"].rank == before[item.key]
        assert item.ranks["reranked"].rank == place
        assert item.ranks["reranked"].score == item.score == len(item.content)
        assert item.score_kind == "rerank"


def test_an_unknown_reranker_lists_the_known_ones(store: Store, make_store: Any) -> None:
    with pytest.raises(InvalidInput, match="broken, long") as refused:
        retrieve_detailed("pump", RetrievePlan(rerank="short"), store)
    assert refused.value.field == "rerank"
    with pytest.raises(InvalidInput, match="none"):
        retrieve_detailed("pump", RetrievePlan(rerank="long"), make_store("bare"))


def test_a_reranker_that_fails_is_an_error_and_not_another_order(store: Store) -> None:
    with pytest.raises(RerankerError, match="broken"):
        retrieve_detailed("pump", RetrievePlan(rerank="broken"), store)


def test_compress_reports_what_it_kept_of_the_final_candidates(store: Store) -> None:
    plan = RetrievePlan(mode="lexical", k=2, rerank="long", compress="sentences", token_budget=8)
    detail = retrieve_detailed("pump oil", plan, store)
    assert [item.doc_id for item in detail.candidates] == ["d2", "d1"]
    assert {(span["doc_id"], span["rank"]) for span in detail.spans} <= {("d2", 1), ("d1", 2)}
    contents = {item.doc_id: item.content for item in detail.candidates}
    for span in detail.spans:
        assert contents[span["doc_id"]][span["start"] : span["end"]] == span["content"]
    assert detail.tokens_before == sum(len(text.split()) for text in contents.values())
    assert detail.tokens_after == sum(len(span["content"].split()) for span in detail.spans)
    assert 0 < detail.tokens_after <= 8
    assert "compress" in detail.timings_ms


def test_without_compress_there_are_no_spans(store: Store) -> None:
    detail = retrieve_detailed("pump oil", RetrievePlan(), store)
    assert (detail.spans, detail.tokens_before, detail.tokens_after) == ([], None, None)


def test_nothing_found_is_nothing_reranked_and_nothing_kept(store: Store) -> None:
    detail = retrieve_detailed("zebra", RetrievePlan(mode="lexical", rerank="broken", compress="window"), store)
    assert (detail.reranked, detail.spans, detail.tokens_before, detail.tokens_after) == ([], [], 0, 0)
