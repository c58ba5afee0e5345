"""What holds for every operation of the OpenAPI document: ids of nothing, wrong methods, the bounds of lists.
Values have the types that are stated; errors name fields as callers write them; metadata stay the caller's."""

from __future__ import annotations

import base64
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from ninja import NinjaAPI

from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.models import ApiKey, Chunk, Collection, Document, IngestJob
from ragd.version import product_version
from ragd_site.api import OpenApiDocument, openapi_document
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


def test_a_form_field_or_a_file_that_there_is_not_is_422_and_named(
    document: dict[str, Any], api: Any, notes: Collection
) -> None:
    forms = [name for name, shape in operations(document) if "multipart/form-data" in content_of(shape)]
    assert {path.rpartition("/")[2] for _, path in forms} == {"documents", "import", "file"}
    for _, path in forms:
        name = "file" if path.endswith(("import", "file")) else "files"
        for wrong in ("yes", SimpleUploadedFile("acl.json", b"{}")):
            sent = {name: SimpleUploadedFile("a.txt", b"text"), "acces": wrong}
            address = path.replace("{collection}", "notes")
            answer = api.client.post(address, sent, headers={"Authorization": f"Bearer {api.secret}"})
            error = answer.json()["error"]
            assert (answer.status_code, error["field"]) == (422, "acces"), (path, error)
    assert not IngestJob.objects.exists()


def content_of(shape: dict[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", shape.get("requestBody", {}).get("content", {}))


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
    for row in Document.objects.all():
        assert "\x00" not in row.text + row.title + "".join(row.tags)
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
