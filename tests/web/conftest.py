"""The pages as a person sees them: Django's test client, logged in, over the local embedder."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client

from tests.web.pages import client_of

if TYPE_CHECKING:  # this file is read before Django is set up
    from collections_app.models import Collection
    from retrieval_app.models import QueryRun

TEXTS = {
    "whales.md": "# Whales\n\nThe blue whale is the largest animal. It eats krill.\n\n"
    "## Song\n\nHumpback whales sing for hours.",
    "trees.md": "# Trees\n\nThe coast redwood is the tallest tree. It grows in California.",
    "rivers.md": "# Rivers\n\nThe Nile flows north into the Mediterranean. The Amazon carries the most water.",
}
POLICY = {"target_tokens": 16, "overlap_tokens": 4}  # so that the short texts have more than one chunk


@pytest.fixture(scope="module")
def module_visitor(module_db: None) -> Client:
    from django.contrib.auth.models import User

    return client_of(User.objects.create_superuser("ada", password="lovelace"))


@pytest.fixture
def visitor(module_visitor: Client, db: None) -> Client:
    """Somebody who is logged in, a superuser. What a test changes of them is rolled back."""
    client = Client()
    client.cookies = deepcopy(module_visitor.cookies)
    return client


@pytest.fixture
def bound(visitor: Client, django_user_model: Any) -> Client:
    """The visitor as row-level security binds most people: curates and evaluates all collections, and no more."""
    from collections_app.models import RoleGrant

    ada = django_user_model.objects.get(username="ada")
    django_user_model.objects.filter(pk=ada.pk).update(is_superuser=False, is_staff=False)
    for role in ("curator", "evaluator"):
        RoleGrant.objects.create(user=ada, collection_id=0, role=role)
    return visitor


@pytest.fixture
def fill(db: None) -> Callable[..., Collection]:
    """fill("nature", 3): the collection with that many documents."""
    return make_collection


@pytest.fixture(scope="module")
def module_nature(module_db: None) -> None:
    """fill() for all tests of the module: it finds the collection there."""
    make_collection()


def make_collection(name: str = "nature", documents: int = 3) -> Collection:
    from collections_app.collections.services import create_collection
    from collections_app.documents.services import ingest_text
    from collections_app.models import Collection

    known = Collection.objects.live().filter(name=name).first()
    collection = known or create_collection(name=name, chunk_policy=POLICY)
    present = set(collection.documents.values_list("doc_id", flat=True))
    for doc_id, text in list(TEXTS.items())[:documents]:
        if doc_id not in present:
            ingest_text(collection, doc_id, text, title=doc_id.removesuffix(".md").title(), tags=["nature"])
    return collection


@pytest.fixture
def ask(visitor: Client) -> Callable[..., QueryRun]:
    """Ask through the page; the run that was made."""
    from retrieval_app.models import QueryRun

    def post(question: str, collection: str = "nature", do: str = "ask", **values: Any) -> QueryRun:
        response = visitor.post("/chat/", {"query": question, "collection": collection, "do": do, **values})
        assert response.status_code == 302, response.content.decode()
        return QueryRun.objects.latest("created_at")

    return post


@pytest.fixture
def send(visitor: Client, fill: Callable[..., Any], django_capture_on_commit_callbacks: Any) -> Callable[..., Any]:
    """Post to the collection and let the worker do what that makes; the response."""
    fill(documents=1)

    def post(address: str, **values: Any) -> Any:
        with django_capture_on_commit_callbacks(execute=True):
            return visitor.post(f"/collections/nature/{address}", values, follow=True)

    return post
