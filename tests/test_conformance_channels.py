"""Section 6 of the specification by the conformance suite itself: REST, MCP and the worker over the fixed corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import Client

from collections_app.collections.services import create_collection
from collections_app.index import stores
from collections_app.models import Collection
from ragd import conformance
from ragd.conformance import corpus
from ragd.conformance.channel_rules import EVERY
from ragd.types import Filters, RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.search.query_pipeline import QueryRequest, search
from tests.retrieval.corpus import bearer, post

FIELDS = ("doc_id", "chunk_index", "content", "score", "tags", "metadata")
Json = dict[str, Any]


@pytest.fixture
def golden(db: None, client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Collection]:
    """The fixed corpus, brought in through REST, document by document, with the suite's own embedder."""
    settings.RAGD_EMBED_API_KEY = "none"
    monkeypatch.setattr(stores, "OpenAIEmbedder", lambda *_, **__: conformance.SimHashEmbedder())
    embedder = conformance.SimHashEmbedder
    collection = create_collection(
        name="golden",
        embed_model=embedder.model,
        embed_dims=embedder.dims,
        language=corpus.TEXT_SEARCH,
        chunk_policy=corpus.POLICY.as_dict(),
    )
    headers = bearer()
    for document in corpus.documents():
        body = {
            "content": document.text,
            "title": document.title,
            "tags": list(document.tags),
            "metadata": dict(document.metadata),
        }
        path = f"/v1/collections/golden/documents/{document.doc_id}"
        answer = client.put(path, body, content_type="application/json", headers=headers)
        assert answer.status_code in (200, 201), answer.content
    yield collection


@pytest.fixture
def other() -> Iterator[Any]:
    """Another connection to the same database, for the suite: it has its own schema, and none of our rows."""
    settings = connection.get_connection_params()
    wanted = {name: settings[name] for name in ("dbname", "user", "password", "host", "port") if name in settings}
    with psycopg.connect(**wanted) as opened:
        yield opened
        opened.rollback()


def stated(plan: RetrievePlan) -> Json:
    """The plan as the fields of a request."""
    values = plan.as_dict()
    filters = values.pop("filters")
    return {name: value for name, value in (values | filters).items() if value not in (None, [], {})}


def six_fields(results: list[Json]) -> list[Json]:
    return [{name: result[name] for name in FIELDS} for result in results]


def doors_of(client: Client) -> dict[str, conformance.Channel]:
    headers = bearer(scope="read")

    def by_rest(query: str, plan: RetrievePlan) -> list[Json]:
        status, body = post(client, "/v1/collections/golden/search", {"query": query} | stated(plan), headers)
        assert status == 200, body
        return six_fields(body["results"])

    def by_mcp(query: str, plan: RetrievePlan) -> list[Json]:
        arguments = {"collection": "golden", "query": query} | stated(plan)
        params = {"name": "collections-search", "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = client.post("/mcp", message, content_type="application/json", headers=headers).json()
        return six_fields(json.loads(answer["result"]["content"][0]["text"])["results"])

    def by_worker(query: str, plan: RetrievePlan) -> list[Json]:
        stored = RetrievePlan.from_dict(json.loads(json.dumps(plan.as_dict())))
        collection = Collection.objects.get(name="golden")
        return six_fields(search(QueryRequest(collection, query, stored, QueryRun.Channel.WORKER)).results)

    return {"REST": by_rest, "MCP": by_mcp, "the worker": by_worker}


def test_every_door_passes_section_6_and_a_forgetful_one_does_not(
    golden: Collection, other: Any, client: Client
) -> None:
    doors = doors_of(client)

    def forgetful(query: str, plan: RetrievePlan) -> Any:
        """Leaves the filters out, and asks only where there are some."""
        if not plan.filters:
            return doors["the worker"](query, plan)
        return doors["REST"](query, replace(plan, filters=Filters()))

    report = conformance.run(other, only=["6"], channels=doors | {"one that forgets": forgetful})
    *honest, last = report.results
    assert [item.failures[:2] for item in honest if not item.passed] == []
    assert [item.title for item in honest[-3:]] == [
        f"{name} answers as the library does, byte for byte" for name in ("REST", "MCP", "the worker")
    ]
    asked = len(corpus.PLANS) * len(corpus.queries()[::EVERY])
    assert {item.cases for item in (*honest[-3:], last)} == {asked}
    assert QueryRun.objects.count() == 4 * asked
    assert {failure.case.split(":")[0] for failure in last.failures} == {"filtered"}
