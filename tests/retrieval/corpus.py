"""A small collection that searches and answers are tried on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from django.db import connection, transaction
from django.test import Client

from collections_app.access.api_keys import NewKey, create_key
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.models import ApiKey, Collection
from ragd.store.tables import drop_collection

DOCUMENTS: Mapping[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "pump.md": (
        "# Pump\n\nThe main pump moves 400 litres of water per minute. Before the pump is cleaned, it must be switched "
        "off and locked with the red key. The pump was built in 1987.",
        ("machine", "water"),
        {"floor": 1, "source": "manual"},
    ),
    "garden.md": (
        "# Garden\n\nThe garden is open to everybody. Roses are cut in March, and the hedge in late summer.",
        ("outside",),
        {"floor": 0},
    ),
    "kitchen.md": (
        "# Kitchen\n\nThe oven must not be left alone. Coffee costs 50 cents, paid into the box beside the sink.",
        ("inside", "food"),
        {"floor": 1},
    ),
    "archive.md": (
        "# Archive\n\nDocuments older than ten years are kept in the archive. The archive is opened on request by the "
        "warden.",
        ("inside",),
        {"floor": -1},
    ),
    "boiler.md": (
        "# Boiler\n\nThe boiler heats water to 60 degrees. The boiler is inspected every second year by an engineer.",
        ("machine", "water"),
        {"floor": -1},
    ),
}


def make_collection(name: str = "house", *, hybrid_enabled: bool = True, empty: bool = False) -> Collection:
    collection = create_collection(name=name, hybrid_enabled=hybrid_enabled)
    if not empty:
        for doc_id, (text, tags, metadata) in DOCUMENTS.items():
            ingest_text(
                collection, doc_id, text, title=doc_id.removesuffix(".md").title(), tags=tags, metadata=metadata
            )
    return collection


@contextmanager
def kept(collection: Collection) -> Iterator[Collection]:
    """A collection that other connections see. A flush knows nothing of the library's tables, so it is dropped here."""
    yield collection
    with transaction.atomic():
        drop_collection(connection, collection.pk)
    ApiKey.objects.all().delete()


def bearer(**values: Any) -> dict[str, str]:
    """Headers of a new key."""
    _, secret = create_key(NewKey("tests", **values))
    return {"Authorization": f"Bearer {secret}"}


def post(client: Client, path: str, body: Any, headers: Mapping[str, str]) -> tuple[int, Any]:
    """(status, decoded body)."""
    answer = client.post(path, body, content_type="application/json", headers=dict(headers))
    return answer.status_code, answer.json()


def patch(client: Client, path: str, body: Any, headers: Mapping[str, str]) -> tuple[int, Any]:
    answer = client.patch(path, body, content_type="application/json", headers=dict(headers))
    return answer.status_code, answer.json()


def get(client: Client, path: str, headers: Mapping[str, str]) -> tuple[int, Any]:
    answer = client.get(path, headers=dict(headers))
    return answer.status_code, answer.json()


def make_collection_row(name: str) -> Collection:
    """A live collection that has always been there, for what is kept by its name; without tables of its own."""
    early = datetime(2000, 1, 1, tzinfo=UTC)
    return Collection.objects.create(name=name, embed_model="none", embed_dims=1, created_at=early)
