"""What holds for every operation of the OpenAPI document: ids of nothing, wrong methods, the bounds of lists."""

from __future__ import annotations

import base64
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from ninja import NinjaAPI

from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.models import Collection
from ragd_site.api import OpenApiDocument
from retrieval_app.models import QueryRun
from tests.api.test_keys import TAKES_FILES, document, operations, send

__all__ = ["document"]

pytestmark = pytest.mark.django_db
OTHERWISE = {
    ("GET", "/v1/models/{model}"): (404, "invalid_request_error"),  # as OpenAI's clients read it
    ("POST", "/v1/runs/{run_id}/feedback"): (422, "invalid_input"),
}

WHOLE = {("/v1/spans/export", 10**30)}  # which may be read as one file


def test_an_id_of_nothing_is_404_and_named(document: dict[str, Any], api: Any) -> None:
    with_id = {name: shape for name, shape in operations(document) if "{" in name[1] and name not in TAKES_FILES}
    answers = {name: send(api, name, shape, document) for name, shape in with_id.items()}
    assert {name: each for name, each in answers.items() if each[0] != 404 or "unknown_" not in each[1]} == OTHERWISE


def test_a_method_that_a_path_has_not_is_405_and_told_which_it_has(document: dict[str, Any], api: Any) -> None:
    wrong = []
    for path, methods in document["paths"].items():
        has = sorted(method.upper() for method in methods)
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - set(has):
            answer = api.send(method, re.sub(r"\{\w+\}", "1", path.removeprefix("/v1")))
            allowed = sorted(answer.headers.get("Allow", "").split(", "))
            if (answer.status_code, allowed) != (405, has):
                wrong.append((method, path, answer.status_code, allowed))
    assert not wrong, "\n".join(map(str, wrong))


def test_a_list_takes_no_limit_out_of_its_range_and_no_cursor_of_another(
    document: dict[str, Any], api: Any, notes: Collection
) -> None:
    wrong = []
    for (method, path), shape in operations(document):
        parameters = {each["name"]: each for each in shape.get("parameters", []) if each["in"] == "query"}
        address = path.removeprefix("/v1").replace("{collection}", "notes")
        if "limit" not in parameters or "{" in address or any(each["required"] for each in parameters.values()):
            continue
        for name, value in (("limit", 0), ("limit", 10**30), ("limit", "x"), ("cursor", "x")):
            if name in parameters and (path, value) not in WHOLE:
                answer = api.send(method, f"{address}?{name}={value}")
                error = answer.json().get("error", {}) if answer.status_code >= 400 else {}
                if (answer.status_code, error.get("field")) != (422, name):
                    wrong.append((path, name, value, answer.status_code, error.get("type"), error.get("field")))
    assert not wrong, "\n".join(map(str, wrong))


def add_rows(api: Any, notes: Collection, number: int) -> None:
    create_collection(name=f"other-{number}")
    ingest_text(notes, f"document-{number}", "text")
    api.upload("notes", (f"{number}.txt", b"text"))
    assert api.post("/collections/notes/search", {"query": "text"}).status_code == 200
    QueryRun.objects.filter(user=None).update(user=User.objects.create_user(f"person-{number}"))


@pytest.mark.parametrize("path", ["batches", "collections", "jobs", "runs", *(f"collections/notes/{name}" for name in (
    "documents", "chunks"))])  # fmt: skip
def test_a_list_takes_as_many_queries_for_three_rows_as_for_one(api: Any, notes: Collection, path: str) -> None:
    counts, rows = [], []
    api.get(f"/{path}")  # the key's first use is written
    for numbers in ((1,), (2, 3)):
        for number in numbers:
            add_rows(api, notes, number)
        with CaptureQueriesContext(connection) as queries:
            body = api.get(f"/{path}").json()
        rows.append(len(body if isinstance(body, list) else body["items"]))
        counts.append(len(queries))
    assert counts[0] == counts[1] and rows[1] == rows[0] + 2


