"""A body that is too large is refused by its stated length, before anything of it is read or written to disk."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from pytest_django import Settings

from ragd_site.body_limits import LIMITS
from tests.addresses import all_addresses

LARGE = "200000000000"


class UnreadBody(io.RawIOBase):
    """A body that must not be read."""

    def read(self, size: int = -1) -> bytes:
        raise AssertionError("the body was read")

    readinto = readline = read  # type: ignore[assignment]


def post(client: Client, path: str, length: str = LARGE, content_type: str = "multipart/form-data; boundary=x") -> Any:
    values: dict[str, Any] = {"wsgi.input": UnreadBody(), "CONTENT_LENGTH": length, "CONTENT_TYPE": content_type}
    return client.generic("POST", path, **values)


def routes(patterns: list[URLPattern | URLResolver], prefix: str = "") -> list[str]:
    found = []
    for each in patterns:
        route = prefix + str(each.pattern)
        found += routes(each.url_patterns, route) if isinstance(each, URLResolver) else [route]
    return found


@pytest.mark.parametrize("path", ["/accounts/login/", "/admin/login/", "/collections/x/upload/", "/theme/", "/chat/"])
def test_a_page_answers_413_as_a_page(client: Client, db: None, path: str) -> None:
    response = post(client, path)
    assert (response.status_code, response["Content-Type"]) == (413, "text/html; charset=utf-8")
    assert "<h1>" in response.content.decode()


@pytest.mark.parametrize(
    "path", ["/v1/collections", "/v1/collections/x/documents", "/v1/collections/import", "/mcp", "/v1/x"]
)
def test_the_api_answers_413_as_json_without_asking_for_a_key(client: Client, db: None, path: str) -> None:
    response = post(client, path)
    assert (response.status_code, response.json()["error"]["type"]) == (413, "too_large")


def test_the_facade_answers_413_in_its_own_shape(client: Client, db: None) -> None:
    response = post(client, "/v1/chat/completions", content_type="application/json")
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


def test_what_fits_is_read(client: Client, db: None, settings: Settings) -> None:
    settings.RAGD_MAX_DOCUMENT_MB = 1
    for path, limit_mb in (
        ("/v1/api-keys", 1),
        ("/v1/collections/x/documents/y", 3),
        ("/v1/collections/x/documents", 21),
    ):
        assert post(client, path, str(limit_mb * 1_000_000 + 1)).status_code == 413
        fits = client.generic("POST" if path != "/v1/collections/x/documents/y" else "PUT", path, b"x" * 1000)
        assert fits.status_code != 413


def test_a_body_of_unstated_length_is_refused(client: Client, db: None) -> None:
    for path in ("/v1/collections", "/accounts/login/"):
        response = client.generic("POST", path, **{"wsgi.input": UnreadBody(), "HTTP_TRANSFER_ENCODING": "chunked"})
        assert response.status_code == 411


def test_every_limit_is_that_of_a_route() -> None:
    known = routes(get_resolver().url_patterns)
    known += [each.route + "".join(each.name.partition("?")[1:]) for each in all_addresses()]
    assert [start for start, _ in LIMITS if not any(route.startswith(start) for route in known)] == []


def test_each_view_of_an_address_has_a_limit_of_its_own(client: Client, db: None) -> None:
    for view, status in (("", 413), ("?view=edit", 413), ("?view=new-version", 302)):
        assert client.generic("POST", f"/collections/x/documents/y/{view}", b"x" * 2_000_000).status_code == status
