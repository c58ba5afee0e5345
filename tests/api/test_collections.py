"""Collections over HTTP: made, listed, changed, measured, deleted.
A name that is used again: neither its new keys see what the old collection left, nor the old keys the new one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from collections_app.collections.deletion import delete_collection, trash_collection
from collections_app.collections.import_stage import import_collection
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.models import AuditEvent, Chunk, Collection, Document, Operation
from evaluation_app.models import EvaluationRun, Experiment, RunScore
from evaluation_app.models.spans import Span
from ragd_site.api import openapi_document
from retrieval_app.models import QueryRun
from tests.api.conftest import Api
from tests.evaluation.made_runs import make_run
from tests.exports import export_to_file
from tests.fakes.openai_server import OpenAIServer

BRIEF = {"name": "notes", "embed_model": "text-embedding-3-small", "embed_dims": 32, "hybrid_enabled": True}


def test_create_answers_the_four_fields(api: Any, embeddings: OpenAIServer) -> None:
    response = api.post("/collections", {"name": "notes", "hybrid_enabled": True})
    assert (response.status_code, response.json()) == (200, BRIEF)


def test_hybrid_is_the_default_and_can_be_left_out(api: Any, embeddings: OpenAIServer) -> None:
    assert api.post("/collections", {"name": "notes"}).json() == BRIEF
    plain = api.post("/collections", {"name": "plain", "hybrid_enabled": False}).json()
    assert plain == BRIEF | {"name": "plain", "hybrid_enabled": False}


def test_the_optional_fields_are_kept(api: Any, embeddings: OpenAIServer) -> None:
    body = {
        "name": "notes", "embed_model": "other", "embed_dims": 8, "language": "simple", "description": "ours",
        "chunk_policy": {"target_tokens": 50},
    }  # fmt: skip
    assert api.post("/collections", body).status_code == 200
    got = api.get("/collections/notes").json()
    assert (got["embed_model"], got["embed_dims"], got["language"], got["description"]) == (
        "other",
        8,
        "simple",
        "ours",
    )
    assert got["chunk_policy"] == {"kind": "structure", "target_tokens": 50, "overlap_tokens": 10, "max_chars": 4000}
    assert got["chunk_policy_stated"] == {"target_tokens": 50, "overlap_tokens": 10}


def test_the_default_policy_is_fitted_to_the_local_model(api: Any, settings: Any) -> None:
    settings.RAGD_EMBED_MODEL, settings.RAGD_EMBED_DIMS = "all-MiniLM-L6-v2", 384
    api.post("/collections", {"name": "local"})
    policy = api.get("/collections/local").json()["chunk_policy"]
    assert policy == {"kind": "structure", "target_tokens": 160, "overlap_tokens": 32, "max_chars": 1280}


def test_a_taken_name_is_a_conflict_and_nothing_is_made(api: Any, notes: Collection) -> None:
    response = api.post("/collections", {"name": "notes"})
    assert response.status_code == 409
    assert response.json()["error"]["type"] == "name_taken"
    assert response.json()["error"]["field"] == "name"
    assert Collection.objects.count() == 1


def test_list_is_bare_and_by_name(api: Any, embeddings: OpenAIServer) -> None:
    for name in ("zebra", "Apple", "notes"):
        create_collection(name=name)
    body = api.get("/collections").json()
    assert [row["name"] for row in body] == ["Apple", "notes", "zebra"]
    assert body[1] == BRIEF


def test_list_is_paged_by_a_header(api: Any, embeddings: OpenAIServer) -> None:
    for name in ("a", "b", "c"):
        create_collection(name=name)
    first = api.get("/collections?limit=2")
    assert [row["name"] for row in first.json()] == ["a", "b"]
    rest = api.get(f"/collections?limit=2&cursor={first['X-Next-Cursor']}")
    assert [row["name"] for row in rest.json()] == ["c"]
    assert "X-Next-Cursor" not in rest


def test_an_unknown_collection_of_a_filter_is_404(api: Any) -> None:
    for path in ("/jobs?collection=none", "/collections/%00"):
        response = api.get(path)
        assert (response.status_code, response.json()["error"]["type"]) == (404, "unknown_collection"), path


def test_a_wrong_field_is_named_and_nothing_is_made(api: Any, embeddings: OpenAIServer) -> None:
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({}, 422, "name"),
        ({"name": ""}, 422, "name"),
        ({"name": "a/b"}, 422, "name"),
        ({"name": "a\x00b"}, 422, "name"),
        ({"name": "\ud800"}, 422, "name"),
        ({"name": " a"}, 422, "name"),
        ({"name": ".."}, 422, "name"),
        ({"name": "new"}, 422, "name"),
        ({"name": "x" * 129}, 422, "name"),
        ({"name": "a", "hybrid_enabled": "maybe"}, 422, "hybrid_enabled"),
        ({"name": "a", "hybird": True}, 422, "hybird"),
        ({"name": "a", "language": "klingon"}, 422, "language"),
        ({"name": "a", "embed_dims": 0}, 422, "embed_dims"),
        ({"name": "a", "embed_dims": 4001}, 422, "embed_dims"),
        ({"name": "a", "embed_model": "other"}, 422, "embed_dims"),
        ({"name": "a", "embed_model": "all-MiniLM-L6-v2", "embed_dims": 8}, 400, "embed_dims"),
        ({"name": "a", "embed_model": "multilingual-e5-small", "embed_dims": 512}, 400, "embed_dims"),
        ({"name": "a", "chunk_policy": {"target_tokens": 0}}, 422, "target_tokens"),
        ({"name": "a", "chunk_policy": {"target_tokens": 10, "overlap_tokens": 10}}, 422, "overlap_tokens"),
        ({"name": "a", "chunk_policy": {"max_chars": 40_000}}, 422, "max_chars"),
        ({"name": "a", "chunk_policy": {"kind": "magic"}}, 422, "chunk_policy.kind"),
    ]  # fmt: skip
    for body, status, field in cases:
        response = api.post("/collections", body)
        error = response.json()["error"]
        assert (response.status_code, error["field"]) == (status, field)
        assert response.json()["detail"] == error["message"]
        assert not Collection.objects.exists()


def test_a_placement_needs_nodes(api: Any, embeddings: OpenAIServer) -> None:
    assert api.post("/collections", {"name": "here", "placement": "local"}).status_code == 200
    refused = api.post("/collections", {"name": "away", "placement": "spread"})
    assert refused.status_code == 422 and refused.json()["error"]["field"] == "placement"
    assert not Collection.objects.filter(name="away").exists()


def test_a_model_from_elsewhere_needs_an_endpoint(api: Any, settings: Any) -> None:
    settings.RAGD_EMBED_BASE_URL = settings.RAGD_EMBED_API_KEY = ""
    response = api.post("/collections", {"name": "a", "embed_model": "all-minilm", "embed_dims": 384})
    error = response.json()["error"]
    assert (response.status_code, error["field"]) == (422, "embed_model")
    assert "EMBED_BASE_URL" in error["message"]
    assert not Collection.objects.exists()


def test_update_changes_what_may_change(api: Any, notes: Collection) -> None:
    body = {"description": "new", "chunk_policy": {"target_tokens": 100}}
    got = api.patch("/collections/notes", body).json()
    assert (got["description"], got["chunk_policy"]["target_tokens"]) == ("new", 100)
    assert api.patch("/collections/notes", {"language": "german"}).json()["language"] == "german"
    ingest_text(notes, "a", "some text")
    response = api.patch("/collections/notes", {"language": "simple"})
    assert (response.status_code, response.json()["error"]["type"]) == (409, "not_empty")
    assert api.patch("/collections/notes", {"embed_dims": 8}).status_code == 422


def test_a_display_name_and_starter_questions_are_kept_and_taken_back(api: Any, notes: Collection) -> None:
    assert api.get("/collections/notes").json()["title"] == "" and notes.label == "notes"
    body = {"title": " Team\nnotes ", "starters": ["What is new?", " ", "What is new?", "Who leads?"]}
    got = api.patch("/collections/notes", body).json()
    assert (got["name"], got["title"], got["starters"]) == ("notes", "Team notes", ["What is new?", "Who leads?"])
    notes.refresh_from_db()
    assert notes.label == "Team notes"
    event = AuditEvent.objects.get(action="collection.change")
    assert event.before == {"title": "", "starters": []}
    assert event.after == {"title": "Team notes", "starters": ["What is new?", "Who leads?"]}
    for refused in (
        {"title": "x" * 201},
        {"starters": ["x" * 201]},
        {"starters": [f"{number}?" for number in range(9)]},
    ):
        response = api.patch("/collections/notes", refused)
        assert (response.status_code, response.json()["error"]["field"]) == (422, *refused)
    assert api.patch("/collections/notes", {"title": "", "starters": []}).json()["starters"] == []
    made = api.post("/collections", {"name": "other", "title": "Other notes", "starters": ["Why?"]})
    assert made.json() == BRIEF | {"name": "other"}
    got = api.get("/collections/other").json()
    assert (got["title"], got["starters"]) == ("Other notes", ["Why?"])


def test_delete_takes_everything_and_proves_it(api: Any, notes: Collection) -> None:
    ingest_text(notes, "a", "some text")
    ingest_text(notes, "b", "more text")
    response = api.delete("/collections/notes")
    before, after = response.json()["before"], response.json()["after"]
    assert (before["documents"], before["chunks"], before["chunk_tables"]) == (2, 2, 1)
    assert set(before) == set(after) > {"revisions", "overlays", "uploads", "jobs", "terms", "plans", "runs"}
    assert not any(after.values())
    assert not Document.objects.exists() and not Chunk.objects.exists() and not Collection.objects.exists()
    assert api.get("/collections/notes").status_code == 404
    assert api.post("/collections", {"name": "notes"}).status_code == 200


def test_statistics_count_what_is_stored(api: Any, notes: Collection) -> None:
    ingest_text(notes, "a", "three small words")
    got = api.get("/collections/notes/statistics").json()
    assert (got["documents"], got["chunks"], got["tokens"], got["vector_index"]) == (1, 1, 3, "none")
    assert got["bytes"] > 0


def test_a_measurement_needs_an_index_and_stands_in_the_index_version(
    api: Any, notes: Collection, settings: Any
) -> None:
    from collections_app.jobs.dispatch import run_job
    from collections_app.jobs.queue import submit_index_build
    from collections_app.models import IngestJob

    Collection.objects.update(hybrid_enabled=False)
    refused = api.post("/collections/notes/measurements", {})
    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "nothing_to_measure")
    settings.RAGD_EXACT_THRESHOLD = 1
    for number, text in enumerate(("one river", "two stones", "three birds")):
        ingest_text(notes, doc_id=f"{number}", content=text)
    build = submit_index_build(notes)
    assert build is not None and run_job(build.pk) == "succeeded"
    IngestJob.objects.active().delete()
    started = api.post("/collections/notes/measurements", {})
    assert started.status_code == 202
    assert api.get(f"/jobs/{started.json()['job_id']}").json()["kind"] == "measure"
    assert run_job(started.json()["job_id"]) == "succeeded"
    result = api.get("/collections/notes/index-versions/1").json()["measurements"]
    plain = result["recall"]["plain"]
    assert (result["chunks"], plain["mean"], plain["selectivity"]) == (3, 1.0, 1.0)
    assert (result["recall"]["filtered"]["selectivity"], "weights" in result) == (0.01, False)


SECRET = "the merger with Acme"
TRACE = "ab" * 16


@pytest.fixture(params=[delete_collection, trash_collection], ids=["deleted", "in the trash"])
def old(
    request: pytest.FixtureRequest, committed: None, embeddings: OpenAIServer, make_api: Callable[..., Api]
) -> Iterator[Api]:
    """The old tenant's key. Their collection is deleted; runs, spans, scores, evaluations and operations stay."""
    collection = create_collection(name="reuse")
    ingest_text(collection, "plan.md", f"We plan {SECRET}.")
    key = make_api(collections=["reuse"])
    assert key.post("/collections/reuse/ask", {"query": f"When is {SECRET}?"}).status_code == 200
    run = QueryRun.objects.get()
    Span.objects.create(
        trace_id=TRACE, span_id="cd" * 8, name=SECRET, type="rag.query", kind="INTERNAL", collection="reuse",
        started_at=timezone.now(), ended_at=timezone.now(), attributes={"q": SECRET}, run_id=run.pk, duration_ms=1.0,
    )  # fmt: skip
    RunScore.objects.create(
        query_run=uuid4(), collection_name="reuse", question_text=SECRET, judge="embedded", asked_at=timezone.now()
    )
    evaluation = make_run([{"recall@10": 1.0}], name=SECRET)
    EvaluationRun.objects.filter(pk=evaluation.pk).update(collection_name="reuse")
    Experiment.objects.create(kind="plans", collection_name="reuse", name=SECRET, set_name=SECRET, set_version=1)
    assert SECRET in found(key), "there is something to leak"
    request.param(collection)
    yield key
    Span.objects.all().delete()  # the flush leaves that table alone