def encode(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


NO_CURSORS = (
    "x", "!!!", "ä", encode({}), encode([]), encode([["doc_id"], []]), encode([["name"], ["a"]]),
    encode([["doc_id"], [None]]), encode([["doc_id"], [{"at": "never"}]]), encode([["doc_id"], ["a\x00"]]),
    encode([["doc_id"], [[1]]]), encode([["doc_id"], [1.5]]),
)  # fmt: skip
LISTS = ["runs", "jobs", "batches", "operations", "api-keys", "evaluation-runs", "experiments"]
AT = {"at": "2026-01-01T00:00:00+00:00"}
ID = {"id": "0" * 32}
WRONG_TYPES = (["x", "y"], [1, 2], [AT, "y"], [AT, AT], ["x", ID], [{"at": "2026-01-01T00:00:00"}, ID])


def test_a_cursor_that_this_list_did_not_give_is_422(api: Any, notes: Collection) -> None:
    cursors = [("collections/notes/documents", cursor) for cursor in NO_CURSORS]
    cursors += [(path, encode([["-created_at", "-id"], values])) for path in LISTS for values in WRONG_TYPES]
    for path, cursor in cursors:
        response = api.get(f"/{path}?cursor={cursor}")
        assert (response.status_code, response.json()["error"]["field"]) == (422, "cursor"), (path, cursor)


def test_a_cursor_with_half_a_surrogate_pair_or_a_number_for_a_text_is_422(api: Any, notes: Collection) -> None:
    for value in ("\ud800", 7):
        response = api.get(f"/collections/notes/documents?cursor={encode([['doc_id'], [value]])}")
        assert (response.status_code, response.json()["error"]["field"]) == (422, "cursor")


def test_pages_do_not_shift_when_rows_come_and_go(api: Any, notes: Collection) -> None:
    for doc_id in ("b", "d", "f"):
        ingest_text(notes, doc_id, "text")
    first = api.get("/collections/notes/documents?limit=2").json()
    ingest_text(notes, "a", "text")
    ingest_text(notes, "e", "text")
    api.delete("/collections/notes/documents/d")
    rest = api.get(f"/collections/notes/documents?limit=2&cursor={first['next_cursor']}").json()
    assert [row["doc_id"] for row in first["items"] + rest["items"]] == ["b", "d", "e", "f"]


class CountingApi:
    made = 0

    def get_openapi_schema(self) -> dict[str, Any]:
        self.made += 1
        return {"openapi": "3.1.0"}


def test_the_document_is_made_once_for_all_threads_and_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = CountingApi()
    document = OpenApiDocument(cast("NinjaAPI", api), tmp_path)
    with ThreadPoolExecutor(8) as pool:
        bodies = set(pool.map(lambda _: document.read(), range(32)))
    assert (bodies, api.made) == ({b'{"openapi": "3.1.0"}'}, 1)
    assert OpenApiDocument(cast("NinjaAPI", api), tmp_path).read() in bodies and api.made == 1
    monkeypatch.setattr("ragd_site.api.digest_code", lambda: "of other code")
    assert OpenApiDocument(cast("NinjaAPI", api), tmp_path).read() in bodies and api.made == 2
    assert len(list(tmp_path.iterdir())) == 1


def test_who_has_the_document_gets_304(client: Client) -> None:
    first = client.get("/v1/openapi.json")
    assert (first.status_code, first["Content-Type"]) == (200, "application/json")
    assert first["Cache-Control"] == "public, no-cache"
    again = client.get("/v1/openapi.json", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    packed = client.get("/v1/openapi.json", headers={"Accept-Encoding": "gzip"})
    assert (packed["Content-Encoding"], len(packed.content) < len(first.content) / 4) == ("gzip", True)
    stored = client.get("/v1/openapi.json", headers={"Accept-Encoding": "gzip", "If-None-Match": packed["ETag"]})
    assert stored.status_code == 304
