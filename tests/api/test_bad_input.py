"""Strings that break careless servers, in every place that takes one: never a 500, and nothing is left behind."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from collections_app.models import ApiKey, Collection, Document

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


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_a_nasty_string_in_an_address_is_taken_or_refused(api: Any, notes: Collection, text: str) -> None:
    part = quote(text[:2000].encode("utf-8", "surrogatepass"))
    for method, path, body in (
        ("GET", f"/collections/{part}", None),
        ("GET", f"/collections/{part}/documents", None),
        ("PUT", f"/collections/notes/documents/{part}", {"content": "x"}),
        ("GET", f"/collections/notes/documents/{part}", None),
        ("DELETE", f"/collections/notes/documents/{part}", None),
        ("GET", f"/collections/notes/documents?q={part}&tag={part}", None),
        ("GET", f"/collections/notes/documents?cursor={part}", None),
        ("GET", f"/collections/notes/chunks?doc_id={part}", None),
        ("GET", f"/jobs?doc_id={part}", None),
        ("GET", f"/jobs?collection={part}", None),
        ("GET", f"/jobs?cursor={part}&limit={part}", None),
        ("GET", f"/jobs/{part}", None),
        ("DELETE", f"/api-keys/{part}", None),
    ):
        response = api.send(method, path, body)
        assert response.status_code in (200, 404, 405, 422), (method, path, response.content[:500])
        assert response.status_code == 200 or set(response.json()) == {"error", "detail"}


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_a_nasty_string_in_what_curation_asks_is_taken_or_refused(api: Any, notes: Collection, text: str) -> None:
    api.put("/collections/notes/documents/a", {"content": "Some text."})
    part = quote(text[:2000].encode("utf-8", "surrogatepass"))
    at = "/collections/notes"
    for method, path, body in (
        ("POST", f"{at}/urls", {"urls": [text], "dry_run": True}),
        ("POST", f"{at}/urls", {"urls": [text]}),
        ("POST", f"{at}/urls", {"urls": [{"url": "ftp://x", "doc_id": text, "title": text}]}),
        ("POST", f"{at}/sync", {"manifest": [], "label": text}),
        ("POST", f"{at}/sync", {"manifest": [], "prefix": text}),
        ("POST", f"{at}/uploads/plan", {"entries": [{"doc_id": text, "sha256": "0" * 64, "size": 1}]}),
        ("POST", f"{at}/search", {"query": "x", "plan": text}),
        ("POST", f"{at}/search", {"query": "x", "rerank": text}),
        ("POST", f"{at}/documents-bulk", {"action": "add_tags", "tags": [text], "doc_ids": [text]}),
        ("POST", f"{at}/documents-bulk", {"action": "enable", "filter": {"q": text, "tags": [text]}}),
        ("POST", f"{at}/chunks", {"doc_id": text, "content": text}),
        ("POST", f"{at}/chunk-preview", {"content": text}),
        ("PATCH", f"{at}/documents/{part}", {"restore_revision": 1}),
        ("GET", f"{at}/revisions?doc_id={part}&cursor={part}", None),
        ("GET", f"{at}/overlays?doc_id={part}", None),
        ("GET", f"{at}/chunks/0/{part}?neighbours=1", None),
        ("GET", f"{at}/retrieved?doc_id={part}", None),
        ("GET", f"{at}/never-retrieved?after={part}", None),
        ("GET", f"{at}/documents?facets=true&q={part}&tag={part}&media_type={part}", None),
        ("GET", f"/operations?collection={part}", None),
        ("GET", f"/batches?collection={part}", None),
        ("GET", f"/runs?collection={part}", None),
    ):
        response = api.send(method, path, body)
        assert response.status_code in (200, 201, 202, 400, 404, 405, 409, 422), (method, path, response.content[:500])
        assert response.status_code < 400 or set(response.json()) - {"run_id"} == {"error", "detail"}


def test_numbers_beyond_the_database_are_refused(api: Any, notes: Collection) -> None:
    api.put("/collections/notes/documents/a", {"content": "Some text."})
    for path in (
        "outliers?offset={}", "revisions/{}?doc_id=a", "chunks/{}/a", "chunks/0/a?neighbours={}", "outliers?limit={}",
        "retrieved?doc_id=a&chunk_index={}", "index-versions/{}", "never-retrieved?days={}",
        "revisions/1/diff?doc_id=a&with={}",
    ):  # fmt: skip
        for number in (2**31, 2**63, 10**30):
            response = api.get(f"/collections/notes/{path.format(number)}")
            assert response.status_code in (404, 422), (path, number, response.content[:500])


def test_a_form_with_headers_without_end_is_refused(api: Any, notes: Collection) -> None:
    body = f'--b\r\nContent-Disposition: form-data; name="files"; filename="{"a" * 3000}"\r\n\r\ntext\r\n--b--\r\n'
    response = api.client.post(
        "/v1/collections/notes/documents", body.encode(), "multipart/form-data; boundary=b",
        headers={"Authorization": f"Bearer {api.secret}"},
    )  # fmt: skip
    assert (response.status_code, response.json()["error"]["type"]) == (400, "bad_request")


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_a_nasty_file_name_is_taken_or_refused(api: Any, notes: Collection, text: str) -> None:
    kept = text[:300].encode("utf-8", "ignore").decode()
    name = kept.replace("/", "").strip(".") or "x"
    response = api.upload("notes", (name, b"text"), fields={"tags": [kept], "metadata": kept, "doc_ids": [kept]})
    assert response.status_code in (202, 400, 422), response.content[:500]


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
