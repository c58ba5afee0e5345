"""A collection exported and imported over HTTP, and the operations that tell of it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from collections_app.documents.services import ingest_text
from collections_app.models import Collection
from tests.api.conftest import Api
from tests.fakes.openai_server import OpenAIServer


@pytest.fixture
def filled(committed: None, embeddings: OpenAIServer) -> Collection:
    from collections_app.collections.services import create_collection

    collection = create_collection(name="notes")
    ingest_text(collection, "a/whales.md", "Whales sing for hours and eat krill.", tags=["sea"])
    ingest_text(collection, "b.md", "The redwood is a tall tree.")
    return collection


def export(api: Api, name: str = "notes") -> bytes:
    response = api.get(f"/collections/{name}/export")
    assert response.status_code == 200, response.content
    assert response["Content-Type"] == "application/zip"
    assert response["Content-Disposition"] == f'attachment; filename="{name}.ragd.zip"'
    return b"".join(response.streaming_content)


def send(api: Api, content: bytes, **fields: Any) -> Any:
    key = fields.pop("key", None)
    headers = {"Authorization": f"Bearer {api.secret}"} | ({"Idempotency-Key": key} if key else {})
    data = {"file": SimpleUploadedFile("notes.ragd.zip", content), **fields}
    return api.client.post("/v1/collections/import", data, headers=headers)


def results(api: Api, name: str) -> Any:
    found = []
    for mode in ("vector", "lexical", "hybrid"):
        body = {"query": "whales in a tall tree", "mode": mode}
        found.append(api.post(f"/collections/{name}/search", body).json()["results"])
    return found


def test_what_is_exported_is_imported(filled: Collection, api: Api) -> None:
    content = export(api)
    response = send(api, content, name="copy")
    assert response.status_code == 201, response.content
    body = response.json()
    assert body["collection"] == "copy" and body["counts"]["documents"] == 2 and not body["warnings"]
    assert results(api, "copy") == results(api, "notes") and any(results(api, "copy"))
    kinds = [item["kind"] for item in api.get("/operations").json()["items"]]
    assert kinds == ["import", "export"]
    listed = api.get("/operations?kind=import&collection=copy").json()["items"]
    assert [item["state"] for item in listed] == ["succeeded"]
    assert api.get(f"/operations/{listed[0]['id']}").json()["report"]["counts"] == body["counts"]


def test_a_reader_who_takes_nothing_is_given_up(filled: Collection, api: Api) -> None:
    patience: list[float] = []
    extra: dict[str, Any] = {"gunicorn.socket": SimpleNamespace(settimeout=patience.append)}
    headers = {"Authorization": f"Bearer {api.secret}"}
    response: Any = api.client.get("/v1/collections/notes/export", headers=headers, **extra)
    assert b"".join(response.streaming_content)
    assert patience == [60.0]


def test_refusals_have_one_shape(filled: Collection, api: Api) -> None:
    content = export(api)
    taken = send(api, content)
    assert (taken.status_code, taken.json()["error"]["type"]) == (409, "name_taken")
    foreign = io.BytesIO()
    with zipfile.ZipFile(foreign, "w") as archive:
        archive.writestr("a.txt", "hello")
    for bad in (b"", b"nothing", content[:500], foreign.getvalue()):
        refused = send(api, bad, name="copy")
        assert (refused.status_code, refused.json()["error"]["type"]) == (422, "invalid_export")
        assert refused.json()["error"]["field"] == "file"
    assert api.get("/operations?kind=dance").status_code == 422
    assert [collection["name"] for collection in api.get("/collections").json()] == ["notes"]


def test_a_replaced_collection_is_the_imported_one(filled: Collection, api: Api) -> None:
    content = export(api)
    ingest_text(filled, "later.md", "Later.")
    answer = send(api, content, replace="true")
    assert answer.status_code == 201 and answer.json()["replaced"]
    assert api.get("/collections/notes/statistics").json()["documents"] == 2


def test_a_limited_key_keeps_to_its_collections(filled: Collection, api: Api, make_api: Callable[..., Api]) -> None:
    content = export(api)
    limited = make_api(collections=["notes"])
    assert limited.get("/collections/notes/export").status_code == 200
    assert send(limited, content, name="copy").status_code == 403
    send(api, content, name="other")
    assert {item["subject"] for item in limited.get("/operations").json()["items"]} == {"notes"}


def test_what_was_never_retrieved_is_listed_in_pages(filled: Collection, api: Api) -> None:
    address = "/collections/notes/never-retrieved"
    assert [item["doc_id"] for item in api.get(address).json()["items"]] == ["a/whales.md", "b.md"]
    first = api.get(f"{address}?limit=1").json()
    assert (first["total"], first["next_after"]) == (2, "a/whales.md")
    rest = api.get(f"{address}?limit=1&after=a/whales.md").json()
    assert ([item["doc_id"] for item in rest["items"]], rest["next_after"]) == (["b.md"], None)
    api.post("/collections/notes/search", {"query": "whales krill", "mode": "lexical"})
    assert [item["doc_id"] for item in api.get(address).json()["items"]] == ["b.md"]
    assert api.get(f"{address}?days=0").status_code == 422