def addresses() -> list[str]:
    runs = [str(pk) for pk in QueryRun.objects.values_list("pk", flat=True)]
    return [
        "/collections", "/runs", "/runs?collection=reuse", "/runs?format=jsonl", "/run-scores", "/spans",
        "/spans?collection=reuse", "/spans/export?format=otlp&content=stored", f"/traces/{TRACE}", "/evaluation-runs",
        "/experiments", "/operations", "/jobs", "/batches", "/golden-sets",
        *(f"/runs/{pk}{part}" for pk in runs for part in ("", "/spans")),
        *(f"/run-scores?collection={name}" for name in ("reuse",)),
        *(f"/evaluation-runs/{pk}" for pk in EvaluationRun.objects.values_list("pk", flat=True)),
        *(f"/experiments/{pk}" for pk in Experiment.objects.values_list("pk", flat=True)),
    ]  # fmt: skip


def found(key: Api) -> str:
    """Everything that the key reads by list, by id, as files and over MCP."""
    responses = [key.get(path) for path in addresses()]
    calls = [
        {"name": "collections-list", "arguments": {}},
        {"name": "collections-search", "arguments": {"collection": "reuse", "query": "merger"}},
    ]
    for number, call in enumerate(calls):
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}
        headers = {"Authorization": f"Bearer {key.secret}"}
        responses.append(Client().post("/mcp", json.dumps(body), content_type="application/json", headers=headers))
    texts = [b"".join(each.streaming_content) if each.streaming else each.content for each in responses]
    return b"\n".join(texts).decode()


