"""Assistants in the chat, and the public page of one: what it answers from, who may frame it, how often it is asked.
Files dropped into the chat: where they go, who may, and what the page says of them.
The first minutes: starter questions, the collection that is on its way, and steps that take one form less."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from collections_app.access.document_access import set_access
from collections_app.access.permissions import Role
from collections_app.collections.services import create_collection, update_collection
from collections_app.documents.services import change_state, ingest_text
from collections_app.jobs import operations
from collections_app.models import AuditEvent, Collection, IngestBatch, ModelSetting, Operation, RoleGrant
from ragd.errors import UnknownCollection
from retrieval_app.chat.assistants import read_thread
from retrieval_app.models import ChatAssistant, ChatThread, QueryRun
from tests.builders import hold_minute
from tests.fakes.openai_server import OpenAIServer, openai_server
from tests.web.conftest import TEXTS
from tests.web.pages import attribute, client_of, has, is_empty, texts, tree

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
    assert visitor.post("/chat/assistants/?view=new", form).status_code == 302
    return ChatAssistant.objects.get()


def test_an_assistant_is_made_by_who_may_write_in_all_its_collections(
    visitor: Client, bound: Client, form: dict[str, Any], fill: Callable[..., Collection], django_user_model: Any
) -> None:
    assert visitor.post("/chat/assistants/?view=new", form | {"origins": "example.org/x"}).status_code == 422
    assert visitor.post("/chat/assistants/?view=new", form | {"collections": []}).status_code == 422
    assert visitor.post("/chat/assistants/?view=new", form).status_code == 302
    guide = ChatAssistant.objects.get()
    assert (guide.slug, guide.starters) == ("guide", [QUESTION, "What grows in California?"])
    assert AuditEvent.objects.filter(action="assistant.add").count() == 1
    assert visitor.post("/chat/assistants/?view=new", form).status_code == 422, "the name is taken"

    asker, other = Client(), fill("other", 1)
    bob = django_user_model.objects.create_user("bob")
    asker.force_login(bob)
    RoleGrant.objects.create(user=bob, collection_id=form["collections"][0], role=Role.ASKER)
    assert texts(asker.get("/chat/assistants/"), "tbody th [data-row-link]") == ["Guide"]
    assert asker.post(f"/chat/assistants/{guide.pk}/", form).status_code == 403
    RoleGrant.objects.create(user=bob, collection_id=form["collections"][0], role=Role.CURATOR)
    assert asker.post(f"/chat/assistants/{guide.pk}/", form | {"greeting": "Hello."}).status_code == 302
    assert asker.post(f"/chat/assistants/{guide.pk}/", form | {"collections": [other.pk]}).status_code == 422
    ChatAssistant.objects.update(collection_ids=[form["collections"][0], other.pk])
    assert texts(asker.get("/chat/assistants/"), "tbody th") == []
    assert asker.get(f"/chat/assistants/{guide.pk}/").status_code == 404
    assert asker.get("/chat/?assistant=guide").status_code == 404
    assert visitor.post(f"/chat/assistants/{guide.pk}/?view=delete").status_code == 302
    assert not ChatAssistant.objects.exists()


def test_the_list_holds_those_that_the_reader_may_ask(
    guide: ChatAssistant, bob: Client, fill: Callable[..., Collection], django_user_model: Any
) -> None:
    user, nature, other = django_user_model.objects.get(username="bob"), fill(), fill("other", 1)
    RoleGrant.objects.create(user=user, collection_id=nature.pk, role=Role.VIEWER)
    RoleGrant.objects.create(user=user, collection_id=other.pk, role=Role.ASKER)
    assert is_empty(bob.get("/chat/assistants/"))
    RoleGrant.objects.filter(collection_id=nature.pk).update(role=Role.ASKER)
    href = attribute(bob.get("/chat/assistants/"), "tbody th a[data-row-link]", "href")
    assert bob.get(href or "").status_code == 200


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


@pytest.mark.parametrize("act", ["hide", "delete"])
def test_a_thread_goes_on_without_an_assistant_that_its_owner_does_not_see(
    visitor: Client,
    bob: Client,
    guide: ChatAssistant,
    fill: Callable[..., Collection],
    act: str,
    django_user_model: Any,
) -> None:
    user, nature, other = django_user_model.objects.get(username="bob"), fill(), fill("other", 1)
    RoleGrant.objects.create(user=user, collection_id=nature.pk, role=Role.ASKER)
    bob.post("/chat/", {"assistant": "guide", "query": QUESTION})
    thread = ChatThread.objects.get()
    assert thread.assistant == guide
    if act == "hide":
        ChatAssistant.objects.update(collection_ids=[nature.pk, other.pk])
    else:
        assert visitor.post(f"/chat/assistants/{guide.pk}/?view=delete").status_code == 302
    page = bob.get(thread.get_absolute_url())
    assert page.status_code == 200 and "Guide" not in page.content.decode()
    answer = bob.post(thread.get_absolute_url(), {"collection": "nature", "query": QUESTION, "as_typed": "on"})
    assert answer.status_code < 400 and QueryRun.objects.count() == 2


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
    for told in ("obsidianite", str(run.pk), "/traces/", "/collections/", "/activity/"):
        assert told not in body
    assert somebody.get(f"/runs/{run.pk}/").status_code == 302, "the log-in"
    ChatAssistant.objects.update(is_public=False)
    assert somebody.get("/a/guide/").status_code == somebody.post("/a/guide/", {"query": "x"}).status_code == 404


def ask_in(thread: str, question: str, slug: str = "guide") -> Any:
    return Client().post(f"/a/{slug}/", {"query": question, "thread": thread}, headers=ORIGIN)


def thread_of(page: Any) -> str:
    node = tree(page).css_first("[name=thread]")
    assert node is not None
    return node.attributes["value"] or ""


def test_a_visitor_goes_on_and_nobody_else_can(guide: ChatAssistant, fill: Callable[..., Collection]) -> None:
    ChatAssistant.objects.update(per_minute=100, per_day=100)
    first = ask_in("", "Which animal is the largest?")
    second = ask_in(thread_of(first), "And what does it eat?")
    assert len(texts(second, ".message .question")) == 2
    runs = list(QueryRun.objects.order_by("created_at"))
    assert runs[0].conversation_id == runs[1].conversation_id != ""
    assert "animal" in runs[1].query and runs[1].query != "And what does it eat?"
    for told in (str(run.pk) for run in runs):
        assert told not in thread_of(second) and told not in second.content.decode()
    other = ChatAssistant.objects.create(
        name="Other", slug="other", is_public=True, collection_ids=guide.collection_ids
    )
    for token, slug in ((thread_of(second), "other"), (thread_of(second)[:-4] + "AAAA", "guide"), ("", "guide")):
        alone = ask_in(token, "And what does it eat?", slug)
        assert len(texts(alone, ".message .question")) == 1 and QueryRun.objects.latest("created_at").query[:3] == "And"
        assert QueryRun.objects.latest("created_at").conversation_id not in {run.conversation_id for run in runs}
    assert other.pk != guide.pk
    set_access(Collection.objects.get(name="nature"), list(TEXTS))
    later = ask_in(thread_of(second), "And where is it?")
    assert texts(later, ".message .question") == ["And where is it?"], "what it read is nobody's any more"
    with patch("retrieval_app.chat.assistants.time.time", return_value=time.time() + 5 * 3600):
        assert len(read_thread(guide, thread_of(second)).runs) == 0


def events_of(response: Any) -> list[tuple[str, dict[str, Any]]]:
    found = re.findall(r"event: (.*)\ndata: (.*)\n", b"".join(response.streaming_content).decode())
    return [(name, json.loads(data)) for name, data in found]


def test_the_answer_is_streamed_with_its_markdown_and_its_thread(
    guide: ChatAssistant, openai_server: OpenAIServer, settings: Any
) -> None:
    settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_API_KEY = openai_server.base_url, openai_server.api_key
    openai_server.chat_reply = lambda messages: "| animal | size |\n|---|---|\n| whale | **large** [1] |"

    def ask(question: str, thread: str = "", **headers: str) -> Any:
        return Client().post("/a/guide/stream/", {"query": question, "thread": thread}, headers=headers or ORIGIN)

    events = events_of(ask(QUESTION))
    names = [name for name, _ in events]
    assert (names[0], names[-1]) == ("search_results", "final") and "answer" in names
    run = QueryRun.objects.get()
    for _, data in events:
        assert str(run.pk) not in json.dumps(data) and "/collections/" not in json.dumps(data)
    assert "<strong>large</strong>" in events[-1][1]["html"] and "<table>" in events[-1][1]["html"]
    thread = read_thread(guide, events[-1][1]["thread"])
    assert thread.runs == (str(run.pk),) and thread.pk == run.conversation_id
    assert read_thread(guide, events[0][1]["thread"]) == thread, "also where it is stopped"
    assert ask(QUESTION, Origin="https://www.example.org").status_code == 403
    hold_minute()
    assert ask(QUESTION).status_code == 200
    refused = ask(QUESTION)
    assert refused.status_code == 429 and refused.json()["problem"] and 1 <= int(refused["Retry-After"]) <= 121
    with patch(
        "retrieval_app.chat.assistant_views.ask_publicly", side_effect=UnknownCollection("collection 77 is gone")
    ):
        ChatAssistant.objects.update(per_minute=100, per_day=100)
        broken = ask(QUESTION)
    assert broken.status_code == 503 and "77" not in broken.content.decode()


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
    assert ask("10.0.0.1").status_code == 200
    hold_minute()
    assert [ask("10.0.0.1").status_code for _ in range(2)] == [200, 429]
    refused = ask("10.0.0.1", "Is it kept?")
    assert 1 <= int(refused["Retry-After"]) <= 121 and texts(refused, "textarea") == ["Is it kept?"]
    assert ask("10.0.0.2").status_code == 200
    ChatAssistant.objects.update(per_minute=100)
    assert [ask("10.0.0.2").status_code for _ in range(3)] == [200, 200, 429]
    assert QueryRun.objects.count() == 5


STARTERS = ".starters button"


@pytest.fixture
def bob(db: None, django_user_model: type[User]) -> Client:
    return client_of(django_user_model.objects.create_user("bob"))


def test_a_collection_offers_its_starter_questions_and_one_click_asks(
    visitor: Client, fill: Callable[..., Collection]
) -> None:
    nature, other = fill(), fill("other", 1)
    update_collection(nature, changes={"starters": [QUESTION, "What grows in California?"]})
    update_collection(other, changes={"starters": ["Who hunts at night?", QUESTION]})
    assert texts(visitor.get("/chat/?collection=nature"), STARTERS) == [QUESTION, "What grows in California?"]
    both = texts(visitor.get("/chat/?collection=nature&collection=other"), STARTERS)
    assert both == [QUESTION, "Who hunts at night?", "What grows in California?"]
    part = visitor.get("/chat/?collection=other", headers={"HX-Request": "true", "HX-Target": "starters"})
    assert texts(part, STARTERS) == ["Who hunts at night?", QUESTION] and not has(part, "#composer")

    assert texts(visitor.get("/"), STARTERS) == [QUESTION, "What grows in California?"]
    visitor.post("/chat/", {"collection": "nature", "starter": QUESTION})
    run = QueryRun.objects.get()
    assert (run.query, run.collection_name) == (QUESTION, "nature")
    assert not has(visitor.get(f"/chat/?run={run.pk}", follow=True), STARTERS), "a thread that began has none"


def test_without_starters_the_titles_of_readable_documents_make_them(
    visitor: Client, bob: Client, fill: Callable[..., Collection]
) -> None:
    nature = fill()
    titles = sorted(nature.documents.values_list("title", flat=True))
    made = texts(visitor.get("/chat/?collection=nature"), STARTERS)
    assert len(made) == 3 and all(title in text for title, text in zip(titles, made, strict=True))
    RoleGrant.objects.create(user=User.objects.get(username="bob"), collection_id=nature.pk, role=Role.ASKER)
    first, second, third = nature.documents.order_by("doc_id")
    set_access(nature, [first.doc_id])
    change_state(nature, [second.doc_id], "disabled")
    (left,) = texts(bob.get("/chat/?collection=nature"), STARTERS)
    assert third.title in left
    assert texts(bob.get("/"), STARTERS) == [left]


def test_questions_of_a_collection_are_offered_to_who_may_ask_there_alone(
    bob: Client, fill: Callable[..., Collection]
) -> None:
    nature, other = fill(), fill("other", 1)
    for each in (nature, other):
        update_collection(each, changes={"starters": [f"Secret of {each.name}?"]})
    user = User.objects.get(username="bob")
    RoleGrant.objects.create(user=user, collection_id=nature.pk, role=Role.VIEWER)
    for address in ("/chat/", "/chat/?collection=nature", "/chat/?collection=other", "/"):
        assert "Secret of" not in bob.get(address).content.decode()
    RoleGrant.objects.create(user=user, collection_id=other.pk, role=Role.ASKER)
    assert texts(bob.get("/chat/"), STARTERS) == ["Secret of other?"], "the first in which bob may ask"
    assert texts(bob.get("/"), STARTERS) == ["Secret of other?"]


def test_what_is_on_its_way_is_waited_for(visitor: Client, fill: Callable[..., Collection]) -> None:
    with operations.running(Operation.Kind.IMPORT, "nature") as progress:
        progress.tell("documents", 1, 3)
        for address in ("/chat/", "/"):
            page = visitor.get(address)
            assert (
                attribute(page, "#arriving", "hx-get") == "/" and attribute(page, "#arriving progress", "value") == "33"
            )
        nature = fill("nature", 1)
        assert has(visitor.get("/chat/"), "#arriving") and has(visitor.get("/chat/"), "#add-files")
        part = {"HX-Request": "true", "HX-Target": "arriving"}
        assert has(visitor.get("/", headers=part), "#arriving progress")
        fill("other", 1)
        assert has(visitor.get("/chat/"), "#composer"), "another one can be asked meanwhile"
        progress.succeed({})
    arrived = visitor.get("/", headers=part)  # what is typed stays, and both can be chosen
    assert not has(arrived, "#arriving progress") and len(texts(arrived, "#collections-menu label")) == 2
    assert not has(visitor.get("/"), "#arriving")
    assert nature.documents.count() == 1


def test_a_model_is_tested_and_saved_in_one_step(visitor: Client, openai_server: OpenAIServer) -> None:
    form = {
        "name": "Ours", "base_url": openai_server.base_url, "model": "gpt-4o-mini", "key": "wrong", "do": "test-save",
    }  # fmt: skip
    address = "/models/?view=new&preset=other&purpose=chat"
    assert has(visitor.post(address, form), "#test-result .banner[data-tone=bad]")
    assert not ModelSetting.objects.exists(), "what does not answer is not saved"
    assert visitor.post(address, form | {"key": openai_server.api_key}).status_code == 302
    saved = ModelSetting.objects.get()
    assert (saved.name, saved.is_default) == ("Ours", True)


AT = "/chat/files/"
PART = {"HX-Request": "true", "HX-Target": "chat-files"}
BEES = ("bees.txt", b"A honey bee visits about five thousand flowers in one day.")


def file(name: str = BEES[0], content: bytes = BEES[1]) -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)


def drop(client: Client, *files: SimpleUploadedFile, htmx: bool = True, **fields: Any) -> Any:
    return client.post(AT, {"uploads": list(files), **fields}, headers=PART if htmx else {})


def mine(user: User) -> Collection:
    return Collection.objects.get(name__startswith=f"my-files-{user.pk}-")


def test_the_first_drop_makes_my_files_and_chooses_them(visitor: Client) -> None:
    user = User.objects.get()
    answer = drop(visitor, file())
    assert answer.status_code == 200 and answer["HX-Replace-Url"].startswith(f"/chat/?collection={mine(user).name}&")
    assert len(texts(answer, "#chat-jobs li")) == 1
    assert attribute(answer, "#collections-menu [name=collection][checked]", "value") == mine(user).name
    assert mine(user).open_role == ""
    drop(visitor, file("wasps.txt"))
    assert Collection.objects.count() == 1


def test_the_cards_are_there_again_after_a_reload(visitor: Client) -> None:
    answer = drop(visitor, file(), htmx=False)
    assert answer.status_code == 302
    page = visitor.get(answer["Location"])
    assert len(texts(page, "#chat-jobs li")) == 1
    assert attribute(page, "#collections-menu [name=collection][checked]", "value") == mine(User.objects.get()).name
    cards = visitor.get(answer["Location"], headers={"HX-Request": "true", "HX-Target": "chat-jobs"})
    assert len(texts(cards, "#chat-jobs li")) == 1 and not has(cards, "#composer, #starters")
    cards = visitor.get(f"{answer['Location']}&begins=1", headers={"HX-Request": "true", "HX-Target": "chat-jobs"})
    assert has(cards, "#starters")  # which the page has as long as no question was asked


def test_a_chosen_collection_takes_the_files_where_one_may_write(visitor: Client) -> None:
    nature = create_collection(name="nature")
    drop(visitor, file(), collection="nature")
    assert nature.jobs.count() == 1 and Collection.objects.count() == 1


def test_what_is_no_file_is_refused_with_a_reason(visitor: Client) -> None:
    for client_answer in (drop(visitor), drop(visitor, htmx=False)):
        assert has(client_answer, "#chat-files [role=alert]")
    assert not Collection.objects.exists()


def reader(**roles: str) -> Client:
    """Somebody with that role in each of these collections."""
    user = User.objects.create_user("reader", password="x")
    for name, role in roles.items():
        RoleGrant.objects.create(user=user, collection_id=Collection.objects.get(name=name).pk, role=role)
    return client_of(user)


@pytest.mark.parametrize("role", ["viewer", "asker"])
def test_who_may_only_read_adds_nothing(visitor: Client, role: str) -> None:
    nature = create_collection(name="nature")
    client = reader(nature=role)
    assert not has(client.get("/"), "#add-files")
    drop(client, file(), collection="nature")
    assert not nature.jobs.exists() and Collection.objects.count() == 1


def test_cards_of_another_persons_files_are_not_shown(visitor: Client) -> None:
    address = drop(visitor, file(), htmx=False)["Location"]
    create_collection(name="nature")
    page = reader(nature="asker").get(address)
    assert page.status_code == 200 and not has(page, "#chat-jobs") and "bees" not in page.content.decode()


def test_a_collection_that_another_made_under_the_guessed_name_gets_nothing(visitor: Client) -> None:
    guessed = create_collection(name=f"my-files-{User.objects.get().pk}", open_role="curator")
    drop(visitor, file())
    assert not guessed.jobs.exists() and mine(User.objects.get()).jobs.count() == 1


def test_a_question_waits_for_the_first_file(visitor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    drop(visitor, file())
    own = mine(User.objects.get())
    own.documents.all().delete()
    own.jobs.update(state="running")
    question = {"query": "How many flowers does a bee visit?", "collection": own.name, "do": "ask"}
    monkeypatch.setattr("retrieval_app.chat.threads.PATIENCE_S", 0.0)
    answer = visitor.post("/chat/", question)
    assert answer.status_code == 409 and not QueryRun.objects.exists()

    def finish(_: float) -> None:
        ingest_text(own, "bees.txt", BEES[1].decode())
        own.jobs.update(state="succeeded")

    monkeypatch.setattr("retrieval_app.chat.threads.PATIENCE_S", 20.0)
    monkeypatch.setattr("retrieval_app.chat.threads.time.sleep", finish)
    assert has(visitor.post("/chat/", question, follow=True), ".answer .cite")


def test_a_new_question_goes_to_what_was_asked_last_or_filled_since(
    visitor: Client, fill: Callable[..., Collection]
) -> None:
    fill("birds")
    create_collection(name="ships")

    def chosen() -> list[str]:
        checked = tree(visitor.get("/chat/")).css("input[name=collection][checked]")
        return [str(each.attributes["value"]) for each in checked]

    assert chosen() == ["birds"], "the first by name"
    upload = {"uploads": file("ship.txt", b"The ship is 30 metres long.")}
    assert visitor.post("/collections/ships/upload/", upload).status_code in (200, 302)
    assert chosen() == ["ships"], "what was added is what will be asked"
    IngestBatch.objects.create(collection=fill("birds"), kind="reindex", submitted=1, created_by="ada")
    assert chosen() == ["ships"], "nothing was added"
    visitor.post("/chat/", {"collection": "birds", "query": QUESTION, "do": "ask"})
    assert chosen() == ["birds"]


def test_a_collection_that_one_may_no_longer_ask_is_not_chosen(
    fill: Callable[..., Collection], django_user_model: Any
) -> None:
    ben = django_user_model.objects.create_user("ben", password="ben")
    RoleGrant.objects.create(user=ben, collection_id=fill("birds").pk, role=Role.ASKER)
    IngestBatch.objects.create(collection=create_collection(name="secret"), submitted=1, created_by="ben")
    page = client_of(ben).get("/chat/")
    checked = tree(page).css("input[name=collection][checked]")
    assert [each.attributes["value"] for each in checked] == ["birds"] and b"secret" not in page.content
