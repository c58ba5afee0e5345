"""Document ids with slashes make a tree of folders that the list is narrowed by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from collections_app.access.document_access import set_access
from collections_app.documents.stored_documents import Folder, folders_of
from collections_app.models import Collection, Document, RoleGrant
from tests.web.pages import attribute, client_of, has, texts, tree

pytestmark = pytest.mark.django_db
LIST = "/collections/nature/"
IDS = ("a/b/c/1.md", "a/b/2.md", "a/b0/3.md", "a0/4.md", "z/5.md", "Ä ö/6.md", "7.md", "a/b/c/8.md")


@pytest.fixture
def nature(fill: Callable[..., Any]) -> Collection:
    collection: Collection = fill("nature", 0)
    Document.objects.bulk_create([Document(collection=collection, doc_id=doc_id) for doc_id in IDS])
    return collection


def drawn(folder: Folder) -> list[Any]:
    return [
        (each.path, each.total, each.has_folders, *([drawn(each)] if each.is_open else ())) for each in folder.below
    ]


def listed(client: Client, **query: str) -> list[str]:
    return sorted(node.attributes["value"] or "" for node in tree(client.get(LIST, query)).css("[name=doc_id]"))


def test_the_folders_above_one_are_open_and_counted(nature: Collection) -> None:
    others = [("a0/", 1, False), ("z/", 1, False), ("Ä ö/", 1, False)]
    assert drawn(folders_of(nature)) == [("a/", 4, True), *others]
    below_b = [("a/b/c/", 2, False)]
    assert drawn(folders_of(nature, "a/b/")) == [
        ("a/", 4, True, [("a/b/", 3, True, below_b), ("a/b0/", 1, False)]), *others
    ]  # fmt: skip
    assert drawn(folders_of(nature, "a/", alone=True)) == [("a/b/", 3, True), ("a/b0/", 1, False)]
    assert drawn(folders_of(nature, "nothing/like/this/")) == drawn(folders_of(nature))
    Document.objects.filter(doc_id="z/5.md").update(state="archived")
    assert [each.path for each in folders_of(nature).below] == ["a/", "a0/", "Ä ö/"]
    assert drawn(folders_of(nature, state="archived")) == [("z/", 1, False)]


def test_many_folders_are_listed_in_part_and_the_open_one_is_among_them(
    nature: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collections_app.documents.stored_documents.LISTED_MAX", 2)
    root = folders_of(nature, "z/")
    assert ([each.path for each in root.below], root.more) == (["a/", "a0/", "z/"], 1)
    deep = "/".join(str(number) for number in range(100))
    Document.objects.create(collection=nature, doc_id=f"a/{deep}/x.md")
    depth, folder = 0, folders_of(nature, f"a/{deep}/")
    while open_ones := [each for each in folder.below if each.is_open]:
        depth, folder = depth + 1, open_ones[0]
    assert depth == 12


def test_the_list_is_that_of_the_folder_in_the_address(
    visitor: Client, nature: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert listed(visitor) == sorted(IDS)
    assert listed(visitor, folder="a/b/") == listed(visitor, folder="a/b") == ["a/b/2.md", "a/b/c/1.md", "a/b/c/8.md"]
    assert listed(visitor, folder="Ä ö/") == ["Ä ö/6.md"] and listed(visitor, folder="a/b/", q="8") == ["a/b/c/8.md"]
    assert listed(visitor, folder="\x00") == listed(visitor, folder="none/") == []
    page = visitor.get(LIST, {"folder": "a/b/", "sort": "doc_id"})
    assert texts(page, ".folders [aria-current] .clip") == ["b"]
    assert attribute(page, ".search-box [name=folder]", "value") == "a/b/"
    assert has(page, "#filter-folder > a[href='?sort=doc_id']")
    monkeypatch.setattr("collections_app.documents.views.DOCUMENTS.per_page", 2)
    assert attribute(visitor.get(LIST, {"folder": "a/b/"}), "[name=f_folder]", "value") == "a/b/"
    below = attribute(visitor.get(LIST, {"sort": "doc_id"}), ".folders ul ul[hx-get]", "hx-get")
    assert below is not None
    part = visitor.get(below)
    assert texts(part, ".clip") == ["b", "b0"] and texts(part, ".tally") == ["3", "1"]
    assert [node.attributes["href"] for node in tree(part).css("a.folder")] == [
        "?sort=doc_id&folder=a%2Fb%2F", "?sort=doc_id&folder=a%2Fb0%2F"
    ]  # fmt: skip


def test_all_that_match_are_those_of_the_folder(visitor: Client, nature: Collection) -> None:
    chosen = {"all_matching": "on", "f_state": "present", "f_folder": "a/b/", "action": "disable"}
    page = visitor.post(f"{LIST}?view=change", chosen)
    assert attribute(page, "#confirm", "data-documents") == "3"
    sent = {
        node.attributes["name"]: node.attributes["value"] or "" for node in tree(page).css("#confirm [type=hidden]")
    }
    visitor.post(f"{LIST}?view=change", {str(name): value for name, value in sent.items()})
    assert set(Document.objects.filter(enabled=False).values_list("doc_id", flat=True)) == {
        "a/b/2.md", "a/b/c/1.md", "a/b/c/8.md"
    }  # fmt: skip


def test_folders_of_documents_that_one_may_not_read_are_not_there(
    nature: Collection, django_user_model: type[User]
) -> None:
    set_access(nature, ["z/5.md", "a/b/2.md"])
    reader = django_user_model.objects.create_user("reader")
    RoleGrant.objects.create(user=reader, collection_id=nature.pk, role="viewer")
    client = client_of(reader)
    page = client.get(LIST)
    assert texts(page, ".folders ul .clip") == ["a", "a0", "Ä ö"]
    assert texts(page, ".folders ul .tally") == ["3", "1", "1"]
    assert texts(client.get(f"{LIST}folders/", {"parent": "a/"}), ".tally") == ["2", "1"]


def test_many_documents_take_as_many_queries_as_few(visitor: Client, nature: Collection) -> None:
    def count(folder: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert visitor.get(LIST, {"folder": folder}).status_code == 200
        return len(queries)

    count("a/b/")  # the first request of a person reads more
    few = count("a/b/")
    many = (Document(collection=nature, doc_id=f"d{n % 50}/e{n % 7}/{n}.md") for n in range(700))
    Document.objects.bulk_create(many)
    assert count("d1/e1/") == few
    assert [(each.total, len(each.below)) for each in folders_of(nature, "d1/").below if each.is_open] == [(14, 7)]
