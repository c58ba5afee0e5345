"""Values have the types that are stated; errors name fields as callers write them; metadata stay the caller's."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from collections_app.models import ApiKey, Chunk, Collection, Document
from ragd.version import product_version
from ragd_site.api import openapi_document

pytestmark = pytest.mark.django_db

SEARCH = "/collections/notes/search"
DOCUMENT = "/collections/notes/documents/a.md"


def refused(response: Any, field: str) -> None:
    assert (response.status_code, response.json()["error"]["field"]) == (422, field), response.content


@pytest.mark.fault("F7")
@pytest.mark.parametrize(
    ("field", "value"),
    [("k", True), ("k", "3"), ("k", 3.5), ("explain", "yes"), ("explain", 1), ("rrf_k", "60"), ("query", 5)],
)
def test_a_value_of_another_type_is_refused(api: Any, notes: Collection, field: str, value: object) -> None:
    refused(api.send("POST", SEARCH, {"query": "x", field: value}), field)
    arguments = {"collection": "notes", "query": "x", field: value}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    answer = api.client.post(
        "/mcp",
        call | {"params": {"name": "collections-search", "arguments": arguments}},
        content_type="application/json",
        headers={"Authorization": f"Bearer {api.secret}"},
    ).json()
    assert answer["result"]["isError"] is True
    assert f'"field":"{field}"' in answer["result"]["content"][0]["text"].replace(" ", "")


@pytest.mark.fault("F7")
def test_numbers_and_times_are_taken_as_json_writes_them(api: Any, notes: Collection) -> None:
    body = {"query": "x", "k": 3.0, "weights": {"vector": 1, "lexical": 2}, "as_of": None}
    assert api.send("POST", SEARCH, body).status_code == 200


@pytest.mark.fault("F8")
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"content": 5}, "content"),
        ({"content": None}, "content"),
        ({"content": [5]}, "content.0"),
        ({"content": [{"txt": "x"}]}, "content.0.text"),
        ({"content": "x", "tags": "y"}, "tags"),
    ],
)
def test_errors_name_the_field_of_the_caller(api: Any, notes: Collection, body: object, field: str) -> None:
    response = api.send("PUT", DOCUMENT, body)
    refused(response, field)
    assert not re.search(r"function-|\.str\b|\[", response.json()["error"]["message"].replace("not [", ""))


@pytest.mark.fault("F14")
@pytest.mark.parametrize(
    ("times", "field"),
    [
        ({"t_start": 5, "t_end": 2}, "t_end"),
        ({"t_start": -1}, "t_start"),
        ({"t_end": -0.5}, "t_end"),
        ({"t_start": "0"}, "content.0.t_start"),
        ({"t_start": True}, "content.0.t_start"),
    ],
)
def test_times_of_segments_are_seconds_in_order(
    api: Any, notes: Collection, times: dict[str, object], field: str
) -> None:
    refused(api.send("PUT", DOCUMENT, {"content": [{"text": "x", **times}]}), field)
    assert not Document.objects.exists()


@pytest.mark.fault("F16")
@pytest.mark.parametrize("name", ["a%0Ab", "a%0D", "%0A", "a%00b", "a%09b"])
def test_a_control_character_in_a_doc_id_is_told(api: Any, notes: Collection, name: str) -> None:
    refused(api.send("PUT", f"/collections/notes/documents/{name}", {"content": "x"}), "doc_id")


@pytest.mark.fault("F17")
def test_equal_numbers_and_tags_are_no_change(api: Any, notes: Collection) -> None:
    first = {"content": "x", "metadata": {"a": 1, "b": [{"c": 2}]}, "tags": ["a", "b"]}
    assert api.send("PUT", DOCUMENT, first).json()["revision"] == 1
    same = {"content": "x", "metadata": {"b": [{"c": 2.0}], "a": 1.0}, "tags": ["b", "a"]}
    assert api.send("PUT", DOCUMENT, same).json() | {"chunks_written": 1} == {
        "chunks_written": 1, "tokens_estimated": 1, "unchanged": True, "revision": 1,
    }  # fmt: skip
    for other in ({"a": True, "b": [{"c": 2}]}, {"a": 1.5, "b": [{"c": 2}]}):
        assert api.send("PUT", DOCUMENT, same | {"metadata": other}).json()["unchanged"] is False


@pytest.mark.fault("F18")
def test_an_unknown_parameter_of_an_address_is_refused(api: Any, notes: Collection) -> None:
    for path in ("/runs", "/collections", "/jobs", "/collections/notes/documents", "/spans"):
        assert api.send("GET", f"{path}?limit=1").status_code == 200, path
        refused(api.send("GET", f"{path}?limit=1&foo=1"), "foo")
        told = api.send("GET", f"{path}?limit=0").json()["detail"]
        assert told.replace('"', "") in ("limit must be at least 1, not 0", "limit must be from 1 to 500, not 0"), path


@pytest.mark.fault("F18")
def test_who_asks_is_checked_before_what_is_asked(api: Any, notes: Collection) -> None:
    assert api.client.get("/v1/runs?foo=1").status_code == 401


@pytest.mark.fault("F19")
def test_mcp_names_the_version_of_the_product(api: Any) -> None:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    headers = {"Authorization": f"Bearer {api.secret}"}
    answer = api.client.post("/mcp", call, content_type="application/json", headers=headers).json()
    assert answer["result"]["serverInfo"]["version"] == product_version()


@pytest.mark.fault("F5")
def test_metadata_of_the_caller_stay_as_they_are(api: Any, notes: Collection) -> None:
    own = {"headings": "mine", "page": 7, "t_start": "early", "segment_start": -1, "overlay": "edit"}
    segments = [{"text": "# B\n\nx", "t_start": 1, "t_end": 2}]
    assert api.send("PUT", DOCUMENT, {"content": segments, "metadata": own}).status_code == 200
    chunk = Chunk.objects.get()
    assert chunk.metadata == own | {"t_end": 2.0, "segment_end": 0}
    assert {name: chunk.attributes[name] for name in ("section", "t_start", "t_end", "segment_start")} == {
        "section": ["B"], "t_start": 1.0, "t_end": 2.0, "segment_start": 0,
    }  # fmt: skip
    for name, value in own.items():
        body = api.send("POST", SEARCH, {"query": "x", "metadata": {name: value}}).json()
        assert [each["metadata"][name] for each in body["results"]] == [value]
    (result,) = body["results"]
    assert result["page"] is None
    answer = api.send("POST", "/collections/notes/ask", {"query": "x"}).json()
    assert [(each["t_start"], each["t_end"]) for each in answer["sources"]] == [(1.0, 2.0)]
    (listed,) = api.send("GET", "/collections/notes/chunks?doc_id=a.md").json()["items"]
    assert (listed["page"], listed["metadata"]["overlay"], "overlay" in listed["attributes"]) == (None, "edit", False)


@pytest.mark.fault("F9", "N-28")
def test_the_description_allows_what_the_server_takes() -> None:
    schemas = json.loads(openapi_document.read())["components"]["schemas"]
    for schema, field, value in (
        ("QuestionRequest", "question", "什么时候烧开水？"),
        ("NewChunk", "content", "水在一百度时沸腾。"),
        ("FeedbackIn", "comment", "错误"),
    ):
        described = schemas[schema]["properties"][field]
        pattern = next(part["pattern"] for part in (described, *described.get("anyOf", ())) if "pattern" in part)
        assert re.search(pattern, value) and not re.search(pattern, " \u200b")
    chunks = schemas["QuestionRequest"]["properties"]["expected_chunks"]
    pattern = next(part["items"]["pattern"] for part in (chunks, *chunks.get("anyOf", ())) if "items" in part)
    for key in ("docs/a.b#7", "a#0", "ordner/ä ö#12"):
        assert re.search(pattern, key), key
    assert not any(re.search(pattern, key) for key in ("a", "#1", "a#x", " a#1"))


NASTY = [
    "a\x00b", "a\ud800b", "\ufeff", "\n", "'; DROP TABLE chunks; --", "%(x)s", "../..", "\\", "a" * 100_000,
    "\u0301" * 300, "İ", "-1", "1e999",
]  # fmt: skip


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_a_nasty_string_in_a_body_is_taken_or_refused(api: Any, notes: Collection, text: str) -> None:
    create = "/collections"
    ingest = "/collections/notes/documents/a"
    for method, path, body in (
        ("POST", create, {"name": text}),
        ("POST", create, {"name": "b", "description": text}),
        ("POST", create, {"name": "c", "embed_model": text, "embed_dims": 8}),
        ("POST", create, {"name": "d", "language": text}),
        ("POST", create, {"name": "e", "chunk_policy": {"kind": text}}),
        ("PATCH", "/collections/notes", {"description": text}),
        ("POST", "/api-keys", {"label": text}),
        ("POST", "/api-keys", {"label": "x", "collections": [text]}),
        ("POST", "/api-keys", {"label": "x", "expires_at": text}),
        ("PUT", ingest, {"content": text}),
        ("PUT", ingest, {"content": [{"text": text, "t_start": 1.0}]}),
        ("PUT", ingest, {"content": "x", "title": text}),
        ("PUT", ingest, {"content": "x", "tags": [text]}),
        ("PUT", ingest, {"content": "x", "metadata": {text: [text]}}),
        ("PUT", ingest, {"content": "x", "ingest_mode": text}),
    ):
        response = api.send(method, path, body)
        assert response.status_code in (200, 400, 409, 422), (method, path, response.content[:500])
        assert response.status_code == 200 or set(response.json()) == {"error", "detail"}
    for document in Document.objects.all():
        assert "\x00" not in document.text + document.title + "".join(document.tags)
    assert not any("\x00" in key.label for key in ApiKey.objects.all())


def test_a_form_with_headers_without_end_is_refused(api: Any, notes: Collection) -> None:
    body = f'--b\r\nContent-Disposition: form-data; name="files"; filename="{"a" * 3000}"\r\n\r\ntext\r\n--b--\r\n'
    response = api.client.post(
        "/v1/collections/notes/documents", body.encode(), "multipart/form-data; boundary=b",
        headers={"Authorization": f"Bearer {api.secret}"},
    )  # fmt: skip
    assert (response.status_code, response.json()["error"]["type"]) == (400, "bad_request")


def test_json_that_is_none_or_extreme_is_422(api: Any, notes: Collection) -> None:
    cases: list[Any] = [
        "[" * 100_000, '{"a":' * 50_000, '{"content": 1e999}', '{"content": "x", "metadata": {"n": -Infinity}}',
        '{"content": [{"text": "x", "t_start": NaN}]}', '{"content": [{"text": "x", "t_end": 1e999}]}',
        '{"content": "x", "chunk_target_tokens": 1' + "0" * 5000 + "}", b"\xff" * 100, b"",
    ]  # fmt: skip
    for body in cases:
        response = api.put("/collections/notes/documents/a", body)
        assert (response.status_code, set(response.json())) == (422, {"error", "detail"})
        assert not Document.objects.exists()