def test_a_new_tenant_sees_nothing_of_the_old_collection(old: Api, make_api: Callable[..., Api]) -> None:
    collection = create_collection(name="reuse")
    new = make_api(collections=["reuse"])
    assert SECRET not in found(new)
    for operation in Operation.objects.filter(kind="deletion"):
        assert new.get(f"/operations/{operation.pk}").status_code == 404
    assert new.get(f"/runs/{QueryRun.objects.earliest('created_at').pk}").status_code == 404
    ingest_text(collection, "a.md", "Owls hunt at night.")
    assert new.post("/collections/reuse/search", {"query": "owls"}).status_code == 200
    assert new.get("/runs").json()["items"][0]["query"] == "owls"
    assert SECRET in found(make_api()), "a key without limits sees all"


def test_no_operation_reaches_the_old_collection(old: Api, make_api: Callable[..., Api]) -> None:
    key, tried = make_api(), 0
    body = {
        "query": "merger",
        "content": "x",
        "model": "ragd/reuse",
        "messages": [{"role": "user", "content": "merger"}],
    }
    for path, methods in json.loads(openapi_document.read())["paths"].items():
        address = re.sub("{[a-z_]+}", "1", path.replace("{collection}", "reuse").replace("{doc_id}", "plan.md"))
        for method in methods if "{collection}" in path or path.endswith("/chat/completions") else ():
            answer = key.send(method.upper(), address.removeprefix("/v1"), None if method == "get" else body)
            assert answer.status_code in (404, 422), f"{method} {address}: {answer.status_code}"
            assert SECRET not in answer.content.decode()
            tried += answer.status_code == 404
    assert tried > 25
    assert "reuse" not in key.get("/models").content.decode() + key.get("/collections").content.decode()


