"""Strings that break careless servers, in every place that takes one: never a 500, and nothing is left behind."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from collections_app.models import ApiKey, Collection, Document

NASTY = [
    "\x00", "a\x00b", "\ud800", "a\udfffb", "\ufeff", "\u202e", "\n", "\r\n", "'", '"; DROP TABLE chunks; --',
    "%s", "%(x)s", "{}", "../..", "\\", "🦜", "a" * 100_000, "\u0301" * 300, "ß", "İ",
    "NaN", "null", "-1", "1e999", "\u2028", "\uffff", "<b>", "${x}",
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
        ("GET", f"/collections/notes/documents/{part}/chunks", None),
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
def test_a_nasty_file_name_is_taken_or_refused(api: Any, notes: Collection, text: str) -> None:
    kept = text[:300].encode("utf-8", "ignore").decode()
    name = kept.replace("/", "").strip(".") or "x"
    response = api.upload("notes", (name, b"text"), fields={"tags": [kept], "metadata": kept, "doc_ids": [kept]})
    assert response.status_code in (202, 400, 422), response.content[:500]


@pytest.mark.parametrize(
    "body", ["[" * 100_000, '{"a":' * 50_000, '{"content": 1e999}', '{"content": "x", "metadata": {"n": -Infinity}}',
             '{"content": [{"text": "x", "t_start": NaN}]}', '{"content": [{"text": "x", "t_end": 1e999}]}',
             '{"content": "x", "chunk_target_tokens": 1' + "0" * 5000 + "}", b"\xff" * 100, b""],
    ids=range(9),
)  # fmt: skip
def test_json_that_is_none_or_extreme_is_422(api: Any, notes: Collection, body: Any) -> None:
    response = api.put("/collections/notes/documents/a", body)
    assert (response.status_code, set(response.json())) == (422, {"error", "detail"})
    assert not Document.objects.exists()
