"""The first minutes: starter questions, the collection that is on its way, and steps that take one form less."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from collections_app.access.document_access import set_access
from collections_app.access.permissions import Role
from collections_app.collections.services import update_collection
from collections_app.documents.services import change_state
from collections_app.jobs import operations
from collections_app.models import Collection, ModelSetting, Operation, RoleGrant
from retrieval_app.models import QueryRun
from tests.fakes.openai_server import OpenAIServer, openai_server
from tests.web.pages import attribute, client_of, has, texts

__all__ = ["openai_server"]
QUESTION = "Which animal is the largest?"
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
