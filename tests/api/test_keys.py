"""API keys over HTTP: made, listed, ended, and what each opens.
Every operation of the OpenAPI document, present and future, against the keys that must not use it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from collections_app.access.api_keys import NewKey, create_key, revoke_key
from collections_app.models import ApiKey, Collection, IdempotencyRecord
from ragd_site.api import openapi_document
from tests.api.conftest import Api
from tests.simultaneous import call_together

SECRET = re.compile(r"ragd_[A-Za-z0-9_-]{43}")
NOBODY: dict[str, str] = {}


def post(body: Any, **headers: str) -> Any:
    return Client().post("/v1/api-keys", body, content_type="application/json", headers=headers)


@pytest.mark.django_db
def test_the_first_key_is_open_and_answers_the_secret_once() -> None:
    response = post({"label": "first"})
    assert response.status_code == 200
    assert set(response.json()) == {"secret_once"}
    secret = response.json()["secret_once"]
    assert SECRET.fullmatch(secret)
    key = ApiKey.objects.get()
    assert bytes(key.key_hash) == hashlib.sha256(secret.encode()).digest()
    assert (key.label, key.scope, key.collections, key.prefix) == ("first", "write", [], secret[:12])
    assert Client().get("/v1/collections", headers={"Authorization": f"Bearer {secret}"}).status_code == 200


FOREIGN: dict[str, dict[str, Any]] = {
    "another machine": {"REMOTE_ADDR": "192.0.2.7"},
    "no address": {"REMOTE_ADDR": ""},
    "forwarded": {"headers": {"Forwarded": "for=192.0.2.7"}},
    "x-forwarded-for": {"headers": {"X-Forwarded-For": "127.0.0.1"}},
    "x-forwarded-host": {"headers": {"X-Forwarded-Host": "rag.example.org"}},
    "x-real-ip": {"headers": {"X-Real-IP": "192.0.2.7"}},
    "via": {"headers": {"Via": "1.1 proxy"}},
    "origin": {"headers": {"Origin": "http://evil.example"}},
    "null origin": {"headers": {"Origin": "null"}},
    "cross-site": {"headers": {"Sec-Fetch-Site": "cross-site"}},
    "same-site": {"headers": {"Sec-Fetch-Site": "same-site"}},
    "text": {"content_type": "text/plain"},
    "form": {"content_type": "application/x-www-form-urlencoded"},
}


@pytest.mark.django_db
@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
def test_the_first_key_is_not_made_for_who_may_be_elsewhere(foreign: dict[str, Any]) -> None:
    response = Client().post("/v1/api-keys", **{"data": '{"label": "x"}', "content_type": "application/json"} | foreign)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (401, "unauthenticated")
    assert "create-key" in error["message"]
    assert not ApiKey.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("host", "status"), [("0.0.0.0", 401), ("192.0.2.1", 401), ("::", 401), ("::1", 200), ("localhost", 200)]
)
def test_the_first_key_is_open_only_while_the_server_listens_on_loopback(
    host: str, status: int, settings: Settings
) -> None:
    settings.RAGD_HOST = host
    assert post({"label": "x"}).status_code == status
    assert ApiKey.objects.exists() == (status == 200)


@pytest.mark.django_db
def test_the_first_key_is_made_for_a_page_of_the_server_itself() -> None:
    headers = {"Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}
    assert post({"label": "x"}, **headers).status_code == 200


@pytest.mark.django_db
def test_the_second_key_needs_a_live_key_even_when_all_are_revoked() -> None:
    _, secret = create_key(NewKey("first"))
    assert post({"label": "second"}).status_code == 401
    assert post({"label": "second"}, Authorization=f"Bearer {secret}").status_code == 200
    for each in ApiKey.objects.all():
        revoke_key(each)
    assert post({"label": "third"}).status_code == 401
    assert post({"label": "third"}, Authorization=f"Bearer {secret}").status_code == 403
    assert ApiKey.objects.count() == 2


def test_of_many_first_requests_at_once_one_gets_a_key(committed: None) -> None:
    answers = call_together(*[partial(post, {"label": "first"})] * 6)
    assert sorted(answer.status_code for answer in answers) == [200, 401, 401, 401, 401, 401]
    assert ApiKey.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("header", ["", "Basic abc", "Bearer", "Bearer  ", "Token x"])
def test_no_bearer_is_401(header: str) -> None:
    create_key(NewKey("some"))
    headers = {"Authorization": header} if header else NOBODY
    for path in ("/v1/collections", "/v1/jobs", "/v1/api-keys", "/v1/collections/none/documents/a"):
        response = Client().get(path, headers=headers)
        assert (response.status_code, response.json()["error"]["type"]) == (401, "unauthenticated"), path
        assert response["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.django_db
def test_unknown_revoked_and_expired_keys_are_403(make_api: Callable[..., Any]) -> None:
    revoked, secret = create_key(NewKey("revoked"))
    revoke_key(revoked)
    expired = make_api(expires_at=timezone.now() + timedelta(hours=1))
    ApiKey.objects.filter(label="tests").update(expires_at=timezone.now() - timedelta(seconds=1))
    for bad in ("ragd_" + "x" * 43, secret, expired.secret, "ragd_\ud800", "x" * 10_000):
        value = f"Bearer {bad}".encode("utf-8", "surrogatepass").decode("latin-1")
        response = Client().get("/v1/collections", headers={"Authorization": value})
        assert (response.status_code, response.json()["error"]["type"]) == (403, "invalid_key")


def test_last_use_is_written_at_most_once_a_minute(api: Any) -> None:
    api.get("/collections")
    first = ApiKey.objects.get().last_used_at
    assert first is not None
    api.get("/collections")
    assert ApiKey.objects.get().last_used_at == first
    ApiKey.objects.update(last_used_at=first - timedelta(minutes=2))
    api.get("/collections")
    assert ApiKey.objects.get().last_used_at > first


def test_list_shows_everything_but_the_secret(api: Any) -> None:
    expires_at = timezone.now() + timedelta(days=1)
    api.post("/api-keys", {"label": "x", "scope": "read", "collections": ["a"], "expires_at": expires_at.isoformat()})
    items = api.get("/api-keys").json()["items"]
    assert [(item["label"], item["scope"], item["collections"], item["status"]) for item in items] == [
        ("x", "read", ["a"], "live"), ("tests", "write", [], "live"),
    ]  # fmt: skip
    assert items[0]["expires_at"] is not None and "key_hash" not in items[0]


def test_revoke_ends_a_key_at_once(api: Any) -> None:
    other, secret = create_key(NewKey("other"))
    assert api.delete(f"/api-keys/{other.pk}").json()["status"] == "revoked"
    assert Client().get("/v1/collections", headers={"Authorization": f"Bearer {secret}"}).status_code == 403
    assert api.delete(f"/api-keys/{other.pk}").json()["status"] == "revoked"
    assert api.delete(f"/api-keys/{2**70}").json()["error"]["type"] == "unknown_key"


def test_a_limited_key_cannot_manage_keys(make_api: Callable[..., Any]) -> None:
    limited = make_api(collections=["mine"])
    for response in (
        limited.get("/api-keys"),
        limited.post("/api-keys", {"label": "x"}),
        limited.delete("/api-keys/1"),
    ):
        assert (response.status_code, response.json()["error"]["type"]) == (403, "out_of_scope")
    assert make_api(scope="read").get("/api-keys").status_code == 403


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "label"), ({"label": ""}, "label"), ({"label": "x" * 201}, "label"), ({"label": "\x00"}, "label"),
        ({"label": "x", "scope": "root"}, "scope"), ({"label": "x", "collections": ["a/b"]}, "name"),
        ({"label": "x", "expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"label": "x", "expires_at": "9999-12-31T23:59:59-14:00"}, "expires_at"),
        ({"label": "x", "expires_at": "0001-01-01T00:00:00+14:00"}, "expires_at"),
        ({"label": "x", "expires_at": "2101-01-01T00:00:00Z"}, "expires_at"),
        ({"label": "x", "expires_at": "2101-01-01T00:00:00"}, "expires_at"), ({"label": "x", "extra": 1}, "extra"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(api: Any, body: dict[str, Any], field: str) -> None:
    response = api.post("/api-keys", body)
    assert (response.status_code, response.json()["error"]["field"]) == (422, field)
    assert ApiKey.objects.count() == 1


def test_an_idempotency_key_gives_the_same_secret_and_stores_none(api: Any) -> None:
    headers = {"Idempotency-Key": "k1"}
    first = api.post("/api-keys", {"label": "x"}, **headers)
    again = api.post("/api-keys", {"label": "x"}, **headers)
    assert first.json() == again.json()
    assert (again["Idempotency-Replayed"], ApiKey.objects.count()) == ("true", 2)
    assert first.json()["secret_once"] not in str(IdempotencyRecord.objects.get().response)
    other = api.post("/api-keys", {"label": "y"}, **headers)
    assert (other.status_code, other.json()["error"]["type"]) == (422, "idempotency_key_reused")


UNREADABLE = {"beyond": "'10000-01-01 13:59:59+00'", "before": "'4713-01-01 00:00:00+00 BC'", "never": "'infinity'",
              "always": "'-infinity'"}  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("expires_at", UNREADABLE.values(), ids=UNREADABLE)
def test_the_database_refuses_an_expiry_that_cannot_be_read_back(api: Any, expires_at: str) -> None:
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE api_keys SET expires_at = {expires_at}")


OPEN = {("GET", "/v1/health")}
TAKES_FILES = {  # multipart
    ("POST", "/v1/collections/{collection}/documents"): "files",
    ("POST", "/v1/collections/{collection}/chunk-preview/file"): "file",
}
SAMPLES: dict[str, Any] = {"string": "a", "integer": 1, "number": 1.0, "boolean": True, "array": [], "null": None}

Operation = tuple[str, str]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return dict(json.loads(openapi_document.read()))  # made once per process


def operations(document: dict[str, Any]) -> Iterator[tuple[Operation, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield (method.upper(), path), operation


def example(schema: dict[str, Any], document: dict[str, Any]) -> Any:
    """The least value that the schema allows: required fields only, the first of several types."""
    if "$ref" in schema:
        return example(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document)
    if "properties" in schema and "oneOf" in schema:  # either these fields or those
        required = [*schema.get("required", []), *schema["oneOf"][0]["required"]]
        return {name: example(schema["properties"][name], document) for name in required}
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return example(schema[several][0], document)
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if schema.get("type") == "object" or "properties" in schema:
        return {name: example(schema["properties"][name], document) for name in schema.get("required", [])}
    if schema.get("type") == "array" and schema.get("minItems"):
        return [example(schema["items"], document)]
    if schema.get("format") == "uuid":
        return "00000000-0000-4000-8000-000000000000"
    return SAMPLES[schema.get("type", "string")]


def send(client: Api, operation: Operation, shape: dict[str, Any], document: dict[str, Any]) -> tuple[int, str]:
    """Status and error type of a request with the least parameters and body that the document allows."""
    method, path = operation
    values = {
        (each["in"], each["name"]): example(each["schema"], document)
        for each in shape.get("parameters", [])
        if each["required"]
    }
    values |= {("path", "collection"): "notes", ("path", "key_id"): 2**40}  # never the own key, which may be rotated
    path = re.sub(r"\{(\w+)\}", lambda match: str(values["path", match[1]]), path.removeprefix("/v1"))
    query = urlencode({name: value for (where, name), value in values.items() if where == "query"})
    body = shape.get("requestBody", {}).get("content", {}).get("application/json")
    answer = client.send(method, f"{path}?{query}" if query else path, body and example(body["schema"], document))
    error = answer.json()["error"]["type"] if answer.status_code >= 400 else ""
    if answer.streaming:
        b"".join(answer.streaming_content)  # a download that nobody reads holds its slot
    return answer.status_code, error


@pytest.mark.django_db
def test_no_operation_but_health_answers_without_a_key(document: dict[str, Any]) -> None:
    nobody = Api(Client(), None)
    answered = {name for name, shape in operations(document) if send(nobody, name, shape, document)[0] != 401}
    # the first key of all may be made by whoever is at the server itself
    assert answered - {("POST", "/v1/api-keys")} == OPEN


def test_a_key_of_another_collection_is_refused_by_every_operation_on_this_one(
    document: dict[str, Any], make_api: Callable[..., Api], notes: Collection
) -> None:
    stranger = make_api(collections=["other"])
    of_collection = {name: shape for name, shape in operations(document) if "{collection}" in name[1]}
    answers = {name: send(stranger, name, shape, document) for name, shape in of_collection.items()}
    answered = {name for name, answer in answers.items() if answer != (403, "out_of_scope")}
    assert answered == TAKES_FILES.keys()
    headers = {"Authorization": f"Bearer {stranger.secret}"}
    for (_, path), part in TAKES_FILES.items():
        data = {part: SimpleUploadedFile("a.txt", b"a")}
        assert stranger.client.post(path.format(collection="notes"), data, headers=headers).status_code == 403, path
