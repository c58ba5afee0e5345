"""Strings that break careless servers, in every place that takes one: never a 500, and nothing is left behind."""

from __future__ import annotations

from typing import Any

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
