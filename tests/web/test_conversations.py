"""Conversations: query runs under one name, with their figures and feedback, and no run that its reader may not see.
Collections and documents have display names wherever people meet them; addresses keep names and IDs.
Saved views of lists, which each person keeps for themselves; counts beside the filters of runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, RequestFactory

from collections_app.access.context import using_access
from collections_app.access.permissions import Role
from collections_app.access.services import access_of_user
from collections_app.collections.models import collection_choices
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.http.lists import VIEWS_MAX, clean_query, save_view
from collections_app.http.page_requests import collection_titles
from collections_app.models import Chunk, Collection, Document, PersonalSetting, RoleGrant
from evaluation_app.models import GoldenQuestion, GoldenSet
from evaluation_app.reviews.labels import give_feedback
from ragd.errors import InvalidInput
from retrieval_app.models import ChatThread, QueryRun
from retrieval_app.plans.services import choose_plan
from retrieval_app.search.query_pipeline import QueryRequest, search
from tests.web.pages import attribute, client_of, has, texts, tones, tree, wrong_fields

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
    assert texts(visitor.get(f"{PAGE}?id=b"), ".conversation .chip") == ["Incorrect"]
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
    carl = User.objects.create_user("carl")
    for name in ("nature", "vault"):
        collection = create_collection(name=name)
        ingest_text(collection, "a.md", "# A\n\nThe obsidianite lies below.")
        values = {"collection": collection, "collection_name": name, "query": f"Obsidianite of {name}?"}
        make_run("both", **values)
        if name == "nature":
            RoleGrant.objects.create(user=carl, collection_id=collection.pk, role=Role.EVALUATOR)
        else:
            make_run("secret", **values)
    return carl


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


TITLE = "The <park> & its animals"
LIST, RENAME = "/collections/nature/", "/collections/nature/documents/whales.md/?view=rename"


@pytest.fixture
def park(fill: Callable[..., Any]) -> Collection:
    collection: Collection = fill("nature", 2)
    Collection.objects.filter(pk=collection.pk).update(title=TITLE)
    collection.refresh_from_db()
    return collection


def test_its_own_pages_and_the_menus_call_it_so(visitor: Client, park: Collection) -> None:
    page = visitor.get("/collections/nature/")
    assert texts(page, "h1") == [TITLE] and texts(page, ".crumbs [aria-current]") == [TITLE]
    assert "nature" in texts(page, "#collection-facts .mono")
    assert texts(visitor.get("/collections/"), "tbody th a") == [TITLE]
    assert texts(visitor.get("/collections/"), "tbody th .mono") == ["nature"]
    switcher = visitor.get("/collection-switcher/")
    assert texts(switcher, "a[href='/collections/nature/']") == [TITLE]
    document = visitor.get("/collections/nature/documents/whales.md/")
    assert texts(document, ".crumbs a[href='/collections/nature/']") == [TITLE]
    assert texts(document, ".crumbs [aria-current]") == ["Whales"]
    chat = visitor.get("/chat/")
    assert texts(chat, "[data-chosen]") == [TITLE]
    assert attribute(chat, "#composer input[name=collection]", "value") == "nature"
    assert TITLE in "".join(texts(visitor.get("/keys/?view=new"), "form label"))


def test_a_title_that_several_have_is_told_apart() -> None:
    rows = [Collection(name="a", title="Notes"), Collection(name="b", title="Notes"), Collection(name="c")]
    assert collection_choices(rows) == [("a", "Notes (a)"), ("b", "Notes (b)"), ("c", "c")]


def test_titles_are_those_of_what_one_may_see(park: Collection, django_user_model: type[User]) -> None:
    vault = create_collection(name="vault", title="Secret vault")
    reader = django_user_model.objects.create_user("reader")
    RoleGrant.objects.create(user=reader, collection_id=park.pk, role=Role.VIEWER)
    with using_access(access_of_user(reader)):
        assert collection_titles(RequestFactory().get("/")) == {"nature": TITLE}
        client = client_of(reader)
        assert not has(client.get("/collection-switcher/"), f"a[href='/collections/{vault.name}/']")
        found = client.get("/go/", {"q": "Secret"}, headers={"HX-Request": "true", "HX-Target": "palette-results"})
        assert "vault" not in found.content.decode()


def test_a_document_is_renamed_from_its_page_and_from_the_list(visitor: Client, park: Collection) -> None:
    document = "/collections/nature/documents/whales.md/"
    assert has(visitor.get(document), f"a[data-dialog][href='{RENAME}']")
    assert has(visitor.get(LIST), f"tr a[data-dialog][href^='{RENAME}&next=']")
    form = visitor.get(RENAME)
    assert attribute(form, "#confirm [name=title]", "value") == "Whales"
    others = {row.pk: list(row.embedding) for row in Chunk.objects.filter(doc_id="trees.md")}
    sent = {"title": "Giants of\tthe sea", "expected_revision": "1", "next": f"{LIST}?sort=doc_id"}
    answer = visitor.post(RENAME, sent)
    assert answer["Location"] == sent["next"]
    row = Document.objects.get(doc_id="whales.md")
    assert (row.title, row.doc_id, row.revision) == ("Giants of the sea", "whales.md", 2)
    assert {row.pk: list(row.embedding) for row in Chunk.objects.filter(doc_id="trees.md")} == others
    assert "Giants of the sea" in texts(visitor.get(LIST), "tbody th .named a.clip")
    assert texts(visitor.get(document), "h1") == ["Giants of the sea"]
    stale = visitor.post(RENAME, sent | {"title": "Other"})
    assert stale.status_code == 409 and has(stale, "#confirm .banner[data-tone=bad]")
    assert wrong_fields(visitor.post(RENAME, sent | {"title": "x" * 501, "expected_revision": "2"})) == ["title"]
    visitor.post(RENAME, {"title": "", "expected_revision": "2"})
    assert texts(visitor.get(document), "h1") == ["whales.md"]


CHANGE = "/list-view/"


def make_run_of_list_views(**values: Any) -> QueryRun:
    given = {"kind": "ask", "collection_name": "nature", "query": "Why?", "channel": "page", "status": "ok"} | values
    return QueryRun.objects.create(**given)


def test_a_view_keeps_a_filter_and_is_deleted(visitor: Client) -> None:
    make_run_of_list_views(status="error", error="broken")
    here = "/activity/?status=error&page=2&kind="
    assert attribute(visitor.get(here), 'input[name="query"]', "value") == "status=error"
    view = {"do": "save", "list": "runs", "name": " Broken ", "query": "status=error", "next": here}
    saved = visitor.post(CHANGE, view)
    assert (saved.status_code, saved["Location"]) == (302, here)
    page = visitor.get("/activity/?status=error")
    assert texts(page, ".view-list a") == ["Broken"] and attribute(page, ".view-list a", "href") == "?status=error"
    assert has(page, '.view-list a[aria-current="true"]')
    assert not has(visitor.get("/activity/"), '.view-list a[aria-current="true"]')
    assert not has(visitor.get("/activity/spans/"), ".view-list")
    visitor.post(CHANGE, {"do": "save", "list": "runs", "name": "Broken", "query": "kind=ask"})
    assert [each["query"] for each in PersonalSetting.objects.get(key="views:runs").value] == ["kind=ask"], "replaced"
    visitor.post(CHANGE, {"do": "delete", "list": "runs", "name": "Broken"})
    assert not PersonalSetting.objects.exists()


def test_a_wrong_view_is_refused(visitor: Client) -> None:
    long = {"name": "a", "query": "q=1&" * 501}
    for wrong in ({"name": " "}, {"name": "x" * 61}, {"name": "a", "list": "others"}, long):
        visitor.post(CHANGE, {"do": "save", "list": "runs", "query": "kind=ask"} | wrong)
        assert tones(visitor.get("/activity/")) == ["bad"], wrong
    assert not PersonalSetting.objects.exists()
    ada = User.objects.get(username="ada")
    for number in range(VIEWS_MAX):
        save_view(ada, "runs", f"view {number}", "kind=ask")
    with pytest.raises(InvalidInput, match="at most"):
        save_view(ada, "runs", "one more", "kind=ask")
    assert visitor.get(CHANGE).status_code == 405
    assert clean_query("b=2&page=4&a=&cursor=x&b=1&a=0") == "a=0&b=2&b=1"


def test_what_a_person_keeps_is_theirs_alone(django_user_model: Any, visitor: Client) -> None:
    ada = django_user_model.objects.get(username="ada")
    bob = django_user_model.objects.create_user("bob")
    for person in (ada, bob):
        save_view(person, "runs", f"of {person.username}", "kind=ask")
    with using_access(access_of_user(bob)):
        assert [each.value[0]["name"] for each in PersonalSetting.objects.all()] == ["of bob"]
    assert texts(visitor.get("/activity/"), ".view-list a") == ["of ada"]
    client = client_of(bob)
    client.post(CHANGE, {"do": "delete", "list": "runs", "name": "of ada"})
    assert texts(visitor.get("/activity/"), ".view-list a") == ["of ada"]


def test_a_chip_sets_and_removes_a_filter_and_what_makes_no_sense_is_told(visitor: Client) -> None:
    golden = GoldenSet.objects.create(name="basics", collection_name="nature")
    for number, category in enumerate(("sea", "land")):
        GoldenQuestion.objects.create(golden_set=golden, question=f"Q{number}?", category=category, position=number)
    page, wrong = (visitor.get(f"/evaluation/sets/{golden.pk}/?q=q&category={name}") for name in ("sea", "air"))
    assert attribute(page, "#filter-category > a", "href") == "?q=q" and len(tree(page).css("tbody tr")) == 1
    assert has(wrong, "[role=alert]") and len(tree(wrong).css("tbody tr")) == 2


def test_filters_say_how_many_runs_they_leave(visitor: Client) -> None:
    for values in ({}, {"status": "error"}, {"kind": "search"}, {"environment": "evaluation"}):
        make_run_of_list_views(**values)
    page = visitor.get("/activity/?kind=ask")
    counts = {name: texts(page, f"#filter-{name} .tally") for name in ("status", "kind")}
    assert counts == {"status": ["1", "1"], "kind": ["1", "2"]}, "whatever kind is chosen; none of none"
    assert "environment=evaluation" in page.content.decode(), "among the filters behind the button"
