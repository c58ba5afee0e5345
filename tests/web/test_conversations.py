"""Conversations: query runs under one name, with their figures and feedback, and no run that its reader may not see."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from collections_app.access.permissions import Role
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.models import Collection, RoleGrant
from evaluation_app.reviews.labels import give_feedback
from retrieval_app.models import ChatThread, QueryRun
from retrieval_app.plans.services import choose_plan
from retrieval_app.search.query_pipeline import QueryRequest, search
from tests.web.pages import client_of, texts, tree

PAGE = "/activity/conversations/"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

pytestmark = pytest.mark.django_db


def make_run(conversation: str, minute: int = 0, **values: Any) -> QueryRun:
    given: dict[str, Any] = {
        "kind": "ask", "collection_name": "nature", "query": "Why?", "answer": "**So** it is.", "channel": "api",
        "timings_ms": {"total": 100}, "created_at": NOON + timedelta(minutes=minute), "conversation_id": conversation,
    }  # fmt: skip
    return QueryRun.objects.create(**given | values)


def listed(client: Client, filters: str = "") -> list[str]:
    """The first questions of the conversations that the page lists."""
    return texts(client.get(PAGE + filters), "#conversations th[scope=row] a")


def test_a_conversation_adds_up_its_runs(visitor: Client) -> None:
    make_run("a", 5, query="And then?", cost_usd=0.25, timings_ms={"total": 300})
    make_run("a", 1, cost_usd=0.5, status="error", error="broken")
    make_run("a", 6, status="abstained")
    make_run("b/1 &2", 2, query="Other?", collection_name="rivers", channel="mcp")
    make_run("", 9, query="Alone?")
    assert listed(visitor) == ["Why?", "Other?"], "the one asked last first, by its first question"
    rows = list(QueryRun.objects.by_conversation())
    assert [row["conversation_id"] for row in rows] == ["a", "b/1 &2"]
    first = rows[0]
    assert (first["questions"], first["failed"], first["declined"], first["priced"]) == (3, 1, 1, 2)
    assert (first["cost"], first["slowest"], first["took"]) == (0.75, 300, 500)
    assert (first["began"], first["ended"]) == (NOON + timedelta(minutes=1), NOON + timedelta(minutes=6))
    links = [node.attributes["href"] for node in tree(visitor.get(PAGE)).css("#conversations th[scope=row] a")]
    page = visitor.get(links[0])
    assert texts(page, ".conversation h2") == ["Why?", "And then?", "Why?"], "oldest first"
    assert texts(page, ".conversation .prose strong") == ["So"] * 3
    assert texts(visitor.get(links[1]), ".conversation h2") == ["Other?"]
    assert visitor.get(f"{PAGE}?id=none").status_code == 404
    assert visitor.get(f"{PAGE}?id=%00").status_code == 404


def test_a_filter_finds_whole_conversations(visitor: Client) -> None:
    make_run("a", 1)
    right = make_run("a", 2, query="Where is the krill?")
    make_run("b", 3, query="Other?", collection_name="rivers", channel="mcp")
    wrong = make_run("b", 4)
    ada = User.objects.get(username="ada")
    give_feedback(right, correct=True, actor=ada)
    assert listed(visitor, "?text=krill") == ["Why?"]
    assert listed(visitor, "?collection=rivers") == ["Other?"]
    assert listed(visitor, "?channel=mcp&text=Why") == []
    assert listed(visitor, "?feedback=any") == ["Why?"]
    assert listed(visitor, "?feedback=incorrect") == []
    give_feedback(wrong, correct=False, comment="Not so.", actor=ada)
    assert listed(visitor, "?feedback=any") == ["Other?", "Why?"]
    assert listed(visitor, "?feedback=incorrect") == ["Other?"]
    assert texts(visitor.get(PAGE), "#conversations .chip") == ["1 incorrect", "1 correct"]
    assert texts(visitor.get(f"{PAGE}?id=b"), ".conversation .chip") == ["incorrect"]
    assert listed(visitor, "?channel=nonsense") == ["Other?", "Why?"]


def test_a_run_names_its_conversation(
    visitor: Client, fill: Callable[..., Collection], ask: Callable[..., QueryRun]
) -> None:
    nature = fill()
    run = ask("Which animal is the largest?")
    assert run.conversation_id == str(ChatThread.objects.get().pk)
    assert tree(visitor.get(f"{PAGE}?id={run.conversation_id}")).css_first(f'a[href="/chat/{run.conversation_id}/"]')
    assert tree(visitor.get(f"/runs/{run.pk}/")).css_first(f'a[href="{PAGE}?id={run.conversation_id}"]')
    assert ask("whale", do="search").conversation_id in set(map(str, ChatThread.objects.values_list("pk", flat=True)))
    plan = choose_plan(nature, None, {}).plan
    assert search(QueryRequest(nature, "whale", plan, "api", conversation_id="my\x00own")).conversation_id == "myown"
    assert search(QueryRequest(nature, "whale", plan, "api")).conversation_id == ""


@pytest.fixture
def shared() -> User:
    """May read nature and not vault; the conversation "both" has a run in each, "secret" one in vault."""
    ada = User.objects.create_user("ada")
    for name in ("nature", "vault"):
        collection = create_collection(name=name)
        ingest_text(collection, "a.md", "# A\n\nThe obsidianite lies below.")
        values = {"collection": collection, "collection_name": name, "query": f"Obsidianite of {name}?"}
        make_run("both", **values)
        if name == "nature":
            RoleGrant.objects.create(user=ada, collection_id=collection.pk, role=Role.EVALUATOR)
        else:
            make_run("secret", **values)
    return ada


def test_a_reader_sees_the_runs_that_they_may_see_and_no_others(shared: User) -> None:
    client = client_of(shared)
    page = client.get(PAGE)
    assert [each.questions for each in page.context["rows"]] == [1]
    assert "vault" not in page.content.decode()
    one = client.get(f"{PAGE}?id=both")
    assert texts(one, ".conversation h2") == ["Obsidianite of nature?"]
    assert "vault" not in one.content.decode()
    assert client.get(f"{PAGE}?id=secret").status_code == 404
    RoleGrant.objects.filter(user=shared).update(role=Role.VIEWER)
    assert listed(client) == [], "what others asked is for who evaluates"
    client.force_login(User.objects.create_superuser("root"))
    assert [each.questions for each in client.get(PAGE).context["rows"]] == [2, 1]
