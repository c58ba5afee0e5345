"""A name that is used again: neither its new keys see what the old collection left, nor the old keys the new one."""

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
from collections_app.models import Collection, Operation
from evaluation_app.models import EvaluationRun, Experiment, RunScore
from evaluation_app.models.spans import Span
from ragd_site.api import api
from retrieval_app.models import QueryRun
from tests.api.conftest import Api
from tests.evaluation.made_runs import make_run
from tests.exports import export_to_file
from tests.fakes.openai_server import OpenAIServer

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
    for path, methods in api.get_openapi_schema()["paths"].items():
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
