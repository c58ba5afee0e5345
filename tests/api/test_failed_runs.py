"""A search or answer that fails names the run that was stored of it, on every channel."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from collections_app.models import Collection
from ragd.errors import EmbedderError
from retrieval_app.models import QueryRun
from retrieval_app.search import query_pipeline
from tests.retrieval.corpus import bearer, get, post

pytestmark = pytest.mark.django_db
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
