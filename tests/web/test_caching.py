"""No answer is stored by a browser or a proxy, and a page and its part are never taken for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from collections_app.access.api_keys import NewKey, create_key


@pytest.mark.parametrize(
    "path", ["/", "/collections/nature/", "/activity/", "/traces/", "/nothing/", "/accounts/login/", "/admin/"]
)
def test_pages_are_not_stored_and_vary_by_the_part_that_is_asked_for(
    visitor: Client, fill: Callable[..., Any], path: str
) -> None:
    fill(documents=1)
    response = visitor.get(path)
    assert "no-store" in response["Cache-Control"]
    if response.headers.get("Content-Type", "").startswith("text/html") and response.content:
        assert {"HX-Request", "HX-Target"} <= set(response["Vary"].split(", "))


def test_a_part_is_not_stored(visitor: Client, fill: Callable[..., Any]) -> None:
    fill(documents=1)
    part = visitor.get("/collections/nature/?q=w", headers={"HX-Request": "true", "HX-Target": "documents"})
    assert "<html" not in part.content.decode()
    assert part["Cache-Control"] == "private, no-store"
    assert {"HX-Request", "HX-Target"} <= set(part["Vary"].split(", "))


def test_answers_of_the_api_are_not_stored_and_protect_a_browser(client: Client, fill: Callable[..., Any]) -> None:
    fill(documents=1)
    bearer = {"Authorization": f"Bearer {create_key(NewKey('reader'))[1]}"}
    for path in ("/v1/collections", "/v1/collections/nature/documents/whales.md", "/v1/collections/nature/export"):
        headers = client.get(path, headers=bearer).headers
        assert {"Content-Security-Policy", "X-Frame-Options", "X-Content-Type-Options"} <= set(headers)
        assert headers["Cache-Control"] == "private, no-store"
