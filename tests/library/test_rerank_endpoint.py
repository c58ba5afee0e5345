"""Rerankers behind /rerank over a real socket: both shapes, batches, retries, deadlines, wrong answers."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from ragd.errors import RerankerError
from ragd.models.openai_client import RetryPolicy, Server
from ragd.models.rerank_endpoint import POLICY, EndpointReranker
from ragd.models.reranking import rerank
from ragd.types import Candidate
from tests.fakes import faults
from tests.fakes.rerank_server import RerankServer, rerank_server, tei_server, word_share  # noqa: F401

QUERY = "red house by the sea"
TEXTS = ["a house", "the red house by the sea", "an oak", "red sea", "by the red house"]
SCORES = [word_share(QUERY, text) for text in TEXTS]


def reranker_of(server: RerankServer, **options: Any) -> EndpointReranker:
    values = {"backoff_s": 0.01, "timeout_s": 5.0} | options
    return open_reranker(server.base_url, "rerank-x", server.api_key, **values)


def open_reranker(base_url: str, model: str = "", api_key: str | None = None, **options: Any) -> EndpointReranker:
    """options: fields of the policy, and the others."""
    patience = {each.name: options.pop(each.name) for each in fields(RetryPolicy) if each.name in options}
    return EndpointReranker(Server(base_url, api_key), model, policy=replace(POLICY, **patience), **options)


def failure_of(reranker: EndpointReranker, texts: list[str] = TEXTS) -> str:
    with pytest.raises(RerankerError) as caught:
        reranker.score(QUERY, texts)
    return caught.value.message


def test_scores_come_in_the_order_of_the_texts(rerank_server: RerankServer) -> None:  # noqa: F811
    assert reranker_of(rerank_server).score(QUERY, TEXTS) == SCORES
    assert rerank_server.bodies("/v1/rerank") == [
        {"model": "rerank-x", "query": QUERY, "documents": TEXTS, "top_n": len(TEXTS)}
    ]


def test_tei_is_found_out_once_and_gets_its_own_shape(tei_server: RerankServer) -> None:  # noqa: F811
    reranker = open_reranker(tei_server.url)
    assert reranker.score(QUERY, TEXTS) == SCORES
    assert reranker.score(QUERY, TEXTS[:2]) == SCORES[:2]
    first, *later = tei_server.bodies("/rerank")
    assert "documents" in first
    assert later == [
        {"query": QUERY, "texts": texts, "raw_scores": False, "truncate": True} for texts in (TEXTS, TEXTS[:2])
    ]


def test_tei_gets_batches_that_it_accepts(tei_server: RerankServer) -> None:  # noqa: F811
    texts = [f"house {number}" for number in range(70)]
    assert open_reranker(tei_server.url).score("house 7", texts) == [word_share("house 7", text) for text in texts]
    assert [len(body["texts"]) for body in tei_server.bodies("/rerank") if "texts" in body] == [32, 32, 6]


def test_batches_keep_the_order(rerank_server: RerankServer) -> None:  # noqa: F811
    assert reranker_of(rerank_server, batch_size=2).score(QUERY, TEXTS) == SCORES
    assert [len(body["documents"]) for body in rerank_server.bodies("/v1/rerank")] == [2, 2, 1]


def test_scores_are_taken_as_probabilities(rerank_server: RerankServer) -> None:  # noqa: F811
    candidates = [Candidate(f"d{place}", 0, text, 0.1) for place, text in enumerate(TEXTS)]
    ranked = rerank(QUERY, candidates, reranker_of(rerank_server))
    assert [item.doc_id for item in ranked] == ["d1", "d4", "d3", "d0", "d2"]
    assert [item.unit_score for item in ranked] == [item.score for item in ranked] == sorted(SCORES, reverse=True)


def test_the_path_may_be_given(rerank_server: RerankServer) -> None:  # noqa: F811
    reranker = open_reranker(f"{rerank_server.url}/rerank/", "m", rerank_server.api_key)
    assert reranker.score(QUERY, TEXTS) == SCORES
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
