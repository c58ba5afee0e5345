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
from collections_app.jobs.dispatch import run_job
from collections_app.models import Chunk, Collection, IndexVersion, IngestJob
from tests.api.conftest import Api
from tests.fakes.faults import failing
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


AT = "/collections/notes/index-versions"
OTHER = {"embed_model": "text-embedding-3-large", "embed_dims": 48}
TEXT = "\n\n".join(f"Paragraph {number} speaks of subject {number} with some more words." for number in range(30))


def run_last() -> str | None:
    return run_job(IngestJob.objects.filter(kind="index_version").newest()[0].pk)


def put(api: Api, doc_id: str = "a", content: str = TEXT) -> None:
    assert api.put(f"/collections/notes/documents/{doc_id}", {"content": content}).status_code == 200


def test_the_whole_way(api: Api, notes: Collection) -> None:
    put(api)
    (first,) = api.get(AT).json()["items"]
    assert (first["number"], first["state"], first["chunks"]) == (1, "serving", Chunk.objects.count())
    started = api.post(AT, OTHER | {"chunk_policy": {"target_tokens": 20, "overlap_tokens": 0}})
    assert started.status_code == 202
    made = started.json()
    assert (made["number"], made["state"], made["percent"], made["automatic"]) == (2, "building", 0, True)
    assert made["chunk_policy_stated"] == {"target_tokens": 20, "overlap_tokens": 0}
    assert api.get(f"/jobs/{made['job_id']}").json()["kind"] == "index_version"
    again = api.post(AT, {})
    assert (again.status_code, again.json()["error"]["type"]) == (409, "conflict")
    assert run_last() == "succeeded"
    served = api.get(f"{AT}/2").json()
    assert (served["state"], served["percent"], served["chunks"]) == ("serving", 100, Chunk.objects.count())
    assert served["hash"] != first["hash"] and served["bytes"] > 0 and served["chunks_per_s"] > 0
    found = api.post("/collections/notes/search", {"query": "subject 7", "k": 3}).json()
    assert api.get(f"/runs/{found['run_id']}").json()["index_version"] == 2
    put(api, "b", "Added later.")
    before = api.get(f"{AT}/1").json()
    assert (before["state"], before["differences"]) == (
        "retired", {"changed": 0, "added": 1, "removed": 0, "switched": 0}
    )  # fmt: skip
    back = api.patch(f"{AT}/1", {"state": "serving"})
    assert (back.status_code, back.json()["state"]) == (202, "retired")
    assert run_last() == "succeeded"
    assert [(each["number"], each["state"]) for each in api.get(AT).json()["items"]] == [(2, "retired"), (1, "serving")]
    assert api.get("/collections/notes").json()["embed_model"] == "text-embedding-3-small"
    gone = api.delete(f"{AT}/2")
    assert (gone.status_code, gone.json()["state"], gone.json()["chunks"]) == (200, "dropped", None)
    assert api.delete(f"{AT}/1").status_code == 409


def test_manual_activation_and_cancelling(api: Api, notes: Collection) -> None:
    put(api)
    assert api.post(AT, OTHER | {"activate": "manual"}).json()["automatic"] is False
    assert run_last() == "succeeded"
    assert api.get(f"{AT}/2").json()["state"] == "ready"
    assert api.delete(f"{AT}/2").json()["state"] == "dropped"
    api.post(AT, OTHER)
    cancelled = api.patch(f"{AT}/3", {"state": "cancelled"})
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert api.patch(f"{AT}/3", {"state": "cancelled"}).status_code == 409


def test_an_estimate_changes_nothing(api: Api, notes: Collection) -> None:
    put(api)
    small = {"target_tokens": 20, "overlap_tokens": 0}
    told = api.post(AT, {"chunk_policy": small, "dry_run": True}).json()
    assert (told["documents"], told["changed"], told["same_hash"]) == (1, ["policy"], False)
    assert told["to_embed"] == told["chunks"] > told["chunks_now"]
    assert told["chunks_per_s"] > 0 and told["seconds"] is not None
    language = api.post(AT, {"language": "german", "dry_run": True}).json()
    assert (language["changed"], language["to_embed"], language["seconds"]) == (["language"], 0, 0.0)
    assert api.post(AT, {"dry_run": True}).json()["same_hash"] is True
    assert IndexVersion.objects.count() == 1
    # the guess is right: chunking a sample of one document is chunking all of it
    api.post(AT, {"chunk_policy": small})
    run_last()
    assert Chunk.objects.count() == told["chunks"]


def test_refusals(api: Api, make_api: Callable[..., Api], notes: Collection, embeddings: OpenAIServer) -> None:
    def error(answer: Any) -> tuple[int, str, str | None]:
        told = answer.json()["error"]
        return answer.status_code, told["type"], told.get("field")

    assert error(api.post(AT, {"language": "klingon"})) == (422, "invalid_input", "language")
    assert error(api.post(AT, {"embed_model": "unheard-of"})) == (422, "invalid_input", "embed_dims")
    assert error(api.post(AT, {"model": "x"}))[0] == 422
    assert error(api.get(f"{AT}/9")) == (404, "unknown_index_version", "index_version")
    embeddings.script(*[failing(401)] * 9)
    assert error(api.post(AT, OTHER))[:2] == (502, "embedder_failed_auth")
    reader = make_api(scope="read")
    assert reader.get(AT).status_code == 200
    assert reader.post(AT, {}).status_code == 403
    assert make_api(collections=["other"]).get(AT).status_code == 403
    assert IndexVersion.objects.count() == 1
