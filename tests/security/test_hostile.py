"""No hostile input fails the server, is answered in another shape than documented, or breaks a page afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.api.conftest import committed as committed
from tests.api.conftest import embeddings as embeddings
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.openai_server import openai_server as openai_server
from tests.security.hostile.doors import DOCUMENTS, NAME, Doors
from tests.security.hostile.runner import SWEPT, print_table, run

INPUTS = int(os.environ.get("RAGD_HOSTILE_INPUTS", "22"))  # of each class; benchmarks/bench_hostile.py sends all


@pytest.fixture
def doors(committed: None, embeddings: OpenAIServer, django_user_model: Any, tmp_path: Path) -> Iterator[Doors]:
    yield open_doors(django_user_model, tmp_path)


def open_doors(users: Any, folder: Path) -> Doors:
    """A collection with documents, a test set, a run, and its export."""
    from collections_app.access.api_keys import NewKey, create_key
    from collections_app.collections.services import create_collection
    from collections_app.documents.services import ingest_text

    collection = create_collection(name=NAME)
    for doc_id, text in DOCUMENTS.items():
        ingest_text(collection, doc_id, text)
    pages = Client(raise_request_exception=False)
    pages.force_login(users.objects.create_superuser("mallory", "m@x.example", "pump-pump-pump"))
    doors = Doors(create_key(NewKey("hostile"))[1], folder, pages)
    doors.send("POST", "/golden-sets", {"name": "set", "collection": NAME})
    export = doors.send("GET", f"/collections/{NAME}/export")
    doors.export = b"".join(export.streaming_content)
    doors.run = doors.send("POST", f"/collections/{NAME}/ask", {"query": "Who cleans the pump?"}).json()["run_id"]
    return doors


@pytest.mark.timeout(3600)
def test_nothing_gets_through(doors: Doors) -> None:
    rows = run(doors, INPUTS)
    print_table(rows)
    assert sum(row.inputs for row in rows.values()) > 500 and rows[SWEPT].inputs > 50
    assert {name: row.through for name, row in rows.items() if row.through} == {}
