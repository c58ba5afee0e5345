"""What holds for every operation of the OpenAPI document: ids of nothing, wrong methods, the bounds of lists."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.models import Collection
from retrieval_app.models import QueryRun
from tests.api.test_key_scopes import TAKES_FILES, document, operations, send

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
