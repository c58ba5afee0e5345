"""Assistants in the chat, and the public page of one: what it answers from, who may frame it, how often it is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from collections_app.domain.permissions import Role
from collections_app.models import AuditEvent, Collection, RoleGrant
from collections_app.services.documents.documents import ingest_text
from collections_app.services.governance.document_access import set_access
from retrieval_app.models import ChatAssistant, ChatThread, QueryRun
from tests.fakes.openai_server import OpenAIServer, openai_server
from tests.web.pages import has, texts

__all__ = ["openai_server"]
QUESTION = "Which animal is the largest?"
ORIGIN = {"Origin": "http://testserver"}


@pytest.fixture
def form(fill: Callable[..., Collection]) -> dict[str, Any]:
    return {
        "name": "Guide", "collections": [fill().pk], "prompt": "Answer as a guide.", "greeting": "Welcome.",
        "starters": f"{QUESTION}\n\n What grows in California? ", "is_public": "on",
        "origins": "https://www.example.org", "per_minute": "2", "per_day": "3",
    }  # fmt: skip


@pytest.fixture
def guide(visitor: Client, form: dict[str, Any]) -> ChatAssistant:
    assert visitor.post("/chat/assistants/new/", form).status_code == 302
    return ChatAssistant.objects.get()


def test_an_assistant_is_made_by_who_may_write_in_all_its_collections(
    visitor: Client, bound: Client, form: dict[str, Any], fill: Callable[..., Collection], django_user_model: Any
) -> None:
    assert visitor.post("/chat/assistants/new/", form | {"origins": "example.org/x"}).status_code == 422
    assert visitor.post("/chat/assistants/new/", form | {"collections": []}).status_code == 422
    assert visitor.post("/chat/assistants/new/", form).status_code == 302
    guide = ChatAssistant.objects.get()
    assert (guide.slug, guide.starters) == ("guide", [QUESTION, "What grows in California?"])
    assert AuditEvent.objects.filter(action="assistant.add").count() == 1
    assert visitor.post("/chat/assistants/new/", form).status_code == 422, "the name is taken"

    asker, other = Client(), fill("other", 1)
    bob = django_user_model.objects.create_user("bob")
    asker.force_login(bob)
    RoleGrant.objects.create(user=bob, collection_id=form["collections"][0], role=Role.ASKER)
    assert texts(asker.get("/chat/assistants/"), "tbody th") == ["Guide"]
    assert asker.post(f"/chat/assistants/{guide.pk}/", form).status_code == 403
    RoleGrant.objects.create(user=bob, collection_id=form["collections"][0], role=Role.CURATOR)
    assert asker.post(f"/chat/assistants/{guide.pk}/", form | {"greeting": "Hello."}).status_code == 302
    assert asker.post(f"/chat/assistants/{guide.pk}/", form | {"collections": [other.pk]}).status_code == 422
    ChatAssistant.objects.update(collection_ids=[form["collections"][0], other.pk])
    assert texts(asker.get("/chat/assistants/"), "tbody th") == []
    assert asker.get(f"/chat/assistants/{guide.pk}/").status_code == 404
    assert asker.get("/chat/?assistant=guide").status_code == 404
    assert visitor.post(f"/chat/assistants/{guide.pk}/delete/").status_code == 302
    assert not ChatAssistant.objects.exists()


def test_a_thread_with_an_assistant_is_answered_under_its_instructions(
    visitor: Client, guide: ChatAssistant, fill: Callable[..., Collection], openai_server: OpenAIServer, settings: Any
) -> None:
    fill("other", 1)
    settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_API_KEY = openai_server.base_url, openai_server.api_key
    openai_server.chat_reply = lambda messages: "The blue whale [1]."
    page = visitor.get("/chat/?assistant=guide")
    assert texts(page, ".starters button") == guide.starters
    visitor.post("/chat/", {"assistant": "guide", "collection": "other", "starter": QUESTION})
    run, thread = QueryRun.objects.get(), ChatThread.objects.get()
    assert (run.query, run.collection_name, run.system_prompt) == (QUESTION, "nature", guide.prompt)
    assert thread.assistant == guide
    guide.delete()
    visitor.post(
        thread.get_absolute_url(), {"collection": "nature", "query": "And the tallest tree?", "as_typed": "on"}
    )
    assert QueryRun.objects.latest("created_at").system_prompt == ""


def test_the_public_page_answers_without_an_account_and_tells_nothing_else(
    guide: ChatAssistant, fill: Callable[..., Collection], django_user_model: type[User]
) -> None:
    nature = Collection.objects.get(name="nature")
    ingest_text(nature, "secret.md", "# Secret\n\nThe obsidianite whale is the largest animal of all animals.")
    set_access(nature, ["secret.md"])
    somebody = Client()
    page = somebody.get("/a/guide/")
    assert (page.status_code, texts(page, "h1")) == (200, ["Guide"]) and not page.cookies
    answer = somebody.post("/a/guide/", {"starter": QUESTION}, headers=ORIGIN)
    run = QueryRun.objects.get()
    body = answer.content.decode()
    assert answer.status_code == 200 and "The blue whale is the largest animal." in body and has(answer, ".source")
    assert run.user is None and {result["doc_id"] for result in run.results} & {"secret.md"} == set()
    for told in ("obsidianite", str(run.pk), "/traces/", "/collections/", "/runs/"):
        assert told not in body
    assert somebody.get(f"/runs/{run.pk}/").status_code == 302, "the log-in"
    ChatAssistant.objects.update(is_public=False)
    assert somebody.get("/a/guide/").status_code == somebody.post("/a/guide/", {"query": "x"}).status_code == 404


def test_only_named_sites_may_frame_it_and_only_its_own_form_asks(guide: ChatAssistant) -> None:
    def ancestors() -> str:
        page = Client().get("/a/guide/")
        assert "X-Frame-Options" not in page
        rules = dict(rule.strip().partition(" ")[::2] for rule in page["Content-Security-Policy"].split(";"))
        return rules["frame-ancestors"]

    assert ancestors() == "https://www.example.org"
    ChatAssistant.objects.update(origins=[])
    assert ancestors() == "'none'"
    for headers in (
        {},
        {"Origin": "null"},
        {"Origin": "https://www.example.org"},
        {"Origin": "http://testserver.evil"},
    ):
        assert Client().post("/a/guide/", {"query": QUESTION}, headers=headers).status_code == 403
    assert not QueryRun.objects.exists()


def test_an_address_asks_so_often_in_a_minute_and_in_a_day(guide: ChatAssistant) -> None:
    def ask(address: str, query: str = QUESTION) -> Any:
        return Client().post("/a/guide/", {"query": query}, headers=ORIGIN, REMOTE_ADDR=address)

    assert ask("10.0.0.1", " ").status_code == 422
    assert [ask("10.0.0.1").status_code for _ in range(3)] == [200, 200, 429]
    refused = ask("10.0.0.1", "Is it kept?")
    assert 1 <= int(refused["Retry-After"]) <= 61 and texts(refused, "textarea") == ["Is it kept?"]
    assert ask("10.0.0.2").status_code == 200
    ChatAssistant.objects.update(per_minute=100)
    assert [ask("10.0.0.2").status_code for _ in range(3)] == [200, 200, 429]
    assert QueryRun.objects.count() == 5
