"""Files dropped into the chat: where they go, who may, and what the page says of them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.models import Collection, RoleGrant
from retrieval_app.models import QueryRun
from tests.web.pages import attribute, client_of, has, texts

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
    monkeypatch.setattr("retrieval_app.chat.files.PATIENCE_S", 0.0)
    answer = visitor.post("/chat/", question)
    assert answer.status_code == 409 and not QueryRun.objects.exists()

    def finish(_: float) -> None:
        ingest_text(own, "bees.txt", BEES[1].decode())
        own.jobs.update(state="succeeded")

    monkeypatch.setattr("retrieval_app.chat.files.PATIENCE_S", 20.0)
    monkeypatch.setattr("retrieval_app.chat.files.time.sleep", finish)
    assert has(visitor.post("/chat/", question, follow=True), ".answer .cite")
