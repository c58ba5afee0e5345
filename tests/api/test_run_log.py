"""Runs as JSON Lines: exactly the minimal logging fields, for whom the key may see, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from collections_app.http import downloads
from retrieval_app.models import QueryRun
from retrieval_app.runs import run_log
from tests.retrieval.corpus import bearer, make_collection_row

pytestmark = pytest.mark.django_db

FIELDS = {
    "id", "created_at", "finished_at", "query", "retrieved_ids", "answer", "citations", "trace_scores",
    "retrieval_confidence", "doc_contribution_scores", "retrieval_action", "fallback_triggered", "token_usage",
}  # fmt: skip
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def make_run(**values: Any) -> QueryRun:
    usage = {"context_tokens": 40, "generation_tokens": 9, "total_tokens": 49, "estimated": True, "finish_reason": "x"}
    defaults: dict[str, Any] = {
        "kind": "ask", "collection_name": "house", "query": "Where is the key?", "answer": "Behind the door [1].",
        "retrieved_ids": ["pump.md#0", "pump.md#1"], "citations": [{"doc_id": "pump.md"}, {"doc_id": "pump.md"}],
        "token_usage": usage, "channel": "api", "created_at": NOON,
    }  # fmt: skip
    return QueryRun.objects.create(**defaults | values)


@pytest.fixture
def download(client: Client) -> Callable[..., list[Any]]:
    def read(query: str = "", **key: Any) -> list[Any]:
        answer = client.get(f"/v1/runs?format=jsonl{query}", headers=bearer(scope="read", **key))
        assert answer.status_code == 200, answer.json()
        assert answer["Content-Type"] == "application/x-ndjson" and answer["Content-Disposition"].endswith('.jsonl"')
        return [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]

    return read


def test_a_line_says_which_run_it_is_and_has_the_minimal_fields(download: Callable[..., list[Any]]) -> None:
    run = make_run(timings_ms={"total": 1500.0})
    (line,) = download()
    assert line == {
        "id": str(run.pk), "created_at": "2026-03-01T12:00:00+00:00", "finished_at": "2026-03-01T12:00:01.500000+00:00",
        "query": "Where is the key?", "retrieved_ids": ["pump.md#0", "pump.md#1"], "answer": "Behind the door [1].",
        "citations": ["pump.md"], "trace_scores": None, "retrieval_confidence": None, "doc_contribution_scores": None,
        "retrieval_action": None, "fallback_triggered": False,
        "token_usage": {"context_tokens": 40, "generation_tokens": 9, "total_tokens": 49},
    }  # fmt: skip
    assert set(line) == FIELDS


@pytest.mark.fault("API-09")
def test_a_long_run_that_began_earlier_is_found_since_a_short_one(
    client: Client, download: Callable[..., list[Any]]
) -> None:
    slow = make_run(query="slow", timings_ms={"total": 6000.0})
    fast = make_run(query="fast", created_at=NOON + timedelta(seconds=1), timings_ms={"total": 20.0})
    make_run(query="earlier", created_at=NOON - timedelta(seconds=1), timings_ms={})
    for since in (fast.created_at, fast.finished_at):
        found = {line["id"] for line in download(f"&since={since.isoformat().replace('+', '%2B')}")}
        assert found == {str(slow.pk), str(fast.pk)}
        listed = client.get("/v1/runs", {"since": since.isoformat()}, headers=bearer(scope="read")).json()["items"]
        assert {item["run_id"] for item in listed} == found
    until = fast.finished_at.isoformat().replace("+", "%2B")
    assert [line["query"] for line in download(f"&until={until}")] == ["earlier"]


def test_scores_are_there_once_there_are_some(download: Callable[..., list[Any]]) -> None:
    scores = {"context_relevance": 0.85, "context_utilization": None, "completeness": 0.9, "adherence": 1.0}
    make_run(trace_scores=scores, doc_contribution_scores={"pump.md#0": 0.95}, retrieval_confidence=0.92)
    (line,) = download()
    assert (line["trace_scores"], line["doc_contribution_scores"]) == (scores, {"pump.md#0": 0.95})
    search = make_run(kind="search", answer=None, citations=[], token_usage={}, created_at=NOON + timedelta(1))
    first = download()[0]
    assert (first["query"], first["answer"], first["citations"], first["token_usage"]) == (search.query, None, [], None)


def test_the_file_is_read_in_batches_and_loses_nothing(
    download: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "BATCH", 2)
    for number in range(5):
        make_run(query=str(number), created_at=NOON + timedelta(minutes=number // 2))
    told = [line["query"] for line in download()]
    stored = [run.query for run in QueryRun.objects.newest_first()]
    assert told == stored and len(told) == 5
    assert [line["query"] for line in download("&limit=3")] == stored[:3]


def test_the_file_holds_what_is_asked_for(download: Callable[..., list[Any]]) -> None:
    make_run(query="early", created_at=NOON - timedelta(hours=1))
    make_run(query="noon")
    make_run(query="weak", status="abstained", created_at=NOON + timedelta(hours=1))
    make_run(query="elsewhere", collection_name="garden", collection=make_collection_row("garden"))

    def told(query: str, **key: Any) -> set[str]:
        return {line["query"] for line in download(query, **key)}

    assert told("&collection=house&since=2026-03-01T12:00:00Z") == {"noon", "weak"}
    assert told("&until=2026-03-01T12:00:00Z") == {"early"}
    assert told("&status=abstained") == {"weak"} and told("&kind=search") == set()
    assert told("", collections=["garden"]) == {"elsewhere"}


def test_a_key_sees_its_collections_and_wrong_words_are_refused(client: Client) -> None:
    headers = bearer(collections=["garden"])
    assert client.get("/v1/runs?format=jsonl&collection=house", headers=headers).status_code == 403
    assert client.get("/v1/runs?format=jsonl&since=yesterday", headers=headers).status_code == 422
    assert client.get("/v1/runs?format=jsonl").status_code == 401


def test_a_fourth_download_waits_its_turn(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run()
    logs = [run_log.RunLog(QueryRun.objects.all()) for _ in range(run_log.LOGS_AT_ONCE)]
    refused = client.get("/v1/runs?format=jsonl", headers=bearer())
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "too_many_exports")
    assert len(list(logs[0])) == 1  # read to its end, its place is free again
    for log in logs[1:]:
        log.close()
    assert len(b"".join(client.get("/v1/runs?format=jsonl", headers=bearer()).streaming_content).splitlines()) == 1


def test_a_download_that_nobody_closes_frees_its_place() -> None:
    for _ in range(run_log.LOGS_AT_ONCE + 1):
        run_log.RunLog(QueryRun.objects.all())


def test_the_page_downloads_what_it_lists(client: Client) -> None:
    client.force_login(User.objects.create_superuser("ada"))
    make_run(query="noon")
    make_run(query="weak", status="abstained")
    page = client.get("/activity/?status=abstained")
    assert 'href="/runs/log/?status=abstained"' in page.content.decode()
    lines = b"".join(client.get("/runs/log/?status=abstained").streaming_content).splitlines()
    assert [json.loads(line)["query"] for line in lines] == ["weak"]
