"""rerank(): order, ties, what is kept, and models that answer wrongly.
Rerankers behind /rerank over a real socket: both shapes, batches, retries, deadlines, wrong answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from ragd.errors import InvalidInput, RerankerError
from ragd.models.openai_client import RetryPolicy, Server
from ragd.models.rerank_endpoint import POLICY, EndpointReranker
from ragd.models.reranking import rerank
from ragd.search.retrieval import retrieve_detailed
from ragd.store.indexing import index
from ragd.store.store import Store
from ragd.types import Candidate, ListRank, RetrievePlan
from tests.builders import make_chunks
from tests.fakes import faults
from tests.fakes.rerank_server import RerankServer, rerank_server, tei_server, word_share  # noqa: F401
from tests.refusals import raises_with


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

    def find_readable(self, query: str, candidates: Sequence[Candidate]) -> Sequence[bool]:
        return ["x" not in query + candidate.text for candidate in candidates]


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
    with raises_with(InvalidInput, match="broken, long", field="rerank"):
        retrieve_detailed("pump", RetrievePlan(rerank="short"), store)
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


QUERY = "red house by the sea"
TEXTS_RERANK_ENDPOINT = ["a house", "the red house by the sea", "an oak", "red sea", "by the red house"]
SCORES = [word_share(QUERY, text) for text in TEXTS_RERANK_ENDPOINT]


def reranker_of(server: RerankServer, **options: Any) -> EndpointReranker:
    values = {"backoff_s": 0.01, "timeout_s": 5.0} | options
    return open_reranker(server.base_url, "rerank-x", server.api_key, **values)


def open_reranker(base_url: str, model: str = "", api_key: str | None = None, **options: Any) -> EndpointReranker:
    """options: fields of the policy, and the others."""
    patience = {each.name: options.pop(each.name) for each in fields(RetryPolicy) if each.name in options}
    return EndpointReranker(Server(base_url, api_key), model, policy=replace(POLICY, **patience), **options)


def failure_of(reranker: EndpointReranker, texts: list[str] = TEXTS_RERANK_ENDPOINT) -> str:
    with pytest.raises(RerankerError) as caught:
        reranker.score(QUERY, texts)
    return caught.value.message


def test_scores_come_in_the_order_of_the_texts(rerank_server: RerankServer) -> None:  # noqa: F811
    assert reranker_of(rerank_server).score(QUERY, TEXTS_RERANK_ENDPOINT) == SCORES
    assert rerank_server.bodies("/v1/rerank") == [
        {"model": "rerank-x", "query": QUERY, "documents": TEXTS_RERANK_ENDPOINT, "top_n": len(TEXTS_RERANK_ENDPOINT)}
    ]


def test_tei_is_found_out_once_and_gets_its_own_shape(tei_server: RerankServer) -> None:  # noqa: F811
    reranker = open_reranker(tei_server.url)
    assert reranker.score(QUERY, TEXTS_RERANK_ENDPOINT) == SCORES
    assert reranker.score(QUERY, TEXTS_RERANK_ENDPOINT[:2]) == SCORES[:2]
    first, *later = tei_server.bodies("/rerank")
    assert "documents" in first
    assert later == [
        {"query": QUERY, "texts": texts, "raw_scores": False, "truncate": True}
        for texts in (TEXTS_RERANK_ENDPOINT, TEXTS_RERANK_ENDPOINT[:2])
    ]


def test_tei_gets_batches_that_it_accepts(tei_server: RerankServer) -> None:  # noqa: F811
    texts = [f"house {number}" for number in range(70)]
    assert open_reranker(tei_server.url).score("house 7", texts) == [word_share("house 7", text) for text in texts]
    assert [len(body["texts"]) for body in tei_server.bodies("/rerank") if "texts" in body] == [32, 32, 6]


def test_batches_keep_the_order(rerank_server: RerankServer) -> None:  # noqa: F811
    assert reranker_of(rerank_server, batch_size=2).score(QUERY, TEXTS_RERANK_ENDPOINT) == SCORES
    assert [len(body["documents"]) for body in rerank_server.bodies("/v1/rerank")] == [2, 2, 1]


def test_scores_are_taken_as_probabilities(rerank_server: RerankServer) -> None:  # noqa: F811
    candidates = [Candidate(f"d{place}", 0, text, 0.1) for place, text in enumerate(TEXTS_RERANK_ENDPOINT)]
    ranked = rerank(QUERY, candidates, reranker_of(rerank_server))
    assert [item.doc_id for item in ranked] == ["d1", "d4", "d3", "d0", "d2"]
    assert [item.unit_score for item in ranked] == [item.score for item in ranked] == sorted(SCORES, reverse=True)


def test_the_path_may_be_given(rerank_server: RerankServer) -> None:  # noqa: F811
    reranker = open_reranker(f"{rerank_server.url}/rerank/", "m", rerank_server.api_key)
    assert reranker.score(QUERY, TEXTS_RERANK_ENDPOINT) == SCORES
    assert [request.path for request in rerank_server.requests] == ["/rerank"]


def test_a_lone_surrogate_travels_as_a_question_mark(rerank_server: RerankServer) -> None:  # noqa: F811
    reranker_of(rerank_server).score("red", ["a\ud800"])
    assert rerank_server.bodies("/v1/rerank")[0]["documents"] == ["a?"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (faults.failing(401), "check the API key"),
        (faults.failing(403), "check the API key"),
        (faults.failing(404), "check its address"),
        (faults.failing(413), "make the batch or the pool smaller"),
        (faults.failing(400), "answered 400"),
        (faults.Fault(alter=lambda answer: {"results": answer["results"][:-1]}), "scores every text"),
        (faults.Fault(alter=lambda answer: {"results": answer["results"][:-1] * 2}), "scores every text"),
        (faults.Fault(alter=lambda answer: {"results": [row | {"index": 9} for row in answer["results"]]}), "9, 9"),
    ],
)
def test_what_repeating_cannot_mend_is_not_repeated(
    rerank_server: RerankServer,  # noqa: F811
    fault: faults.Fault,
    said: str,
) -> None:
    rerank_server.script(fault)
    assert said in failure_of(reranker_of(rerank_server))
    assert len(rerank_server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        {"results": None}, {"data": []}, [1], {"results": [{"index": 0}]}, {"results": [{"relevance_score": 1.0}]},
        {"results": [{"index": True, "relevance_score": 1.0}]}, {"results": [{"index": 0, "relevance_score": "1"}]},
        {"results": [{"index": 0, "relevance_score": float("nan")}]},
    ],
)  # fmt: skip
def test_another_shape_is_quoted(rerank_server: RerankServer, answer: Any) -> None:  # noqa: F811
    rerank_server.script(faults.Fault(alter=lambda _: answer))
    assert "not the JSON of a /rerank endpoint" in failure_of(reranker_of(rerank_server, max_retries=0), ["one"])


def test_messages_name_the_endpoint_and_never_a_secret(rerank_server: RerankServer) -> None:  # noqa: F811
    address = rerank_server.base_url.replace("http://", "http://me:hidden@")
    message = failure_of(open_reranker(address, "rerank-x", "wrong-key", backoff_s=0.01))
    assert f"{rerank_server.base_url}/rerank (model 'rerank-x')" in message
    assert "hidden" not in message and "wrong-key" not in message
