"""GET /v1/spans and GET /v1/traces/{trace_id}: filters, pages, keys that are limited, errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from evaluation_app.models import Span
from tests.retrieval.corpus import bearer, get, make_collection_row

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
TRACE = "a" * 32
pytestmark = pytest.mark.django_db


def make_span(span_id: str, parent: str | None, at_ms: int, collection: str = "", **values: Any) -> Span:
    started_at = NOON + timedelta(milliseconds=at_ms)
    defaults: dict[str, Any] = {
        "trace_id": TRACE, "name": f"span {span_id}", "kind": "INTERNAL", "started_at": started_at,
        "ended_at": started_at + timedelta(milliseconds=10), "duration_ms": 10,
        "attributes": {"ragd.collection": collection}, "events": [{"name": "e", "time": "t", "attributes": {}}],
    }  # fmt: skip
    return Span.objects.create(span_id=span_id, parent_span_id=parent, collection=collection, **(defaults | values))


@pytest.fixture
def spans(db: None) -> None:
    make_span("request", None, 0, kind="SERVER", duration_ms=100, ended_at=NOON + timedelta(milliseconds=100))
    make_span("house", "request", 1, "house", type="aitf.rag.pipeline", oi_kind="CHAIN")
    make_span("sql", "house", 2)
    make_span("chat", "house", 3, "house", type="gen_ai.inference", model="gpt-4o", input_tokens=9, cost_usd=0.5)
    make_span("shed", "request", 4, "shed", status_code="ERROR", status_description="no")
    make_span("sql2", "shed", 5)


def ids(body: Any) -> list[str]:
    return [item["span_id"] for item in body.get("items", body.get("spans"))]


def test_spans_are_listed_with_all_that_is_known(client: Client, spans: None) -> None:
    headers = bearer()
    status, body = get(client, "/v1/spans?limit=2", headers)
    assert (status, ids(body), body["searched_until"]) == (200, ["sql2", "shed"], None)
    found = [*ids(body)]
    while cursor := body["next_cursor"]:
        body = get(client, f"/v1/spans?limit=2&cursor={cursor}", headers)[1]
        found += ids(body)
    assert found == ["sql2", "shed", "chat", "sql", "house", "request"]
    (chat,) = get(client, "/v1/spans?type=chat&where=ragd.collection%3Dhouse", headers)[1]["items"]
    assert chat == {
        "trace_id": TRACE, "span_id": "chat", "parent_span_id": "house", "name": "span chat", "kind": "INTERNAL",
        "start": "2026-01-05T12:00:00.003000+00:00", "end": "2026-01-05T12:00:00.013000+00:00",
        "status": {"code": "UNSET", "description": ""}, "attributes": {"ragd.collection": "house"},
        "events": [{"name": "e", "time": "t", "attributes": {}}], "links": [], "duration_ms": 10.0,
        "type": "gen_ai.inference", "service": "", "collection": "house", "run_id": None, "model": "gpt-4o",
        "api_key": "", "input_tokens": 9, "output_tokens": None, "cost_usd": 0.5, "risk_score": None,
        "environment": "production",
    }  # fmt: skip
    (light,) = get(client, "/v1/spans?model=gpt-4o&content=false", headers)[1]["items"]
    assert light == chat | {"attributes": {}, "events": []}
    assert ids(get(client, "/v1/spans?where=status%20%3D%3D%20'error'", headers)[1]) == ["shed"]
    assert ids(get(client, "/v1/spans?collection=house&collection=shed", headers)[1]) == ["shed", "chat", "house"]


def test_a_trace_is_given_whole(client: Client, spans: None) -> None:
    status, body = get(client, f"/v1/traces/{TRACE.upper()}", bearer())
    assert (status, ids(body)) == (200, ["request", "house", "sql", "chat", "shed", "sql2"])
    assert (body["trace_id"], body["duration_ms"], body["start"]) == (TRACE, 100.0, NOON.isoformat())


def test_a_limited_key_sees_its_collections_only(client: Client, spans: None) -> None:
    for name in ("shed", "barn"):
        make_collection_row(name)
    headers = bearer(collections=["shed"])
    assert ids(get(client, "/v1/spans", headers)[1]) == ["shed"]
    assert ids(get(client, f"/v1/traces/{TRACE}", headers)[1]) == ["request", "shed", "sql2"]
    status, body = get(client, "/v1/spans?collection=house", headers)
    assert (status, body["error"]["type"]) == (403, "out_of_scope")
    status, body = get(client, f"/v1/traces/{TRACE}", bearer(collections=["barn"]))
    assert (status, body["error"]["type"]) == (404, "unknown_trace")


@pytest.mark.parametrize(
    ("path", "status", "field", "says"),
    [
        ("spans?colection=house", 422, "colection", "there is no parameter"),
        ("spans?kind=RETREIVER", 422, "kind", "there are CHAIN"),
        ("spans?where=latancy_ms%20%3E%205", 422, "where", "did you mean latency_ms"),
        ("spans?where=gen_ai.nothing%3D1", 422, "where", "no span has an attribute 'gen_ai.nothing'"),
        ("spans?text=%00", 200, None, ""),
        ("spans?where=ragd.collection%3D%00", 422, "where", "the filter ends too early"),
        ("traces/%00", 404, None, "no span of the trace"),
        ("traces/nothing", 404, None, "no span of the trace"),
    ],
)
def test_what_cannot_be_is_refused(
    client: Client, spans: None, path: str, status: int, field: str | None, says: str
) -> None:
    answered, body = get(client, f"/v1/{path}", bearer())
    assert answered == status, body
    if status != 200:
        assert says in body["error"]["message"]
        assert body["error"].get("field") == field
