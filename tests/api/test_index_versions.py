from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collections_app.jobs.dispatch import run_job
from collections_app.models import Chunk, Collection, IndexVersion, IngestJob
from tests.api.conftest import Api
from tests.fakes.faults import failing
from tests.fakes.openai_server import OpenAIServer

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
