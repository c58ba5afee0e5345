from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from collections_app.http.schemas import PageOf
from retrieval_app.models import QueryRun
from retrieval_app.search.schemas import Run, RunSummary
from tests.retrieval.corpus import bearer, get
from tests.shapes import check_shape

pytestmark = pytest.mark.django_db


def make_run(**values: Any) -> QueryRun:
    defaults: dict[str, Any] = {
        "kind": "search", "collection_name": "house", "query": "pump", "plan": {"mode": "hybrid"}, "plan_hash": "h",
        "channel": "api", "timings_ms": {"total": 12.5},
    }  # fmt: skip
    return QueryRun.objects.create(**(defaults | values))


def test_runs_come_newest_first_and_without_result_texts(client: Client) -> None:
    moment = timezone.now()
    old = make_run(query="old", created_at=moment - timedelta(hours=1), results=[{"content": "long"}])
    new = make_run(query="new", created_at=moment)
    status, body = get(client, "/v1/runs", bearer(scope="read"))
    assert (status, [item["run_id"] for item in body["items"]]) == (200, [str(new.pk), str(old.pk)])
    assert (body["next_cursor"], "results" in body["items"][1]) == (None, False)
    check_shape(PageOf[RunSummary], body)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {"a", "b", "c"}),
        ("?collection=house", {"a", "b"}),
        ("?kind=ask", {"b", "c"}),
        ("?status=error", {"c"}),
        ("?collection=house&kind=ask", {"b"}),
        ("?collection=nowhere", set()),
        ("?model=gpt-4o", {"b"}),
        ("?min_ms=13", {"c"}),
        ("?max_ms=13&kind=ask", {"b"}),
        ("?min_cost=0", {"b", "c"}),
        ("?max_cost=0.01&min_cost=0.001", {"b"}),
    ],
)
def test_filters(client: Client, query: str, expected: set[str]) -> None:
    make_run(query="a")
    make_run(query="b", kind="ask", status="abstained", answerer="gpt-4o", cost_usd=0.01)
    make_run(
        query="c", kind="ask", status="error", error="it broke", error_type="x", collection_name="garage",
        timings_ms={"total": 80.0}, cost_usd=0.02,
    )  # fmt: skip
    _, body = get(client, f"/v1/runs{query}", bearer())
    assert {item["query"] for item in body["items"]} == expected


def test_bad_filters_are_refused(client: Client) -> None:
    cases: list[str] = ["?kind=dream", "?status=fine", "?min_ms=-1", "?max_cost=nan"]
    for query in cases:
        status, body = get(client, f"/v1/runs{query}", bearer())
        assert (status, body["error"]["field"]) == (422, query[1:].split("=")[0])


def test_one_run_has_every_field(client: Client) -> None:
    run = make_run(
        kind="ask",
        answer="Yes [1].",
        citations=[],
        sentences=[],
        status="error",
        error="late",
        error_type="llm_timeout",
    )
    _, body = get(client, f"/v1/runs/{run.pk}", bearer())
    check_shape(Run, body)
    assert set(body) == set(Run.model_fields)
    assert body["error"] == {"type": "llm_timeout", "message": "late"}
    assert body["took_ms"] == 12.5