def test_the_key_of_the_old_tenant_does_not_open_the_new_collection(old: Api, make_api: Callable[..., Api]) -> None:
    collection = create_collection(name="reuse")
    ingest_text(collection, "b.md", "The new tenant's salaries.")
    new = make_api(collections=["reuse"])
    assert new.post("/collections/reuse/search", {"query": "salaries"}).status_code == 200
    assert "salaries" not in found(old)
    refused = old.post("/collections/reuse/search", {"query": "salaries"})
    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "out_of_scope")
    assert old.delete("/collections/reuse").status_code == 403
    assert old.get("/evidence").json()["collections"] == []


def test_a_limited_key_whose_collections_are_gone_is_not_without_limits(old: Api) -> None:
    other = create_collection(name="other")
    ingest_text(other, "c.md", "Another's words.")
    assert old.get("/collections").json() == []
    assert old.get("/collections/other").status_code == 403
    assert old.get("/runs").json()["items"] == [] and old.get("/operations").json()["items"] == []
    assert old.get("/api-keys").status_code == 403


def test_who_makes_the_collection_of_the_name_opens_it(old: Api, make_api: Callable[..., Api]) -> None:
    waiting = make_api(collections=["soon", "reuse"])
    assert old.post("/collections", {"name": "reuse"}).status_code == 200
    assert old.get("/collections/reuse").status_code == 200
    assert waiting.get("/collections/reuse").status_code == 200, "it was made for a collection that was to come"
    create_collection(name="soon")
    assert {row["name"] for row in waiting.get("/collections").json()} == {"reuse", "soon"}
    assert old.get("/collections/soon").status_code == 403


@pytest.mark.usefixtures("committed")
def test_the_keys_of_a_collection_follow_an_import_that_takes_its_place(
    embeddings: OpenAIServer, make_api: Callable[..., Api], tmp_path: Any
) -> None:
    collection = create_collection(name="reuse")
    ingest_text(collection, "plan.md", "Owls hunt at night.")
    key = make_api(collections=["reuse"])
    export_to_file(collection, tmp_path / "reuse.zip")
    import_collection(str(tmp_path / "reuse.zip"), replace=True)
    assert Collection.objects.live().get(name="reuse").pk != collection.pk
    assert key.post("/collections/reuse/search", {"query": "owls"}).status_code == 200
    kinds = [row["kind"] for row in key.get("/operations").json()["items"]]
    assert "import" in kinds
