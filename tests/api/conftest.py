"""The API as a client speaks it: Django's test client with a bearer key, vectors from a server on the loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client

from tests.collections.conftest import embeddings, notes
from tests.fakes.openai_server import openai_server

__all__ = ["embeddings", "notes", "openai_server"]

MODEL = "text-embedding-3-small"
DIMS = 32


@dataclass
class Api:
    """Sends JSON under /v1 with one key. Answers are Django's responses; `.json()` reads them."""

    client: Client
    secret: str | None

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        if self.secret:
            headers.setdefault("Authorization", f"Bearer {self.secret}")
        data = body if isinstance(body, (str, bytes)) else json.dumps(body)
        given = {} if body is None else {"data": data, "content_type": "application/json"}
        return self.client.generic(method, f"/v1{path}", headers=headers, **given)

    def get(self, path: str, **headers: str) -> Any:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Any:
        return self.send("POST", path, body, **headers)

    def put(self, path: str, body: Any, **headers: str) -> Any:
        return self.send("PUT", path, body, **headers)

    def patch(self, path: str, body: Any, **headers: str) -> Any:
        return self.send("PATCH", path, body, **headers)

    def delete(self, path: str) -> Any:
        return self.send("DELETE", path)

    def upload(self, collection: str, *files: tuple[str, bytes], fields: Any = None, **headers: str) -> HttpResponse:
        data = {"files": [SimpleUploadedFile(name, content) for name, content in files], **(fields or {})}
        headers |= {"Authorization": f"Bearer {self.secret}"}
        return self.client.post(f"/v1/collections/{collection}/documents", data, headers=headers)


@pytest.fixture
def api(db: None, client: Client) -> Api:
    """A client with an unlimited key that may write."""
    from collections_app.access.api_keys import NewKey, create_key

    return Api(client, create_key(NewKey("tests"))[1])


@pytest.fixture
def make_api(db: None) -> Callable[..., Api]:
    """A client with a key of the given scope, collections, expiry."""
    from collections_app.access.api_keys import NewKey, create_key

    return lambda **values: Api(Client(), create_key(NewKey("tests", **values))[1])


@pytest.fixture
def committed(transactional_db: None) -> Iterator[None]:
    """Everything is really committed, and seen by other threads. Django's flush leaves unmanaged tables alone."""
    from collections_app.collections.deletion import purge_collection
    from collections_app.models import ApiKey, Collection

    yield
    for collection in Collection.objects.all():
        purge_collection(collection)
    ApiKey.objects.all().delete()


@pytest.fixture
def kept_house(transactional_db: None) -> Iterator[Any]:
    """The house, really committed."""
    from tests.retrieval.corpus import kept, make_collection

    with kept(make_collection()) as collection:
        yield collection
