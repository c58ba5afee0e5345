"""Limits of keys and people: counted exactly, told by headers, and each for its own holder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from collections_app.access.context import Access, Limit, using_access
from collections_app.access.limits import LimitReached, count_request, count_tokens, forget_counts
from collections_app.models import Collection
from ragd.store.store import execute, fetch_all
from tests.api.conftest import Api
from tests.keys.conftest import World
from tests.simultaneous import call_together
from tests.web.pages import client_of


def still_minute() -> None:
    """Counts of now hold on: no test fails because a minute turned."""
    execute(connection, "UPDATE usage_counts SET minute = minute + interval '1 hour'")


@pytest.mark.django_db
def test_one_request_too_many_is_429_until_the_minute_ends(key_of: Callable[..., Api]) -> None:
    key = key_of(requests_per_minute=3)
    first = key.get("/collections")
    still_minute()
    assert [key.get("/collections").status_code for _ in range(3)] == [200, 200, 429]
    assert (first["X-RateLimit-Limit"], first["X-RateLimit-Remaining"]) == ("3", "2")
    refused = key.get("/collections")
    assert refused.json()["error"]["type"] == "too_many_requests"
    assert refused["X-RateLimit-Remaining"] == "0" and int(refused["Retry-After"]) >= 1
    assert int(refused["X-RateLimit-Reset"]) >= 1
    chat = key.post("/chat/completions", {"model": "ragd/x", "messages": []})
    assert (chat.status_code, chat.json()["error"]["type"]) == (429, "rate_limit_error") and "Retry-After" in chat
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Authorization": f"Bearer {key.secret}"}
    assert Client().post("/mcp", message, content_type="application/json", headers=headers).status_code == 429
    execute(connection, "UPDATE usage_counts SET minute = minute - interval '2 hours'")
    assert key.get("/collections").status_code == 200


@pytest.mark.django_db
def test_keys_of_one_person_share_that_persons_limit(key_of: Callable[..., Api], settings: Any, db: None) -> None:
    settings.RAGD_REQUESTS_PER_MINUTE = 3
    User.objects.create_superuser("boss")
    one, two = (key_of(name, acts_as="boss", requests_per_minute=0) for name in "ab")
    one.get("/collections")
    still_minute()
    assert [key.get("/collections").status_code for key in (two, one, two)] == [200, 200, 429]
    assert key_of("alone").get("/collections")["X-RateLimit-Remaining"] == "2"
    assert "X-RateLimit-Limit" not in key_of("free", requests_per_minute=0).get("/collections")


@pytest.mark.django_db
def test_tokens_of_a_day_are_those_of_the_models_of_its_runs(world: World, key_of: Callable[..., Api]) -> None:
    key = key_of("spender", tokens_per_day=5)
    answer = key.post("/collections/notes/search", {"query": "How tall is an oak, and how old?"})
    assert answer.status_code == 200
    ((used,),) = fetch_all(connection, "SELECT tokens FROM usage_counts WHERE holder LIKE 'key:%%'")
    assert used >= 5
    refused = key.post("/collections/notes/search", {"query": "again"})
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "too_many_tokens")
    assert 1 <= int(refused["Retry-After"]) <= 86_401
    execute(connection, "UPDATE usage_counts SET day = day - 1")
    assert key.post("/collections/notes/search", {"query": "again"}).status_code == 200


@pytest.mark.django_db
def test_questions_on_pages_count_for_the_person(world: World, people: dict[str, User], settings: Any) -> None:
    settings.RAGD_REQUESTS_PER_MINUTE = 1
    client = client_of(people["asker"])
    form = {"query": "How tall is an oak?", "collection": "notes"}
    first = client.post("/chat/", form)
    still_minute()
    refused = client.post("/chat/", form)
    assert first.status_code < 400
    assert refused.status_code == 429 and int(refused["Retry-After"]) >= 1
    assert client.get("/chat/").status_code == 200


@pytest.mark.django_db
def test_unknown_keys_from_one_address_are_limited_and_live_ones_are_not(
    key_of: Callable[..., Api], settings: Any
) -> None:
    settings.RAGD_WRONG_KEYS_PER_MINUTE = 5
    live, wrong = key_of(), Api(Client(), "ragd_" + "x" * 43)
    wrong.get("/collections")
    still_minute()
    assert [wrong.get("/collections").status_code for _ in range(59)] == [403] * 4 + [429] * 55
    assert wrong.get("/collections").json()["error"]["type"] == "too_many_wrong_keys"
    assert live.get("/collections").status_code == 200
    elsewhere = Client().get("/v1/collections", headers={"Authorization": "Bearer x"}, REMOTE_ADDR="192.0.2.1")
    assert elsewhere.status_code == 403


@pytest.mark.django_db
def test_counts_of_days_ago_are_forgotten() -> None:
    with using_access(Access(limits=(Limit("key:1", 1, 10),))):
        count_tokens(4)
    assert forget_counts(timezone.now()) == 0
    execute(connection, "UPDATE usage_counts SET minute = minute - interval '4 days', day = day - 4")
    assert forget_counts(timezone.now()) == 1


@pytest.mark.django_db
def test_a_model_or_prompt_of_ones_own_needs_write_or_the_collections_setting(world: World) -> None:
    asker, curator = world.keys["asker"], world.keys["curator"]
    for fields in ({"llm_model": "another-model"}, {"system_prompt": "Answer in verse."}):
        body = {"query": "How tall is an oak?"} | fields
        refused = asker.post("/collections/notes/ask", body)
        assert (refused.status_code, refused.json()["error"]["type"]) == (403, "override_refused")
        assert refused.json()["error"]["field"] in fields
        assert "override_refused" not in curator.post("/collections/notes/ask", body).content.decode()
    assert asker.post("/collections/notes/ask", {"query": "How tall?", "llm_model": "extractive"}).status_code == 200
    question = {"model": "ragd/notes", "messages": [{"role": "user", "content": "How tall?"}]}
    chat = asker.post("/chat/completions", question | {"ragd": {"llm_model": "another-model"}})
    assert (chat.status_code, chat.json()["error"]["code"]) == (403, "override_refused")
    Collection.objects.filter(name="notes").update(security={"allow_overrides": True})
    opened = asker.post("/collections/notes/ask", {"query": "How tall?", "system_prompt": "Verse."})
    assert opened.json().get("error", {}).get("type") != "override_refused"


def test_many_at_once_are_counted_exactly(committed: None) -> None:
    access = Access(limits=(Limit("key:1", 50), Limit("user:1", 1000)))
    count_request(access)
    still_minute()

    def ask() -> int:
        answered = 0
        for _ in range(20):
            with suppress(LimitReached):
                count_request(access)
                answered += 1
        return answered

    assert sum(call_together(*[ask] * 8)) == 49
    assert dict(fetch_all(connection, "SELECT holder, requests FROM usage_counts")) == {"key:1": 161, "user:1": 161}
