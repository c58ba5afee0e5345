"""Query runs over HTTP: listed, read, replayed.
A search or answer that fails names the run that was stored of it, on every channel.
Runs as JSON Lines: exactly the minimal logging fields, for whom the key may see, batch by batch.
Runs judged over HTTP, scored runs in lists, the sampling of a collection: what a key may see and change.
GET /v1/spans and GET /v1/traces/{trace_id}: filters, pages, keys that are limited, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from collections_app.collections.deletion import delete_collection
from collections_app.documents.services import change_state, delete_documents, ingest_text
from collections_app.http import downloads
from collections_app.http.schemas import PageOf
from collections_app.models import Collection
from evaluation_app.models import KeptJudgement, RunScore, Sampling, Span
from evaluation_app.scoring.judge_selection import StoredJudgements, clear_stored
from ragd.errors import EmbedderError
from ragd.types import RetrievePlan, canonical_json
from retrieval_app.models import QueryRun
from retrieval_app.runs import run_log
from retrieval_app.search import query_pipeline
from retrieval_app.search.query_pipeline import QueryRequest, ask
from retrieval_app.search.schemas import Replay, Run, RunSummary
from tests.retrieval.corpus import bearer, get, make_collection, make_collection_row, patch, post
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


QUERY = {"query": "water of the boiler", "k": 3, "mode": "hybrid", "weights": {"vector": 0.5}, "compress": "window"}


def run_once(client: Client, headers: dict[str, str], **more: Any) -> str:
    return str(post(client, "/v1/collections/house/search", QUERY | more, headers)[1]["run_id"])


def replay(client: Client, run_id: str, headers: dict[str, str]) -> Any:
    answer = client.post(f"/v1/runs/{run_id}/replay", headers=headers)
    assert answer.status_code == 200, answer.content
    check_shape(Replay, answer.json())
    return answer.json()


def test_nothing_changed_gives_the_same_bytes(house: Collection, client: Client) -> None:
    headers = bearer(scope="read")
    run_id = run_once(client, headers)
    body = replay(client, run_id, headers)
    assert canonical_json(body["before"]) == canonical_json(body["now"])
    assert (body["same"], body["store_changed"], body["index_version_changed"]) == (True, False, False)
    assert (body["differences"], body["notes"], len(body["now"])) == ([], [], 3)
    first, again = QueryRun.objects.get(pk=run_id), QueryRun.objects.get(pk=body["replay_run_id"])
    assert (again.plan_hash, again.query, again.kind) == (first.plan_hash, first.query, "search")
    assert (again.replay_of, again.channel, first.replay_of) == (first.pk, "api", None)


def change_text(collection: Collection) -> None:
    ingest_text(collection, "boiler.md", "The boiler of the water is gone.")


def delete_one(collection: Collection) -> None:
    delete_documents(collection, ["boiler.md"])


def switch_off(collection: Collection) -> None:
    change_state(collection, ["boiler.md"], "disabled")


@pytest.mark.parametrize("change", [change_text, delete_one, switch_off])
def test_a_changed_store_is_said_with_what_differs(house: Collection, client: Client, change: Any) -> None:
    headers = bearer()
    run_id = run_once(client, headers)
    change(house)
    body = replay(client, run_id, headers)
    assert (body["same"], body["store_changed"], body["index_version_changed"]) == (False, True, False)
    before = {item["doc_id"]: item["rank"] for item in body["before"]}
    now = {item["doc_id"]: item["rank"] for item in body["now"]}
    moved = [(item["doc_id"], item["before"], item["now"]) for item in body["differences"]]
    assert all((before.get(doc_id), now.get(doc_id)) == (old, new) for doc_id, old, new in moved)
    assert {doc_id for doc_id, _, _ in moved} >= {name for name in {*before, *now} if before.get(name) != now.get(name)}


def test_a_change_and_its_undoing_leave_the_results_and_are_still_said(house: Collection, client: Client) -> None:
    headers = bearer()
    run_id = run_once(client, headers)
    change_state(house, ["garden.md"], "disabled")
    change_state(house, ["garden.md"], "enabled")
    body = replay(client, run_id, headers)
    assert (body["same"], body["store_changed"], body["differences"]) == (True, True, [])


def test_the_search_of_an_answer_is_replayed(house: Collection, client: Client) -> None:
    headers = bearer()
    asked = post(client, "/v1/collections/house/ask", {"query": "What does coffee cost?"}, headers)[1]
    body = replay(client, asked["run_id"], headers)
    assert (body["same"], body["now"]) == (True, asked["results"])


def test_a_failed_run_can_be_replayed_once_it_works(house: Collection, client: Client) -> None:
    Collection.objects.update(hybrid_enabled=False)
    headers = bearer()
    assert post(client, "/v1/collections/house/search", QUERY, headers)[0] == 400
    run = QueryRun.objects.get()
    answer = client.post(f"/v1/runs/{run.pk}/replay", headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "lexical_disabled")
    QueryRun.objects.filter(pk=run.pk).update(plan=run.plan | {"mode": "vector"})
    body = replay(client, str(run.pk), headers)
    assert (body["same"], len(body["now"]), len(body["differences"])) == (False, 3, 3)
    assert "the run failed" in body["notes"][0]
    delete_collection(house)
    answer = client.post(f"/v1/runs/{run.pk}/replay", headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "unknown_collection")


def test_another_collection_of_the_same_name_and_another_version_are_noted(house: Collection, client: Client) -> None:
    delete_collection(house)
    make_collection()
    headers = bearer()
    run_id = run_once(client, headers)
    QueryRun.objects.filter(pk=run_id).update(collection_id=0, spec_version="0.0.1", store_state={})
    body = replay(client, run_id, headers)
    assert (body["same"], body["store_changed"]) == (True, None)
    assert ["another collection" in body["notes"][0], "0.0.1" in body["notes"][1]] == [True, True]


def test_a_plan_of_another_version_is_refused_with_its_field(house: Collection, client: Client) -> None:
    headers = bearer()
    run_id = run_once(client, headers)
    QueryRun.objects.filter(pk=run_id).update(plan={"mode": "hybrid", "colour": "red"})
    answer = client.post(f"/v1/runs/{run_id}/replay", headers=headers)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "plan")


FIELDS = {
    "id", "created_at", "finished_at", "query", "retrieved_ids", "answer", "citations", "trace_scores",
    "retrieval_confidence", "doc_contribution_scores", "retrieval_action", "fallback_triggered", "token_usage",
}  # fmt: skip
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def make_run_of_run_log(**values: Any) -> QueryRun:
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
    run = make_run_of_run_log(timings_ms={"total": 1500.0})
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
    slow = make_run_of_run_log(query="slow", timings_ms={"total": 6000.0})
    fast = make_run_of_run_log(query="fast", created_at=NOON + timedelta(seconds=1), timings_ms={"total": 20.0})
    make_run_of_run_log(query="earlier", created_at=NOON - timedelta(seconds=1), timings_ms={})
    for since in (fast.created_at, fast.finished_at):
        found = {line["id"] for line in download(f"&since={since.isoformat().replace('+', '%2B')}")}
        assert found == {str(slow.pk), str(fast.pk)}
        listed = client.get("/v1/runs", {"since": since.isoformat()}, headers=bearer(scope="read")).json()["items"]
        assert {item["run_id"] for item in listed} == found
    until = fast.finished_at.isoformat().replace("+", "%2B")
    assert [line["query"] for line in download(f"&until={until}")] == ["earlier"]


def test_scores_are_there_once_there_are_some(download: Callable[..., list[Any]]) -> None:
    scores = {"context_relevance": 0.85, "context_utilization": None, "completeness": 0.9, "adherence": 1.0}
    make_run_of_run_log(trace_scores=scores, doc_contribution_scores={"pump.md#0": 0.95}, retrieval_confidence=0.92)
    (line,) = download()
    assert (line["trace_scores"], line["doc_contribution_scores"]) == (scores, {"pump.md#0": 0.95})
    search = make_run_of_run_log(
        kind="search", answer=None, citations=[], token_usage={}, created_at=NOON + timedelta(1)
    )
    first = download()[0]
    assert (first["query"], first["answer"], first["citations"], first["token_usage"]) == (search.query, None, [], None)


def test_the_file_is_read_in_batches_and_loses_nothing(
    download: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "BATCH", 2)
    for number in range(5):
        make_run_of_run_log(query=str(number), created_at=NOON + timedelta(minutes=number // 2))
    told = [line["query"] for line in download()]
    stored = [run.query for run in QueryRun.objects.newest_first()]
    assert told == stored and len(told) == 5
    assert [line["query"] for line in download("&limit=3")] == stored[:3]


def test_the_file_holds_what_is_asked_for(download: Callable[..., list[Any]]) -> None:
    make_run_of_run_log(query="early", created_at=NOON - timedelta(hours=1))
    make_run_of_run_log(query="noon")
    make_run_of_run_log(query="weak", status="abstained", created_at=NOON + timedelta(hours=1))
    make_run_of_run_log(query="elsewhere", collection_name="garden", collection=make_collection_row("garden"))

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
    make_run_of_run_log()
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
    make_run_of_run_log(query="noon")
    make_run_of_run_log(query="weak", status="abstained")
    page = client.get("/activity/?status=abstained")
    assert 'href="/runs/log/?status=abstained"' in page.content.decode()
    lines = b"".join(client.get("/runs/log/?status=abstained").streaming_content).splitlines()
    assert [json.loads(line)["query"] for line in lines] == ["weak"]


BODY = {"query": "which pump"}


@pytest.fixture
def failing(house: Collection, monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(*arguments: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(query_pipeline, "_retrieve", fail)


@pytest.mark.parametrize("action", ["search", "ask"])
def test_the_api_names_the_run(client: Client, failing: None, action: str) -> None:
    key = bearer()
    status, body = post(client, f"/v1/collections/house/{action}", BODY, key)
    assert status == 500 and body["run_id"] == str(QueryRun.objects.get().pk)
    stored = get(client, f"/v1/runs/{body['run_id']}", key)[1]
    assert (stored["status"], stored["error"]["type"]) == ("error", body["error"]["type"])


def test_what_was_refused_before_it_ran_names_none(client: Client, failing: None) -> None:
    status, body = post(client, "/v1/collections/house/ask", BODY | {"k": 0}, bearer())
    assert (status, "run_id" in body, QueryRun.objects.count()) == (422, False, 0)


def test_a_run_that_could_not_be_stored_is_not_named(
    client: Client, failing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(run: QueryRun) -> None:
        run.pk = None

    monkeypatch.setattr(query_pipeline, "_store_run", lose)
    assert "run_id" not in post(client, "/v1/collections/house/ask", BODY, bearer())[1]


def test_mcp_and_chat_name_the_run(client: Client, failing: None) -> None:
    key = bearer()
    call = {"name": "collections-ask", "arguments": BODY | {"collection": "house"}}
    _, answer = post(client, "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}, key)
    assert answer["result"]["isError"]
    content = json.loads(answer["result"]["content"][0]["text"])
    assert content["run_id"] == str(QueryRun.objects.get().pk)
    chat = {"model": "ragd/house", "messages": [{"role": "user", "content": "which pump"}]}
    _, answer = post(client, "/v1/chat/completions", chat, key)
    assert answer["run_id"] == str(QueryRun.objects.newest_first()[0].pk) and "error" in answer


def test_the_page_links_to_the_run(house: Collection, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(*arguments: Any) -> None:
        raise EmbedderError("the endpoint is away", kind="connection", retryable=False)

    monkeypatch.setattr(query_pipeline, "_retrieve", fail)
    response = admin_client.post("/chat/", {"query": "which pump", "collection": "house", "do": "ask"})
    run = QueryRun.objects.get()
    assert response.context["failed_run"] == str(run.pk)
    assert f'href="{run.get_absolute_url()}"' in response.content.decode()


def make_score(**values: Any) -> RunScore:
    defaults: dict[str, Any] = {
        "query_run": uuid4(), "collection_name": "house", "question_text": "?", "judge": "embedded",
        "outcome": "answered", "asked_at": timezone.now(), "scores": {"adherence": {"state": "scored", "value": 1.0}},
    }  # fmt: skip
    return RunScore.objects.create(**defaults | values)


def test_a_run_is_judged_and_read(house: Collection, client: Client) -> None:
    run = ask(QueryRequest(house, "What must be done before the pump is cleaned?", RetrievePlan(k=2), "api"))
    judge = f"/v1/runs/{run.pk}/judge"
    assert post(client, judge, {}, bearer(collections=["garden"]))[0] == 404
    status, body = post(client, judge, {"unit": "sentences"}, bearer())
    found = (status, body["outcome"], body["reason"], body["scores"]["adherence"]["value"])
    assert found == (200, "answered", "asked", 1)
    assert [chunk["key"] for chunk in body["context"]] == run.retrieved_ids and body["annotation"]["support"]
    address = f"/v1/run-scores?run_id={run.pk}"
    assert get(client, address, bearer(scope="read"))[1]["items"] == [body]
    assert get(client, address, bearer(collections=["garden"]))[1]["items"] == []
    _, whole = get(client, f"/v1/runs/{run.pk}", bearer())
    assert set(whole["trace_scores"]) == {"context_relevance", "context_utilization", "completeness", "adherence"}


def test_what_cannot_be_judged_is_refused(client: Client) -> None:
    failed = QueryRun.objects.create(kind="ask", collection_name="house", query="?", channel="api", status="error")
    status, body = post(client, f"/v1/runs/{failed.pk}/judge", {}, bearer())
    assert (status, body["error"]["type"]) == (409, "nothing_to_judge")
    status, body = post(client, f"/v1/runs/{failed.pk}/judge", {"judge": "oracle"}, bearer())
    assert status == 422
    assert get(client, f"/v1/run-scores?run_id={failed.pk}", bearer())[1]["items"] == []


def test_scored_runs_are_listed_for_whom_they_concern(client: Client) -> None:
    make_collection_row("garden")
    make_score(modes=["hallucination"])
    make_score(reason="sampled")
    make_score(collection_name="garden", reason="sampled")

    def listed(query: str = "", **key: Any) -> Any:
        status, body = get(client, f"/v1/run-scores{query}", bearer(scope="read", **key))
        assert status == 200
        return body

    assert len(listed()["items"]) == 3 and listed()["items"][0]["context"] is None
    assert [item["collection"] for item in listed(collections=["garden"])["items"]] == ["garden"]
    assert len(listed("?reason=sampled&collection=house")["items"]) == 1
    assert len(listed("?mode=hallucination")["items"]) == 1 and listed("?mode=%00")["items"] == []
    first = listed("?limit=2")
    rest = listed(f"?limit=2&cursor={first['next_cursor']}")
    assert len(first["items"]) == 2 and len(rest["items"]) == 1 and rest["next_cursor"] is None
    assert get(client, "/v1/run-scores?collection=house", bearer(collections=["garden"]))[0] == 403


def test_the_sampling_of_a_collection_is_read_and_changed(house: Collection, client: Client) -> None:
    address, wanted = "/v1/collections/house/evaluation", {"enabled": True, "rate": 0.25, "per_day": 20}

    def put(body: Any, **key: Any) -> tuple[int, Any]:
        return patch(client, address, {"sampling": body}, bearer(**key))

    assert get(client, address, bearer(scope="read"))[1]["sampling"]["enabled"] is False
    assert put(wanted, scope="read")[0] == 403 and put(wanted, collections=["garden"])[0] == 403
    status, answer = put(wanted)
    body = answer["sampling"]
    assert (status, body["rate"], body["judge"], body["collection"]) == (200, 0.25, "embedded", "house")
    assert body["enabled_at"] and Sampling.objects.get().updated_by == "key tests"
    for field, value in (("rate", 0), ("per_day", 0), ("judge", "llm"), ("share", 1)):
        status, body = put(wanted | {field: value})
        assert status == 422, body
    assert Sampling.objects.get().rate == 0.25


def test_kept_judgements_are_forgotten(client: Client) -> None:
    for number, model in enumerate(("a", "a", "b")):
        StoredJudgements().put(str(number) * 64, model, {"said": number})
    assert clear_stored("a", actor=None) == 2
    client.force_login(User.objects.create_superuser("root"))
    page = "/admin/evaluation_app/keptjudgement/"
    assert client.get(page).status_code == client.get("/admin/evaluation_app/runscore/").status_code == 200
    client.post(page, {"action": "forget_models", "_selected_action": ["2" * 64]})
    assert KeptJudgement.objects.count() == 0


SPANS_AT = datetime(2026, 1, 5, 12, tzinfo=UTC)
TRACE = "a" * 32


def make_span(span_id: str, parent: str | None, at_ms: int, collection: str = "", **values: Any) -> Span:
    started_at = SPANS_AT + timedelta(milliseconds=at_ms)
    defaults: dict[str, Any] = {
        "trace_id": TRACE, "name": f"span {span_id}", "kind": "INTERNAL", "started_at": started_at,
        "ended_at": started_at + timedelta(milliseconds=10), "duration_ms": 10,
        "attributes": {"ragd.collection": collection}, "events": [{"name": "e", "time": "t", "attributes": {}}],
    }  # fmt: skip
    return Span.objects.create(span_id=span_id, parent_span_id=parent, collection=collection, **(defaults | values))


@pytest.fixture
def spans(db: None) -> None:
    make_span("request", None, 0, kind="SERVER", duration_ms=100, ended_at=SPANS_AT + timedelta(milliseconds=100))
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
    assert (body["trace_id"], body["duration_ms"], body["start"]) == (TRACE, 100.0, SPANS_AT.isoformat())


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
