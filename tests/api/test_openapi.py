"""The API's description: made once, stored by who reads it, sent again only when it has changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from django.test import Client
from ninja import NinjaAPI

from ragd_site.api import OpenApiDocument


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
