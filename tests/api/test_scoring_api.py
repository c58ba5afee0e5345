"""Runs judged over HTTP, scored runs in lists, the sampling of a collection: what a key may see and change."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from collections_app.models import Collection
from evaluation_app.models import KeptJudgement, RunScore, Sampling
from evaluation_app.scoring.judge_selection import StoredJudgements, clear_stored
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.search.query_pipeline import QueryRequest, ask
from tests.retrieval.corpus import bearer, get, make_collection_row, patch, post

pytestmark = pytest.mark.django_db


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
