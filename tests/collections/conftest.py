from __future__ import annotations

from collections.abc import Iterator
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


@pytest.fixture
def notes(db: None, embeddings: OpenAIServer) -> Collection:
    from collections_app.services.collections.collections import create_collection

    return create_collection(name="notes")


@pytest.fixture
def committed(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything is really committed, and seen by other threads; the broker loses every message.

    Django's flush leaves unmanaged tables alone, so they are emptied here.
    """
    from collections_app.models import ApiKey, Collection
    from collections_app.services.collections.deletion import purge_collection
    from collections_app.work import delivery

    monkeypatch.setattr(delivery, "send", lambda *_, **__: None)
    yield
    for collection in Collection.objects.all():
        purge_collection(collection)
    ApiKey.objects.all().delete()
