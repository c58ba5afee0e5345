from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.openai_server import OpenAIServer, openai_server

if TYPE_CHECKING:  # this file is read before Django is set up
    from collections_app.models import Collection

__all__ = ["openai_server"]


@pytest.fixture
def embeddings(openai_server: OpenAIServer, settings: Any) -> OpenAIServer:
    """The server's default model, at the loopback."""
    openai_server.dims = 32
    settings.RAGD_EMBED_MODEL = "text-embedding-3-small"
    settings.RAGD_EMBED_DIMS = 32
    settings.RAGD_EMBED_BASE_URL = openai_server.base_url
    settings.RAGD_EMBED_API_KEY = openai_server.api_key
    return openai_server


@pytest.fixture(scope="module")
def notes_of_module(module_db: None) -> Iterator[Collection]:
    """A collection like `notes`, and the endpoint of its vectors, for all tests of a module."""
    from django.test import override_settings

    from collections_app.collections.services import create_collection

    server = OpenAIServer(dims=32).start()
    names = {"MODEL": "text-embedding-3-small", "DIMS": 32, "BASE_URL": server.base_url, "API_KEY": server.api_key}
    with override_settings(**{f"RAGD_EMBED_{name}": value for name, value in names.items()}):
        yield create_collection(name="notes-of-module")
    server.stop()


@pytest.fixture
def notes(request: pytest.FixtureRequest, db: None, embeddings: OpenAIServer) -> Collection:
    """An empty collection. tests/conftest.py adds `empty_notes` to the tests that commit nothing."""
    from collections_app.collections.services import create_collection

    if "empty_notes" in request.fixturenames:
        return deepcopy(request.getfixturevalue("empty_notes"))
    return create_collection(name="notes")


@pytest.fixture
def committed(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything is really committed, and seen by other threads; the broker loses every message.

    Django's flush leaves unmanaged tables alone, so they are emptied here.
    """
    from collections_app.collections.deletion import purge_collection
    from collections_app.jobs import leases
    from collections_app.models import ApiKey, Collection

    monkeypatch.setattr(leases, "send", lambda *_, **__: None)
    yield
    for collection in Collection.objects.all():
        purge_collection(collection)
    ApiKey.objects.all().delete()
