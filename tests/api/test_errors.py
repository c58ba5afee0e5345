from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection
from django.test import Client
from pydantic import BaseModel

from collections_app.collections import services as collection_services
from collections_app.errors import INTERNAL


def shape(response: Any) -> tuple[int, str]:
    """Status and type; checks the one shape."""
    body = response.json()
    assert set(body) == {"error", "detail"}
    assert set(body["error"]) in ({"type", "message"}, {"type", "message", "field"})
    assert body["detail"] == body["error"]["message"]
    return response.status_code, body["error"]["type"]


def test_an_unknown_path_is_404_in_the_one_shape(client: Client) -> None:
    for path in ("/v1/nothing", "/v1/", "/v1/collections/a/b/c/d", "/mcp/nothing"):
        assert shape(client.get(path)) == (404, "not_found")
        assert shape(client.post(path, {})) == (404, "not_found")


def test_a_request_of_the_api_passes_some_of_the_middlewares_in_their_order_without_a_session(api: Any) -> None:
    assert [name for name in settings.MIDDLEWARE if name in settings.API_MIDDLEWARE] == settings.API_MIDDLEWARE
    request = api.get("/collections").wsgi_request
    assert request.api_key and not hasattr(request, "session")


def test_a_wrong_type_in_a_path_is_422_and_named(api: Any) -> None:
    response = api.get("/jobs/none")
    assert (shape(response), response.json()["error"]["field"]) == ((422, "invalid_input"), "job_id")


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"name": 3}, "name", "name must be a text, not 3"),
        ({}, "name", "name is missing, and it is required"),
        ({"name": "a", "colour": 1}, "colour", "there is no field 'colour' here; leave it out"),
        ({"name": "a", "embed_dims": "x" * 200}, "embed_dims", 'embed_dims must be a whole number, not "' + "x" * 79),
        ({"name": "a", "hybrid_enabled": "?"}, "hybrid_enabled", 'hybrid_enabled must be true or false, not "?"'),
        ({"name": "a", "chunk_policy": [1]}, "chunk_policy", "chunk_policy must be an object, not [1]"),
        (
            {"name": "\ud800", "embed_dims": ["\ud800", math.nan]},
            "embed_dims",
            'embed_dims must be a whole number, not ["\\ud800", NaN]',
        ),
    ],
)
def test_a_message_says_what_was_expected_and_what_came(api: Any, body: Any, field: str, message: str) -> None:
    response = api.post("/collections", body)
    assert shape(response) == (422, "invalid_input")
    assert response.json()["error"]["field"] == field
    assert response.json()["detail"].startswith(message)


def test_a_host_that_is_not_allowed_is_400(client: Client) -> None:
    assert shape(client.get("/v1/collections", headers={"Host": "evil.example"})) == (400, "bad_request")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("secret detail"), (500, "internal_error")),
        (OperationalError("host x"), (503, "database_unavailable")),
        (psycopg.OperationalError("host x"), (503, "database_unavailable")),
    ],
)
def test_a_fault_of_the_server_shows_nothing_of_its_inside(
    api: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: tuple[int, str]
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr("collections_app.access.auth.get_collection", fail)
    response = api.get("/collections/a")
    assert shape(response) == expected
    assert str(error) not in response.content.decode()
    assert expected[0] != 500 or response.json()["detail"] == INTERNAL
    assert collection_services.get_collection is not fail


def test_health_is_open(client: Client, db: None) -> None:
    response = client.get("/v1/health")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_health_names_a_pgvector_that_is_too_old(client: Client, db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pg_extension SET extversion = '0.8.3' WHERE extname = 'vector'")
    response = client.get("/v1/health")
    assert response.status_code == 503
    assert (response.json()["error"]["type"], response.json()["error"]["field"]) == ("unsupported_database", "database")


def test_no_two_schemas_of_the_api_share_a_name() -> None:
    """Of two the second would take the place of the first in the description of the API."""
    modules: dict[str, set[str]] = {}
    for model in _subclasses(BaseModel):
        if model.__module__.partition(".")[0] in {"collections_app", "retrieval_app", "evaluation_app"}:
            modules.setdefault(model.__name__, set()).add(model.__module__)
    assert {name: sorted(where) for name, where in modules.items() if len(where) > 1} == {}
    assert {"UploadPlanRequest", "SavedPlanRequest"} <= set(modules)


def _subclasses(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield child
        yield from _subclasses(child)


def test_the_operations_have_the_names_of_the_contract(client: Client, db: None) -> None:
    paths = client.get("/v1/openapi.json").json()["paths"]
    found = {
        operation["operationId"]: (method.upper(), path)
        for path, methods in paths.items()
        for method, operation in methods.items()
    }
    expected = {
        "collections-create": ("POST", "/v1/collections"),
        "collections-list": ("GET", "/v1/collections"),
        "documents-ingest": ("PUT", "/v1/collections/{collection}/documents/{doc_id}"),
        "collections-search": ("POST", "/v1/collections/{collection}/search"),
        "collections-ask": ("POST", "/v1/collections/{collection}/ask"),
        "api-keys-create": ("POST", "/v1/api-keys"),
        "health": ("GET", "/v1/health"),
    }
    assert {name: found[name] for name in expected} == expected
    assert {
        "collections-get", "collections-update", "collections-delete", "collections-statistics", "documents-list",
        "documents-get", "documents-delete", "documents-upload", "chunks-list", "jobs-list",
        "jobs-get", "api-keys-list", "api-keys-revoke", "runs-list", "runs-get", "chat-completions", "models-list",
    } <= set(found)  # fmt: skip
