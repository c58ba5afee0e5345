"""Collections and documents have display names wherever people meet them; addresses keep names and IDs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, RequestFactory

from collections_app.access.context import using_access
from collections_app.access.permissions import Role
from collections_app.access.services import access_of_user
from collections_app.collections.models import collection_choices
from collections_app.collections.services import create_collection
from collections_app.http.page_requests import collection_titles
from collections_app.models import Chunk, Collection, Document, RoleGrant
from tests.web.pages import attribute, client_of, has, texts, wrong_fields

pytestmark = pytest.mark.django_db
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
