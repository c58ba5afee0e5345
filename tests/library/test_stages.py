"""retrieve() with a reranker and with compress: what each stage leaves, what it reports, what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ragd.errors import InvalidInput, RerankerError
from ragd.search.retrieval import retrieve_detailed
from ragd.store.indexing import index
from ragd.store.store import Store
from ragd.types import RetrievePlan
from tests.builders import make_chunks


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
    assert "rerank" in detail.timings_ms and "rerank" not in plain.timings_ms


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
