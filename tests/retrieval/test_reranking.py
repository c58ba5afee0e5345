"""Plans that rerank and compress, through the services: which rerankers there are, what is kept and cited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from collections_app.index.stores import open_store
from collections_app.models import Collection
from ragd.errors import InvalidInput, RerankerError
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import build_plan
from retrieval_app.search import query_pipeline
from retrieval_app.search.query_pipeline import QueryRequest
from tests.fakes import faults
from tests.fakes.rerank_server import RerankServer, rerank_server, word_share  # noqa: F401
from tests.retrieval.corpus import DOCUMENTS, make_collection

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("house")]

QUERY = "How is the pump switched off before it is cleaned?"


def use_endpoint(settings: Settings, server: RerankServer) -> None:
    settings.RAGD_RERANK_BASE_URL = server.base_url
    settings.RAGD_RERANK_MODEL, settings.RAGD_RERANK_API_KEY = "rerank-x", server.api_key


def search(**plan: Any) -> QueryRun:
    collection = Collection.objects.get(name="house")
    return query_pipeline.search(QueryRequest(collection, QUERY, build_plan(collection, **plan), "cli"))


def test_only_what_is_set_up_can_be_named(settings: Settings, tmp_path: Path) -> None:
    collection = make_collection("empty", empty=True)
    assert sorted(open_store(collection).rerankers) == ["builtin"]
    settings.RAGD_RERANK_BASE_URL, settings.RAGD_CROSS_ENCODER_PATH = "http://127.0.0.1:9", str(tmp_path)
    assert sorted(open_store(collection).rerankers) == ["builtin", "cross-encoder", "endpoint"]


def test_an_unknown_name_is_refused_and_kept_as_a_failed_run() -> None:
    with pytest.raises(InvalidInput, match="the rerankers here are: builtin"):
        search(rerank="best")
    assert QueryRun.objects.get().status == QueryRun.Status.ERROR


def test_the_builtin_keeps_the_ranks_before_and_after() -> None:
    run = search(rerank="builtin", k=3)
    assert run.results[0]["doc_id"] == "pump.md"
    for rank, result in enumerate(run.results, 1):
        assert result["score_kind"] == "rerank" and 0 <= result["unit_score"] <= 1
        assert result["ranks"]["reranked"] == {"rank": rank, "score": result["score"]}
        assert {"fused", "vector"} <= set(result["ranks"])
    assert run.timings_ms["rerank"] > 0


def test_the_endpoint_orders_the_results(settings: Settings, rerank_server: RerankServer) -> None:  # noqa: F811
    use_endpoint(settings, rerank_server)
    run = search(rerank="endpoint", k=5)
    (body,) = rerank_server.bodies("/v1/rerank")
    assert body["query"] == QUERY and body["model"] == "rerank-x"
    assert [result["score"] for result in run.results] == sorted(
        (word_share(QUERY, text) for text in body["documents"]), reverse=True
    )[:5]


def test_an_endpoint_that_fails_is_an_error_of_the_run(settings: Settings, rerank_server: RerankServer) -> None:  # noqa: F811
    use_endpoint(settings, rerank_server)
    rerank_server.script(faults.failing(401))
    with pytest.raises(RerankerError, match="check the API key"):
        search(rerank="endpoint")
    run = QueryRun.objects.get()
    assert (run.status, run.error_type) == (QueryRun.Status.ERROR, "reranker_failed")


def test_an_answer_from_spans_cites_places_of_the_document(house: Collection) -> None:
    plan = build_plan(house, rerank="builtin", compress="sentences", token_budget=40)
    run = query_pipeline.ask(QueryRequest(house, QUERY, plan, "cli"))
    kept = [(result["doc_id"], span) for result in run.results for span in result["spans"]]
    assert kept and sum(span["tokens"] for _, span in kept) <= 40
    assert run.citations
    for citation in run.citations:
        text = DOCUMENTS[citation["doc_id"]][0]
        assert text[citation["start"] : citation["end"]] == citation["quote"]
        assert any(
            doc_id == citation["doc_id"] and span["start"] <= citation["start"] and citation["end"] <= span["end"]
            for doc_id, span in kept
        )
