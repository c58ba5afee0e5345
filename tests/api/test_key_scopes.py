"""Every operation of the OpenAPI document, present and future, against the keys that must not use it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from collections_app.models import Collection
from ragd_site.api import openapi_document
from tests.api.conftest import Api

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
